"""Parity with PyTorch is measured on images; a file that computes something else is caught."""

from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from perdure.datasets.cache import LocalImage
from perdure.detection.onnx_session import OnnxDetector
from perdure.errors import AttemptError
from perdure.training.model import new_model
from perdure_publisher.exporting import export_onnx
from perdure_publisher.verifying import differences, evenly, verify

SIZE = 96


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A model whose output depends on its input, as a trained one's does.

    In a fresh network the signal dies away; normalising it with statistics of real batches keeps it
    alive.
    """
    torch.manual_seed(3)
    built = new_model("yolo11n.yaml", ("heron", "kingfisher")).train()
    for module in built.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean over all batches
    with torch.no_grad():
        for _ in range(3):
            built(torch.rand(4, 3, SIZE, SIZE))
    built.eval()
    for branch in list(built.model)[-1].cv3:
        branch[-1].weight.data.normal_(0, 0.2)
        branch[-1].bias.data.zero_()
    return built


@pytest.fixture(scope="module")
def path(model, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("export") / "model.onnx"
    export_onnx(model, image_size=SIZE, classes=("heron", "kingfisher"), path=file)
    return file


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> list[LocalImage]:
    """Four images: empty (black), wide, tall, and square."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    made = []
    for name, (height, width) in {
        "black": (80, 80),
        "wide": (40, 130),
        "tall": (131, 57),
        "square": (96, 96),
    }.items():
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        cv2.imwrite(str(folder / f"{name}.png"), pixels * (name != "black"))
        made.append(LocalImage(folder / f"{name}.png", f"val/{name}.png", width, height, ()))
    return made


def ignore(_index: int) -> None:
    """Take no notice of progress."""


def test_a_sound_export_passes_with_a_wide_margin(model, path, images):
    told: list[int] = []

    parity = verify(model, OnnxDetector.open(path, threads=1), images, told.append)

    assert parity.images == 4
    # A random network amplifies rounding more than a trained one; still far from 1e-3 and 0.1 px.
    assert parity.max_confidence_difference < 1e-4
    assert parity.max_box_difference_px < 0.05
    assert told == [0, 1, 2, 3]


def change(path: Path, target: Path, pick, edit) -> OnnxDetector:
    """Copy the file with one of its weights edited."""
    graph = onnx.load(path)
    weight = next(entry for entry in graph.graph.initializer if pick(entry))
    values = numpy_helper.to_array(weight).copy()
    edit(values)
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    target.write_bytes(graph.SerializeToString())
    return OnnxDetector.open(target, threads=1)


def first_convolution(weight) -> bool:
    return list(weight.dims) == [16, 3, 3, 3]


def class_bias(weight) -> bool:
    return list(weight.dims) == [2]


def swap_red_and_blue(values: np.ndarray) -> None:
    values[:] = values[:, ::-1]


def scale_one_weight(values: np.ndarray) -> None:
    values[0, 0, 1, 1] *= 1.5


def swap_classes(values: np.ndarray) -> None:
    values += np.array([0.3, -0.3], dtype=np.float32)


def spoil(values: np.ndarray) -> None:
    values[0, 0, 0, 0] = np.nan


@pytest.mark.parametrize(
    ("pick", "edit"),
    [
        (first_convolution, swap_red_and_blue),
        (first_convolution, scale_one_weight),
        (class_bias, swap_classes),
        (first_convolution, spoil),
    ],
    ids=["channels swapped", "one weight changed", "scores shifted", "not a number"],
)
def test_a_broken_export_is_caught(model, path, images, tmp_path, pick, edit):
    broken = change(path, tmp_path / "broken.onnx", pick, edit)

    with pytest.raises(AttemptError, match="differs from PyTorch") as caught:
        verify(model, broken, images, ignore)

    assert caught.value.failure == "export_mismatch"


def test_the_worst_image_is_named(model, path, images, tmp_path):
    # On a black square nothing is there for the first convolution to weigh: only the noise differs.
    broken = change(path, tmp_path / "broken.onnx", first_convolution, swap_red_and_blue)

    with pytest.raises(AttemptError, match=r"most on val/square\.png, of 2 images"):
        verify(model, broken, [images[3], images[0]], ignore)


def test_a_model_left_in_training_mode_does_not_spoil_the_comparison(model, path, images):
    detector = OnnxDetector.open(path, threads=1)
    model.train()

    parity = verify(model, detector, images[:1], ignore)

    assert parity.max_confidence_difference < 1e-4


def raw(scores: float, boxes: float) -> np.ndarray:
    output = np.zeros((6, 5), dtype=np.float32)
    output[1, 2], output[5, 4] = boxes, scores
    return output


def test_differences_are_told_apart_for_scores_and_boxes():
    assert differences(raw(0.5, 10), raw(0.25, 12)) == (0.25, 2.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_never_pass_even_on_both_sides(value):
    assert differences(raw(value, 0), raw(value, 0)) == (np.inf, 0)


def test_outputs_of_different_shapes_never_pass():
    assert differences(raw(0, 0), raw(0, 0)[:, :4]) == (np.inf, np.inf)


@pytest.mark.parametrize(
    ("count", "expected"), [(3, [0, 3, 6]), (10, list(range(10))), (99, list(range(10)))]
)
def test_images_are_chosen_evenly_over_the_split(images, count, expected):
    split = [LocalImage(Path(f"{n}.png"), str(n), 1, 1, ()) for n in range(10)]

    assert [int(image.sample_id) for image in evenly(split, count)] == expected
