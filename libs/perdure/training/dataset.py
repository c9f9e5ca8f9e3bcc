"""The images and boxes of a data set as training batches and as validation batches."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from ultralytics.data.augment import (
    Compose,
    Format,
    MixUp,
    Mosaic,
    RandomFlip,
    RandomHSV,
    RandomPerspective,
)
from ultralytics.utils.instance import Instances

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.datasets.imaging import decode
from perdure.training.config import TrainConfig
from perdure.training.order import BatchPlan, SampleKey, sample_seed, seed_generators
from perdure.training.sample_cache import SampleCache

# Decoded and resized images are kept while they fit, all loader processes together. A small set
# is then decoded once and not once an epoch.
IMAGE_MEMORY_BYTES: Final = 1 << 30
PREFETCHED_BATCHES: Final = 4  # per loader process
LOADER_TIMEOUT_S: Final = 300.0  # a loader process that gives nothing for so long is stuck
SEGMENT_POINTS: Final = 1000  # the shape that Instances wants of an empty list of outlines

Image = NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """`images` (n, 3, side, side) uint8 RGB; the boxes of all of them, in rows.

    `image_index` (m,) says which image a row belongs to, `classes` (m, 1), `boxes` (m, 4) are
    centre x, centre y, width, height as shares of the side. `sample_ids` has n entries.
    """

    images: torch.Tensor
    image_index: torch.Tensor
    classes: torch.Tensor
    boxes: torch.Tensor
    sample_ids: tuple[str, ...]

    def pin_memory(self) -> "Batch":
        """Give the same batch in memory that a GPU can copy from in the background."""
        return Batch(
            self.images.pin_memory(),
            self.image_index.pin_memory(),
            self.classes.pin_memory(),
            self.boxes.pin_memory(),
            self.sample_ids,
        )


class TrainingImages(Dataset[dict[str, Any]]):
    """The training split: item (epoch, index) is an augmented sample, the same whenever asked for.

    It is also the "dataset" that Ultralytics' Mosaic and MixUp take their partners from; `cache` is
    "ram" so that they choose among all images and not among the recent ones, which are history.
    """

    cache = "ram"

    def __init__(
        self,
        images: Sequence[LocalImage],
        config: TrainConfig,
        *,
        sharers: int = 1,
        kept: SampleCache | None = None,
    ) -> None:
        """`sharers` is the number of processes that will each keep images in memory; batches
        that were `kept` are not made again.
        """
        self._images = images
        self._seed = config.seed
        self._imgsz = config.imgsz
        self._close_from = config.epochs - config.close_mosaic
        self._open = _transforms(self, config, mixing=True)
        self._closed = _transforms(self, config, mixing=False)
        self._batches = kept
        self._kept: dict[int, Image] = {}
        budget = IMAGE_MEMORY_BYTES // max(1, sharers)
        self._room = budget // (config.imgsz * config.imgsz * 3)

    def __len__(self) -> int:
        return len(self._images)

    def __getitems__(self, keys: Sequence[SampleKey]) -> list[dict[str, Any]]:
        """The samples of a batch, all of one epoch. The loader asks for them here."""

        def make() -> list[dict[str, Any]]:
            return [self[key] for key in keys]

        if self._batches is None:
            return make()
        epoch = keys[0][0]
        ids = [self._images[index].sample_id for _, index in keys]
        return self._batches.batch(epoch, ids, make, mixed=self._mixes(epoch))

    def __getitem__(self, key: SampleKey) -> dict[str, Any]:
        epoch, index = key
        seed_generators(sample_seed(self._seed, epoch, self._images[index].sample_id))
        transforms = self._open if self._mixes(epoch) else self._closed
        sample: dict[str, Any] = transforms(self.get_image_and_label(index))
        sample["sample_id"] = self._images[index].sample_id
        return sample

    def _mixes(self, epoch: int) -> bool:
        return epoch < self._close_from

    def get_image_and_label(self, index: int) -> dict[str, Any]:
        """Give an image before augmentation, in the form that Ultralytics' transforms take."""
        image = self._images[index]
        pixels = self._pixels(index)
        return {
            "im_file": str(image.path),
            "ori_shape": (image.height, image.width),
            "resized_shape": pixels.shape[:2],
            "img": pixels.copy(),  # some transforms write into it
            **labels_of(image),
        }

    def _pixels(self, index: int) -> Image:
        """Image `index`, its long side resized to imgsz; BGR, as the transforms expect."""
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        rgb = decode(self._images[index].path)
        height, width = rgb.shape[:2]
        ratio = self._imgsz / max(height, width)
        if ratio != 1:
            size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
            rgb = np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_LINEAR), np.uint8)
        bgr: Image = np.ascontiguousarray(rgb[..., ::-1])
        if len(self._kept) < self._room:
            self._kept[index] = bgr
        return bgr


