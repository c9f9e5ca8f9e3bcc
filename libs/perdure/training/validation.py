"""mAP on the validation split during training: quick, and with the pixels that serving sees.

It steers early stopping and the choice of the best epoch. What is published is measured again, on
the exported file, by other code.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
import torchvision  # noqa: F401  Ultralytics' NMS uses the compiled one only when this is imported
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from ultralytics.data.augment import LetterBox
from ultralytics.utils.metrics import DetMetrics, box_iou
from ultralytics.utils.nms import non_max_suppression

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.datasets.imaging import decode
from perdure.training.config import TrainConfig
from perdure.training.dataset import LOADER_TIMEOUT_S, begin_worker, labels_of

MIN_CONFIDENCE: Final = 0.001  # mAP integrates over all confidences; below this nothing changes
NMS_IOU: Final = 0.7
MAX_DETECTIONS: Final = 300  # per image
NO_TIME_LIMIT_S: Final = 3600.0  # NMS that gives up after seconds would make the mAP depend on load
WHOLE_IMAGE: Final = (0, 0.5, 0.5, 1.0, 1.0)  # a box, letterboxed with the labels
IOU_THRESHOLDS: Final = np.linspace(0.5, 0.95, 10)
KEPT_IMAGES_BYTES: Final = 512 << 20  # a split that fits is decoded once and not every epoch


@dataclass(frozen=True)
class Metrics:
    """Mean average precision over the classes: at IoU 0.5, and over 0.5 to 0.95."""

    map50: float
    map50_95: float


@dataclass(frozen=True)
class Truth:
    """What is in one image: classes (m,), boxes (m, 4) left, top, right, bottom in input pixels.

    `frame` (4,) is the image itself within the padding, in the same form.
    """

    classes: torch.Tensor
    boxes: torch.Tensor
    frame: torch.Tensor


ValidationBatch = tuple[torch.Tensor, list[Truth]]


class ValidationImages(Dataset[tuple[torch.Tensor, Truth]]):
    """The validation split letterboxed: image (3, side, side) uint8 RGB, and its truth."""

    def __init__(self, images: tuple[LocalImage, ...], imgsz: int) -> None:
        self._images = images
        self._letterbox = LetterBox(new_shape=(imgsz, imgsz), auto=False, scaleup=True, center=True)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Truth]:
        image = self._images[index]
        framed = replace(image, boxes=(*image.boxes, WHOLE_IMAGE))
        sample: Any = self._letterbox({"img": decode(image.path), **labels_of(framed)})
        pixels = torch.from_numpy(np.ascontiguousarray(sample["img"].transpose(2, 0, 1)))
        classes = torch.from_numpy(sample["cls"][:-1, 0])
        boxes = torch.from_numpy(sample["instances"].bboxes)
        return pixels, Truth(classes, boxes[:-1], frame=boxes[-1])


class ValidationSet:
    """The batches of the validation split, again and again; kept in memory when they fit."""

    def __init__(self, data: LocalDataset, config: TrainConfig, *, workers: int) -> None:
        self._dataset = ValidationImages(data.val, config.imgsz)
        self._batch = config.batch * 2  # no gradients are kept: twice as many fit
        self._workers = workers
        size_bytes = len(data.val) * 3 * config.imgsz * config.imgsz
        self._kept: list[ValidationBatch] | None = [] if size_bytes <= KEPT_IMAGES_BYTES else None

    def __len__(self) -> int:
        return math.ceil(len(self._dataset) / self._batch)

    def __iter__(self) -> Iterator[ValidationBatch]:
        if self._kept is not None and len(self._kept) == len(self):
            yield from self._kept
            return
        fresh: list[ValidationBatch] = []
        for batch in self._load():
            if self._kept is not None:
                fresh.append(batch)
            yield batch
        if self._kept is not None:
            self._kept = fresh

    def _load(self) -> Iterator[ValidationBatch]:
        loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_size=self._batch,
            num_workers=self._workers,
            collate_fn=_collate,
            timeout=LOADER_TIMEOUT_S if self._workers else 0,
            worker_init_fn=begin_worker,
            generator=torch.Generator(),
        )
        return iter(loader)


def _collate(samples: list[tuple[torch.Tensor, Truth]]) -> ValidationBatch:
    return torch.stack([image for image, _ in samples]), [truth for _, truth in samples]


def validate(
    model: torch.nn.Module,
    batches: ValidationSet,
    classes: tuple[str, ...],
    *,
    half: bool,
    after_batch: Callable[[int], None],
) -> Metrics:
    """Measure `model` (in evaluation mode) on the validation split.

    `half` computes in half precision where the device is a GPU. `after_batch(n)` is called after
    each batch, for progress; what it raises ends the validation.
    """
    device = next(model.parameters()).device
    metrics = DetMetrics(names=dict(enumerate(classes)))
    for number, (images, truths) in enumerate(batches, start=1):
        with torch.no_grad(), torch.autocast(device.type, torch.float16, enabled=half):
            output = model(images.to(device, non_blocking=True).float() / 255)
        found = non_max_suppression(
            output,
            MIN_CONFIDENCE,
            NMS_IOU,
            multi_label=True,
            max_det=MAX_DETECTIONS,
            max_time_img=NO_TIME_LIMIT_S,
        )
        for detections, truth in zip(found, truths, strict=True):
            metrics.update_stats(_compare(detections.float().cpu(), truth))
        after_batch(number)
    metrics.process()
    return Metrics(map50=float(metrics.box.map50), map50_95=float(metrics.box.map))


def _compare(detections: torch.Tensor, truth: Truth) -> dict[str, Any]:
    """Match one image's detections (n, 6), most confident first, with its truth.

    Boxes are clipped to the image first: so they are served, and so the published figure is
    measured, which the best epoch is to have.
    """
    boxes = detections[:, :4].clamp(truth.frame[:2].repeat(2), truth.frame[2:].repeat(2))
    iou = box_iou(truth.boxes, boxes).numpy()
    same_class = (truth.classes[:, None] == detections[None, :, 5]).numpy()
    wanted = truth.classes.numpy()
    return {
        "tp": match(np.asarray(iou * same_class, dtype=np.float64)),
        "conf": detections[:, 4].numpy(),
        "pred_cls": detections[:, 5].numpy(),
        "target_cls": wanted,
        "target_img": np.unique(wanted),
        "im_name": "",
    }


def match(iou: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Give each detection its best free truth, per threshold.

    `iou` (truths, detections), 0 where the classes differ, detections by falling confidence. Gives
    (detections, thresholds): whether the detection is a true positive at that threshold.
    """
    truths, count = iou.shape
    correct = np.zeros((count, len(IOU_THRESHOLDS)), dtype=np.bool_)
    if not truths:
        return correct
    taken = np.zeros((truths, len(IOU_THRESHOLDS)), dtype=np.bool_)
    columns = np.arange(len(IOU_THRESHOLDS))
    for detection in np.flatnonzero((iou >= IOU_THRESHOLDS[0]).any(axis=0)):
        free = np.where(taken, 0.0, iou[:, detection, None])
        best = free.argmax(axis=0)
        hit = free[best, columns] >= IOU_THRESHOLDS
        correct[detection] = hit
        taken[best, columns] |= hit
    return correct
