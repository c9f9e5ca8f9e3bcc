import random
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.training.config import TrainConfig
from perdure.training.dataset import TrainingImages, collate, training_batches

SIDE = 64
PLAIN = dict.fromkeys(("hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "mosaic"), 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Six images of noise with one box each."""
    folder = tmp_path_factory.mktemp("images")
    return LocalDataset(
        root=folder,
        version="v",
        split_id="s",
        classes=("bird",),
        train=tuple(image_of(folder, number) for number in range(6)),
        val=(),
    )


def image_of(folder: Path, number: int, width: int = 48, height: int = 40) -> LocalImage:
    path = folder / f"{number}.png"
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    cv2.imwrite(str(path), pixels)
    return LocalImage(path, f"images/{number}", width, height, ((0, 0.5, 0.5, 0.5, 0.25),))


def config(**options):
    return TrainConfig(imgsz=SIDE, batch=4, epochs=2, **options)


def batches(data, settings, *, workers=0, epoch=0, step=0):
    found = training_batches(data, settings, workers=workers, pinned=False, epoch=epoch, step=step)
    return list(found)


def equal(one, other):
    return one.sample_ids == other.sample_ids and all(
        torch.equal(getattr(one, name), getattr(other, name))
        for name in ("images", "image_index", "classes", "boxes")
    )


def test_a_sample_is_the_same_whatever_was_drawn_before(data):
    images = TrainingImages(data.train, config(mixup=0.5, close_mosaic=1))
    first = collate([images[(0, 2)]])
    random.seed(99)
    np.random.seed(99)
    images[(1, 3)]
    assert equal(first, collate([images[(0, 2)]]))
    fresh = TrainingImages(data.train, config(mixup=0.5, close_mosaic=1))
    assert equal(first, collate([fresh[(0, 2)]]))


def test_a_sample_looks_different_in_each_epoch(data):
    images = TrainingImages(data.train, config(close_mosaic=0))
    assert not torch.equal(images[(0, 2)]["img"], images[(1, 2)]["img"])


def test_batches_do_not_depend_on_loader_processes(data):
    alone, helped = batches(data, config()), batches(data, config(), workers=2)
    assert len(alone) == len(helped) == 4
    assert all(equal(one, other) for one, other in zip(alone, helped, strict=True))


def test_batches_from_a_later_step_are_the_rest(data):
    whole = batches(data, config())
    rest = batches(data, config(), epoch=0, step=1)
    assert len(rest) == 3
    assert all(equal(one, other) for one, other in zip(whole[1:], rest, strict=True))


def test_mosaic_ends_in_the_last_epochs(data):
    settings = config(**{**PLAIN, "mosaic": 1.0}, close_mosaic=1)
    images = TrainingImages(data.train, settings)
    boxes = [[len(images[(epoch, index)]["cls"]) for index in range(6)] for epoch in (0, 1)]
    assert max(boxes[0]) > 1  # of several images
    assert boxes[1] == [1] * 6


def test_without_augmentation_the_model_sees_the_padded_image_in_rgb(tmp_path):
    path = tmp_path / "orange.png"
    orange_bgr = np.full((32, 64, 3), (0, 128, 255), np.uint8)
    cv2.imwrite(str(path), orange_bgr)
    image = LocalImage(path, "orange", 64, 32, ((0, 0.5, 0.5, 1.0, 1.0),))
    sample = TrainingImages([image], config(**PLAIN))[(0, 0)]
    assert sample["img"].dtype == torch.uint8
    assert sample["img"].shape == (3, SIDE, SIDE)
    assert sample["img"][:, 32, 32].tolist() == [255, 128, 0]
    assert sample["img"][:, 4, 32].tolist() == [114, 114, 114]
    assert sample["bboxes"][0].tolist() == pytest.approx([0.5, 0.5, 1.0, 0.5], abs=0.01)


def test_an_image_without_boxes_is_part_of_a_batch(tmp_path):
    with_box = image_of(tmp_path, 1)
    empty = LocalImage(with_box.path, "empty", 48, 40, ())
    images = TrainingImages([with_box, empty], config(**PLAIN))
    batch = collate([images[(0, 0)], images[(0, 1)], images[(0, 0)]])
    assert batch.images.shape[0] == 3
    assert batch.image_index.tolist() == [0.0, 2.0]
    assert batch.boxes.shape == (2, 4)


def test_images_are_decoded_again_when_they_do_not_fit_in_memory(data, monkeypatch):
    settings = config()
    kept = TrainingImages(data.train, settings)[(0, 1)]
    monkeypatch.setattr("perdure.training.dataset.IMAGE_MEMORY_BYTES", 0)
    assert torch.equal(TrainingImages(data.train, settings)[(0, 1)]["img"], kept["img"])


def test_nothing_is_written_beside_the_images(data):
    before = sorted(path.name for path in data.root.iterdir())
    batches(data, config())
    assert sorted(path.name for path in data.root.iterdir()) == before
