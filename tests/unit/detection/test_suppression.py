"""Decoding and suppression agree with torchvision and Ultralytics, and are deterministic."""

import numpy as np
import pytest
import torch
import torchvision
from ultralytics.utils.nms import non_max_suppression

from perdure.detection.pipeline import MAX_CANDIDATES, Detections, decode, suppress


def random_output(seed: int, anchors: int = 400, classes: int = 3) -> np.ndarray:
    """A raw output whose boxes overlap a lot and whose scores are all different."""
    random = np.random.default_rng(seed)
    centres = random.uniform(20, 140, (2, anchors))
    sides = random.uniform(10, 60, (2, anchors))
    scores = random.permutation(np.linspace(0.0002, 0.95, anchors * classes)).reshape(classes, -1)
    return np.concatenate((centres, sides, scores)).astype(np.float32)


def found(detections: Detections) -> np.ndarray:
    return np.column_stack((detections.boxes, detections.scores, detections.classes))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("confidence", "every_class"), [(0.001, True), (0.25, False)])
def test_detections_are_those_of_ultralytics(seed, confidence, every_class):
    raw = random_output(seed)

    ours = suppress(decode(raw, confidence=confidence, every_class=every_class), iou=0.7)

    theirs = non_max_suppression(
        torch.from_numpy(raw)[None],
        conf_thres=confidence,
        iou_thres=0.7,
        multi_label=every_class,
        max_det=300,
    )[0].numpy()
    assert len(ours) == len(theirs) > 50
    assert found(ours) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("iou", [0.3, 0.5, 0.7])
def test_each_class_is_suppressed_as_torchvision_does_it(iou):
    candidates = decode(random_output(100, anchors=1500), confidence=0.001, every_class=True)

    kept = suppress(candidates, iou=iou, max_detections=10_000)

    for kind in range(3):
        own = candidates.classes == kind
        boxes, scores = candidates.boxes[own], candidates.scores[own]
        index = torchvision.ops.nms(torch.from_numpy(boxes), torch.from_numpy(scores), iou).numpy()
        assert np.array_equal(kept.boxes[kept.classes == kind], boxes[index])


def test_of_two_boxes_of_one_class_the_better_stays_and_other_classes_stand():
    candidates = Detections(
        boxes=np.array([[0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 10, 10]], dtype=np.float32),
        scores=np.array([0.9, 0.8, 0.7], dtype=np.float32),
        classes=np.array([0, 0, 1]),
    )

    kept = suppress(candidates, iou=0.7)

    assert kept.scores.tolist() == pytest.approx([0.9, 0.7])
    assert kept.classes.tolist() == [0, 1]


def test_an_overlap_of_just_the_threshold_is_kept():
    # The second box is the left half of the first: intersection 50, union 100.
    boxes = np.array([[0, 0, 10, 10], [0, 0, 5, 10]], dtype=np.float32)
    candidates = Detections(boxes, np.array([0.9, 0.8], np.float32), np.array([0, 0]))

    assert len(suppress(candidates, iou=0.5)) == 2
    assert len(suppress(candidates, iou=0.49)) == 1


def test_no_more_than_the_limit_are_kept_and_those_are_the_best():
    raw = random_output(3)

    kept = suppress(decode(raw, confidence=0.001, every_class=True), max_detections=7)

    everything = suppress(decode(raw, confidence=0.001, every_class=True))
    assert np.array_equal(found(kept), found(everything)[:7])


def test_equal_scores_keep_the_order_of_the_anchors():
    raw = np.zeros((5, 4), dtype=np.float32)
    raw[0] = [100, 200, 300, 400]
    raw[2:4] = 10
    raw[4] = 0.5

    kept = suppress(decode(raw, confidence=0.1))

    assert kept.boxes[:, 0].tolist() == [95, 195, 295, 395]


def test_nothing_above_the_threshold_gives_empty_arrays_of_the_right_shape():
    kept = suppress(decode(np.zeros((6, 20), dtype=np.float32), confidence=0.001))

    assert kept.boxes.shape == (0, 4)
    assert kept.scores.shape == kept.classes.shape == (0,)


def test_candidates_are_bounded():
    raw = np.ones((6, MAX_CANDIDATES), dtype=np.float32)

    candidates = decode(raw, confidence=0.001, every_class=True)

    assert len(candidates) == MAX_CANDIDATES


def test_a_box_without_an_area_neither_suppresses_nor_fails():
    boxes = np.array([[5, 5, 5, 5], [5, 5, 5, 5], [0, 0, 10, 10]], dtype=np.float32)
    candidates = Detections(boxes, np.array([0.9, 0.8, 0.7], np.float32), np.zeros(3, np.int64))

    assert len(suppress(candidates)) == 3
