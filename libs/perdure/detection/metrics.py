"""Mean average precision of detections against labels.

Matching: detections of an image, best score first, each take the label of their class they overlap
most among those not yet taken, if the overlap reaches the threshold. Done apart for each of COCO's
thresholds .50, .55, ... .95.

Average precision: area under the precision-recall curve after its monotone envelope, interpolated
at 101 recalls and integrated with the trapezoidal rule, as ultralytics.utils.metrics.compute_ap
does, so that figures can be compared with those of `yolo val`. (pycocotools averages the 101 values
instead, which differs in the third decimal.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perdure.detection.boxes import Boxes, box_iou

IOU_THRESHOLDS: Final = np.linspace(0.5, 0.95, 10)
_RECALLS: Final = np.linspace(0.0, 1.0, 101)

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Matched:
    """One image's detections (n) and labels (m), compared."""

    correct: NDArray[np.bool_]  # (n, thresholds): the detection found a label at that threshold
    scores: Floats  # (n,)
    classes: Integers  # (n,)
    label_classes: (
        Integers  # (m,); empty for an image without labels, whose detections are all wrong
    )


@dataclass(frozen=True)
class ClassScore:
    """How well one class is found; None when it has no label that could be found."""

    labels: int
    ap50: float | None
    ap50_95: float | None


@dataclass(frozen=True)
class Score:
    """How well a detector does on a set of images; the means are over the classes that have labels.

    0 when no class has: nothing was there to be found, so nothing was shown.
    """

    images: int
    map50: float
    map50_95: float
    by_class: tuple[ClassScore, ...]


def match(
    boxes: Boxes, classes: Integers, label_boxes: Boxes, label_classes: Integers
) -> NDArray[np.bool_]:
    """Say which of an image's detections, best score first, are correct: shape (n, thresholds)."""
    correct = np.zeros((len(boxes), len(IOU_THRESHOLDS)), dtype=np.bool_)
    if not len(boxes) or not len(label_boxes):
        return correct
    overlaps = np.where(
        label_classes[:, None] == classes[None, :], box_iou(label_boxes, boxes), 0.0
    )
    columns = np.arange(len(IOU_THRESHOLDS))
    taken = np.zeros((len(label_boxes), len(IOU_THRESHOLDS)), dtype=np.bool_)
    for index in np.flatnonzero(overlaps.max(axis=0) >= IOU_THRESHOLDS[0]):
        free = np.where(taken, 0.0, overlaps[:, index, None])
        best = free.argmax(axis=0)
        correct[index] = free[best, columns] >= IOU_THRESHOLDS
        taken[best, columns] |= correct[index]
    return correct


def average_precision(correct: NDArray[np.bool_], labels: int) -> float:
    """Average precision of one class at one threshold.

    `correct` holds all its detections, of all images, best score first; `labels` > 0 is how many
    there are to find.
    """
    assert labels > 0, "a class without labels has no average precision"
    if not len(correct):
        return 0.0
    found = correct.cumsum()
    recall = found / labels
    precision = found / np.arange(1, len(correct) + 1)
    # From recall 0 at precision 1; past the last recall reached, precision falls to 0.
    recall = np.concatenate(([0.0], recall, [recall[-1], 1.0]))
    precision = np.concatenate(([1.0], precision, [0.0, 0.0]))
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.trapezoid(np.interp(_RECALLS, recall, envelope), _RECALLS))


def score(images: Sequence[Matched], classes: int) -> Score:
    """Compute the score over all `images` of a detector that knows `classes` classes."""
    thresholds = len(IOU_THRESHOLDS)
    correct = np.concatenate(
        [image.correct for image in images] or [np.zeros((0, thresholds), bool)]
    )
    scores = np.concatenate([image.scores for image in images] or [np.zeros(0)])
    found = np.concatenate([image.classes for image in images] or [np.zeros(0, int)])
    labels = np.concatenate([image.label_classes for image in images] or [np.zeros(0, int)])
    order = np.argsort(-scores, kind="stable")
    correct, found = correct[order], found[order]
    by_class = tuple(
        _class_score(correct[found == index], int((labels == index).sum()))
        for index in range(classes)
    )
    return Score(
        images=len(images),
        map50=_mean([one.ap50 for one in by_class if one.ap50 is not None]),
        map50_95=_mean([one.ap50_95 for one in by_class if one.ap50_95 is not None]),
        by_class=by_class,
    )


def _class_score(correct: NDArray[np.bool_], labels: int) -> ClassScore:
    if not labels:
        return ClassScore(labels=0, ap50=None, ap50_95=None)
    precisions = [average_precision(column, labels) for column in correct.T]
    return ClassScore(labels=labels, ap50=precisions[0], ap50_95=_mean(precisions))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
