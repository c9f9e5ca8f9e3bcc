import cv2
import numpy as np
import pytest
import torch

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.training.config import TrainConfig
from perdure.training.validation import ValidationSet, match, validate

CONFIG = TrainConfig(imgsz=64, batch=1)


def dataset(folder, images):
    return LocalDataset(folder, "v", "s", ("a", "b"), (), tuple(images))


def image_of(folder, name, boxes, width=128, height=64):
    path = folder / f"{name}.png"
    cv2.imwrite(str(path), np.full((height, width, 3), 50, np.uint8))
    return LocalImage(path, name, width, height, boxes)


class Answers(torch.nn.Module):
    """A detector that gives prepared outputs (4 + classes, candidates), an image each."""

    def __init__(self, outputs):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(1))
        self.outputs = list(outputs)

    def forward(self, images):
        taken, self.outputs = self.outputs[: len(images)], self.outputs[len(images) :]
        return torch.stack(taken)


def measure(data, outputs):
    settings = ValidationSet(data, CONFIG, workers=0)
    return validate(
        Answers(outputs), settings, data.classes, half=False, after_batch=lambda _number: None
    )


def candidate(x, y, width, height, *scores):
    return torch.tensor([[x], [y], [width], [height], *[[score] for score in scores]])


def test_letterboxed_truth_is_where_serving_sees_it(tmp_path):
    data = dataset(tmp_path, [image_of(tmp_path, "wide", ((1, 0.5, 0.5, 0.5, 0.5),))])
    images, truths = next(iter(ValidationSet(data, CONFIG, workers=0)))
    assert images.shape == (1, 3, 64, 64)
    assert images[0, :, 8, 32].tolist() == [114, 114, 114]  # 16 px of padding above
    assert images[0, :, 20, 32].tolist() == [50, 50, 50]
    assert truths[0].classes.tolist() == [1.0]
    assert truths[0].boxes.tolist() == [[16.0, 24.0, 48.0, 40.0]]


def test_perfect_detections_have_a_mean_precision_of_one(tmp_path):
    first = image_of(tmp_path, "1", ((0, 0.5, 0.5, 0.5, 0.5),))
    second = image_of(tmp_path, "2", ((1, 0.5, 0.5, 0.5, 0.5),))
    outputs = [candidate(32, 32, 32, 16, 0.9, 0.0), candidate(32, 32, 32, 16, 0.0, 0.9)]
    metrics = measure(dataset(tmp_path, [first, second]), outputs)
    assert metrics.map50 == pytest.approx(0.995)  # its interpolation does not reach 1
    assert metrics.map50_95 == pytest.approx(0.995)


def test_the_wrong_class_counts_for_nothing(tmp_path):
    data = dataset(tmp_path, [image_of(tmp_path, "1", ((0, 0.5, 0.5, 0.5, 0.5),))])
    assert measure(data, [candidate(32, 32, 32, 16, 0.0, 0.9)]).map50 == 0


def test_a_loose_box_counts_only_below_its_overlap(tmp_path):
    data = dataset(tmp_path, [image_of(tmp_path, "1", ((0, 0.5, 0.5, 0.5, 0.5),))])
    metrics = measure(data, [candidate(32, 32, 32, 12.2, 0.9, 0.0)])  # IoU 0.7625
    assert metrics.map50 == pytest.approx(0.995)
    assert metrics.map50_95 == pytest.approx(0.995 * 6 / 10)


def test_no_detections_and_no_truth_are_no_error(tmp_path):
    data = dataset(tmp_path, [image_of(tmp_path, "1", ())])
    assert measure(data, [candidate(32, 32, 32, 16, 0.0, 0.0)]).map50_95 == 0


def test_the_split_is_decoded_once(tmp_path, monkeypatch):
    data = dataset(tmp_path, [image_of(tmp_path, "1", ())])
    kept = ValidationSet(data, CONFIG, workers=0)
    first = next(iter(list(kept)))
    data.val[0].path.unlink()
    assert torch.equal(next(iter(kept))[0], first[0])


def test_each_truth_is_matched_once_and_the_confident_detection_comes_first():
    overlap = np.array([[0.6, 0.9, 0.0], [0.0, 0.0, 0.0]])
    correct = match(overlap)
    assert correct[:, 0].tolist() == [True, False, False]
    # At higher thresholds the first does not fit: the second takes the truth.
    assert correct[1, 3:9].all()
    assert not correct[1, 9]
