"""From an image to the network's input, and from its raw output to boxes. Numpy and OpenCV's resize
only.

Written apart from Ultralytics on purpose: publishing checks the trainer's work, so it shares no
code with it.
"""

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from perdure.detection.boxes import box_iou
from perdure.detection.deployment import MAX_DETECTIONS, NMS_IOU, PAD_VALUE
from perdure.errors import InvalidInput

# As `yolo val` does: low, so that the precision-recall curve is complete.
EVALUATION_CONFIDENCE: Final = 0.001
MAX_CANDIDATES: Final = (
    30_000  # per image, before it: bounds the time of a network that fires everywhere
)

# An odd pixel of padding goes to the right and the bottom, as in training.
_CENTRE_BIAS_PX: Final = 0.1


@dataclass(frozen=True)
class Letterboxed:
    """An image as the network takes it, and how it came about."""

    tensor: NDArray[np.float32]  # (3, size, size), RGB planes, 0..1
    scale: float  # letterboxed pixels per source pixel
    pad_left: int  # pixels
    pad_top: int  # pixels


@dataclass(frozen=True)
class Detections:
    """What a detector found in one image, best score first."""

    boxes: NDArray[np.float32]  # (n, 4): x1, y1, x2, y2 in pixels
    scores: NDArray[np.float32]  # (n,), 0..1
    classes: NDArray[np.int64]  # (n,), index into the class names

    def __len__(self) -> int:
        return len(self.scores)


def letterbox(
    image: NDArray[np.uint8], size: int, *, pad_value: int = PAD_VALUE
) -> tuple[NDArray[np.uint8], float, int, int]:
    """Scale `image` (H x W x 3) to fit into `size` x `size` pixels, bilinearly, and pad it evenly.

    Gives the picture, the scale, and the padding on the left and at the top in pixels. The rule is
    that of ultralytics.data.augment.LetterBox(auto=False, scaleup=True, center=True), with which
    the network was trained.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise InvalidInput(
            f"an image must be height x width x 3 of uint8, not {image.shape} of {image.dtype}"
        )
    height, width = image.shape[:2]
    scale = min(size / height, size / width)
    inner_width, inner_height = max(round(width * scale), 1), max(round(height * scale), 1)
    left = round((size - inner_width) / 2 - _CENTRE_BIAS_PX)
    top = round((size - inner_height) / 2 - _CENTRE_BIAS_PX)
    if (inner_width, inner_height) != (width, height):
        resized = cv2.resize(image, (inner_width, inner_height), interpolation=cv2.INTER_LINEAR)
    else:
        resized = image
    boxed = np.full((size, size, 3), pad_value, dtype=np.uint8)
    boxed[top : top + inner_height, left : left + inner_width] = resized
    return boxed, scale, left, top


def preprocess(image: NDArray[np.uint8], size: int, *, pad_value: int = PAD_VALUE) -> Letterboxed:
    """Make the network's input of an upright RGB image (H x W x 3, uint8). Raises InvalidInput."""
    boxed, scale, left, top = letterbox(image, size, pad_value=pad_value)
    planes = np.ascontiguousarray(boxed.transpose(2, 0, 1), dtype=np.float32)
    planes /= np.float32(255)
    return Letterboxed(tensor=planes, scale=scale, pad_left=left, pad_top=top)


def to_source(
    boxes: NDArray[np.float32], letterboxed: Letterboxed, *, width: int, height: int
) -> NDArray[np.float32]:
    """Map boxes (n, 4: x1, y1, x2, y2) of the letterboxed image to the source, clipped to it."""
    offset = np.array([letterboxed.pad_left, letterboxed.pad_top] * 2, dtype=np.float32)
    limit = np.array([width, height] * 2, dtype=np.float32)
    source = (boxes - offset) / np.float32(letterboxed.scale)
    return np.asarray(np.clip(source, np.float32(0), limit), dtype=np.float32)


def to_letterboxed(boxes: NDArray[np.float32], letterboxed: Letterboxed) -> NDArray[np.float32]:
    """Map boxes (n, 4: x1, y1, x2, y2) of the source image to the letterboxed one."""
    offset = np.array([letterboxed.pad_left, letterboxed.pad_top] * 2, dtype=np.float32)
    return boxes * np.float32(letterboxed.scale) + offset


def decode(raw: NDArray[np.float32], *, confidence: float, every_class: bool = False) -> Detections:
    """Read the candidates in a raw output (4 + classes, anchors), best first, overlaps included.

    A candidate scores above `confidence`. An anchor gives one candidate, of its best class, or with
    `every_class` one per class that scores enough, as evaluation needs it. Equal scores keep the
    order of anchors, then of classes.
    """
    boxes, scores = raw[:4].T, raw[4:].T
    if every_class:
        anchors, classes = np.nonzero(scores > confidence)
    else:
        best = scores.argmax(axis=1)
        anchors = np.flatnonzero(scores[np.arange(len(scores)), best] > confidence)
        classes = best[anchors]
    found = scores[anchors, classes]
    order = np.argsort(-found, kind="stable")[:MAX_CANDIDATES]
    anchors, classes, found = anchors[order], classes[order], found[order]
    centre, half = boxes[anchors, :2], boxes[anchors, 2:] / np.float32(2)
    corners = np.concatenate((centre - half, centre + half), axis=1)
    return Detections(boxes=corners, scores=found, classes=classes.astype(np.int64))


def suppress(
    candidates: Detections, *, iou: float = NMS_IOU, max_detections: int = MAX_DETECTIONS
) -> Detections:
    """Keep, within each class, the better of two candidates that overlap by more than `iou`.

    `candidates` are ordered best first (as `decode` gives them), and so is the result, at most
    `max_detections` long.
    """
    kept: list[int] = []
    standing = np.ones(len(candidates), dtype=np.bool_)
    rivals = {kind: np.flatnonzero(candidates.classes == kind) for kind in set(candidates.classes)}
    for best, kind in enumerate(candidates.classes):
        if len(kept) == max_detections:
            break
        if not standing[best]:
            continue
        kept.append(best)
        later = rivals[kind][(rivals[kind] > best) & standing[rivals[kind]]]
        overlap = box_iou(candidates.boxes[best][None], candidates.boxes[later])[0]
        standing[later[overlap > iou]] = False
        rivals[kind] = later
    return Detections(
        boxes=candidates.boxes[kept],
        scores=candidates.scores[kept],
        classes=candidates.classes[kept],
    )
