"""Arithmetic of boxes: arrays (n, 4) of x1, y1, x2, y2 in pixels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.floating[Any]]


def box_iou(first: Boxes, second: Boxes) -> Boxes:
    """Intersection over union of each of n boxes with each of m boxes, shape (n, m).

    A box without an area overlaps nothing: its row or column is 0.
    """
    shared = _shared(first, second, 0) * _shared(first, second, 1)
    total = _areas(first)[:, None] + _areas(second)[None, :] - shared
    return np.asarray(np.divide(shared, total, out=np.zeros_like(shared), where=total > 0))


def _shared(first: Boxes, second: Boxes, axis: int) -> Boxes:
    """Return the length that each pair shares along x (`axis` 0) or y (1), shape (n, m)."""
    start = np.maximum(first[:, None, axis], second[None, :, axis])
    end = np.minimum(first[:, None, axis + 2], second[None, :, axis + 2])
    return np.asarray(np.maximum(end - start, 0))


def _areas(boxes: Boxes) -> Boxes:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return np.asarray(sides[:, 0] * sides[:, 1])
