"""Matching and average precision: cases worked out by hand, and Ultralytics on random ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ultralytics.engine.validator import BaseValidator
from ultralytics.utils.metrics import ap_per_class, box_iou

from perdure.detection.metrics import IOU_THRESHOLDS, Matched, average_precision, match, score

SQUARE = [0.0, 0.0, 10.0, 10.0]


def matched(correct, scores, classes, labels) -> Matched:
    """One image; `correct` says for each detection whether it is right, at all thresholds alike."""
    rows = np.array(correct, dtype=bool).reshape(-1, 1)
    return Matched(
        correct=np.repeat(rows, len(IOU_THRESHOLDS), axis=1),
        scores=np.array(scores, dtype=float),
        classes=np.array(classes, dtype=int),
        label_classes=np.array(labels, dtype=int),
    )


def test_the_thresholds_are_those_of_coco():
    assert pytest.approx([0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95]) == IOU_THRESHOLDS


# The curve is sampled at recalls 0.00, 0.01, ... 1.00 and integrated by trapezoids. Where it drops,
# at recall r, the sample at r has the lower value, so a drop by d costs d * 0.005 against the area
# one would draw.
@pytest.mark.parametrize(
    ("correct", "labels", "expected"),
    [
        ([1], 1, 1 - 0.005),
        ([1, 1], 2, 1 - 0.005),
        ([1], 2, 0.5 - 0.005),
        ([0, 1], 1, 0.5 - 0.5 * 0.005),
        ([1, 0], 1, 1 - 0.005),
        # Precision 1 up to recall 0.5, then 2/3 up to recall 1.
        ([1, 0, 1], 2, 0.5 + 0.5 * 2 / 3 - 0.005),
        ([0, 0], 3, 0.0),
        ([], 4, 0.0),
    ],
    ids=[
        "the one label found",
        "both found",
        "half found",
        "a false alarm first",
        "a false alarm last costs nothing",
        "a false alarm between",
        "only false alarms",
        "no detection",
    ],
)
def test_average_precision_of_small_cases(correct, labels, expected):
    assert average_precision(np.array(correct, dtype=bool), labels) == pytest.approx(expected)


def test_matching_prefers_the_better_overlap_and_takes_each_label_once():
    labels = np.array([SQUARE, [20.0, 0.0, 30.0, 10.0]])
    boxes = np.array([SQUARE, [0.0, 0.0, 10.0, 9.0], [20.0, 0.0, 30.0, 8.0]])
    kinds = np.zeros(3, dtype=int)

    correct = match(boxes, kinds, labels, kinds[:2])

    assert correct[0].all()  # IoU 1
    assert not correct[1].any()  # IoU 0.9 with a label that is taken
    assert correct[2].tolist() == [True] * 7 + [False] * 3  # IoU 0.8: right at .50 to .80


def test_a_detection_of_another_class_is_wrong():
    correct = match(np.array([SQUARE]), np.array([1]), np.array([SQUARE]), np.array([0]))

    assert not correct.any()


@pytest.mark.parametrize("seed", range(10))
def test_matching_is_that_of_ultralytics(seed):
    random = np.random.default_rng(seed)
    labels = _boxes(random, 12)
    boxes = np.concatenate((labels + random.normal(0, 2, labels.shape), _boxes(random, 20)))
    label_classes, classes = random.integers(0, 2, 12), random.integers(0, 2, 32)

    correct = match(boxes, classes, labels, label_classes)

    validator = BaseValidator.__new__(BaseValidator)
    validator.iouv = torch.from_numpy(IOU_THRESHOLDS)
    iou = box_iou(torch.from_numpy(labels), torch.from_numpy(boxes))
    theirs = validator.match_predictions(
        torch.from_numpy(classes), torch.from_numpy(label_classes), iou
    )
    assert correct.any()
    assert np.array_equal(correct, theirs.numpy())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    images=st.integers(1, 8),
    skill=st.floats(0, 1),
    classes=st.integers(1, 4),
)
def test_scores_are_those_of_ultralytics(seed, images, skill, classes):
    random = np.random.default_rng(seed)
    total = images * 15
    confidence = random.permutation(np.linspace(0.001, 0.99, total)).reshape(images, 15)
    parts = [
        Matched(
            # Right at a threshold means right at all below, as with real overlaps.
            correct=random.uniform(0, 1, (15, 1)) * skill > np.linspace(0.1, 0.9, 10),
            scores=np.sort(confidence[index])[::-1],
            classes=random.integers(0, classes, 15),
            label_classes=random.integers(0, classes, random.integers(15, 20)),
        )
        for index in range(images)
    ]

    ours = score(parts, classes)

    result = ap_per_class(
        np.concatenate([part.correct for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.label_classes for part in parts]),
    )
    precisions, present = result[5], result[6]
    assert ours.map50 == pytest.approx(precisions[:, 0].mean(), abs=1e-6)
    assert ours.map50_95 == pytest.approx(precisions.mean(), abs=1e-6)
    for row, index in enumerate(present):
        assert ours.by_class[index].ap50 == pytest.approx(precisions[row, 0], abs=1e-6)
        assert ours.by_class[index].ap50_95 == pytest.approx(precisions[row].mean(), abs=1e-6)


def test_false_alarms_on_images_without_labels_count():
    found = matched([True], [0.5], [0], [0])
    alarms = matched([False, False, False], [0.9, 0.8, 0.7], [0, 0, 0], [])

    alone, together = score([found], 1), score([found, alarms], 1)

    assert alone.map50 == pytest.approx(0.995)
    assert together.map50 == pytest.approx(0.25 * 0.995)  # 1 right of 4 at recall 1
    assert together.images == 2


def test_a_class_without_labels_has_no_score_and_does_not_count():
    result = score([matched([True, False], [0.9, 0.8], [0, 1], [0])], 2)

    assert result.map50 == pytest.approx(0.995)
    assert (result.by_class[1].labels, result.by_class[1].ap50) == (0, None)


def test_detections_of_all_images_are_ranked_together():
    first = matched([False], [0.9], [0], [])
    second = matched([True], [0.8], [0], [0])

    assert score([first, second], 1).map50 == pytest.approx(0.5 * 0.995)
    assert score([second, first], 1).map50 == pytest.approx(0.5 * 0.995)


def test_nothing_to_find_scores_0():
    assert score([], 3).map50 == 0.0
    assert score([matched([], [], [], [])], 3).map50_95 == 0.0


def _boxes(random: np.random.Generator, count: int) -> np.ndarray:
    corners = random.uniform(0, 60, (count, 2))
    return np.concatenate((corners, corners + random.uniform(8, 40, (count, 2))), axis=1)