def labels_of(image: LocalImage) -> dict[str, Any]:
    """Give an image's classes (m, 1) and boxes in the form that Ultralytics' transforms take."""
    rows = np.asarray(image.boxes, dtype=np.float32).reshape(-1, 5)
    no_outlines = np.zeros((0, SEGMENT_POINTS, 2), dtype=np.float32)
    boxes = Instances(rows[:, 1:].copy(), no_outlines, None, bbox_format="xywh", normalized=True)
    return {"cls": rows[:, :1].copy(), "instances": boxes}


def _transforms(dataset: TrainingImages, config: TrainConfig, *, mixing: bool) -> Any:
    """Ultralytics' v8_transforms in its order, without what draws from generators of its own."""
    affine = RandomPerspective(
        degrees=config.degrees,
        translate=config.translate,
        scale=config.scale,
        shear=config.shear,
        perspective=config.perspective,
        size=(config.imgsz, config.imgsz),
    )
    mosaic = mixing and config.mosaic > 0
    compose: Any = Compose
    partners = [Mosaic(dataset, imgsz=config.imgsz, p=config.mosaic)] if mosaic else []
    first = compose([*partners, affine])
    steps: list[Any] = [first]
    if mixing and config.mixup > 0:
        steps.append(MixUp(dataset, pre_transform=first, p=config.mixup))
    steps += [
        RandomHSV(hgain=config.hsv_h, sgain=config.hsv_s, vgain=config.hsv_v),
        RandomFlip(direction="vertical", p=config.flipud),
        RandomFlip(direction="horizontal", p=config.fliplr),
        Format(bbox_format="xywh", normalize=True, batch_idx=True, bgr=0.0),
    ]
    return compose(steps)


def collate(samples: Sequence[dict[str, Any]]) -> Batch:
    """Put samples into one batch."""
    counts = torch.tensor([len(sample["cls"]) for sample in samples])
    return Batch(
        images=torch.stack([sample["img"] for sample in samples]),
        image_index=torch.repeat_interleave(torch.arange(len(samples)), counts).float(),
        classes=torch.cat([sample["cls"].float() for sample in samples]),
        boxes=torch.cat([sample["bboxes"].float() for sample in samples]),
        sample_ids=tuple(sample["sample_id"] for sample in samples),
    )


def training_batches(
    data: LocalDataset,
    config: TrainConfig,
    *,
    workers: int,
    pinned: bool,
    epoch: int,
    step: int,
    kept: SampleCache | None = None,
) -> Iterator[Batch]:
    """Give the batches of all epochs from `step` of `epoch` on; `workers` processes load them.

    Batches that were `kept` are read, the others are made and kept.

    Raises what decoding raises, and RuntimeError when a loader process dies.
    """
    dataset = TrainingImages(data.train, config, sharers=workers, kept=kept)
    plan = BatchPlan(
        [image.sample_id for image in data.train],
        seed=config.seed,
        batch=config.batch,
        epochs=config.epochs,
        epoch=epoch,
        step=step,
    )
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=plan,  # keys are pairs, and the end is known to it
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pinned,
        prefetch_factor=PREFETCHED_BATCHES if workers else None,
        timeout=LOADER_TIMEOUT_S if workers else 0,
        worker_init_fn=begin_worker,
        generator=torch.Generator().manual_seed(config.seed),  # leaves the global one alone
    )
    return iter(loader)


def begin_worker(_worker: int) -> None:
    """Make a loader process outlive the SIGTERM that its group gets: its parent ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(0)
