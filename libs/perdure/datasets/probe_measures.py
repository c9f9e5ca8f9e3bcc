"""What the probes measure: arrays in, numbers out. All of it is exact enough to repeat anywhere."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.datasets.appearance import THUMBNAIL_PX, Appearance
from perdure.datasets.manifest import ManifestImage

# Overlap (IoU) from which on two boxes are around the same thing.
COINCIDENT_IOU: Final = 0.95
# In a grid of boxes many begin at the same place: each is compared with so many of the next ones.
_COINCIDENT_NEIGHBOURS: Final = 100
# Median absolute deviation of a normal distribution with the standard deviation 1.
_NORMAL_MAD: Final = 0.6745
# The same for the mean absolute deviation, which stands in where more than half of all are equal.
_NORMAL_MEAN_AD: Final = 0.7979

# A picture is unlike the rest when not even so many of the others look like it: of a set with
# several scenes, each scene is its own company.
_COMPANY: Final = 5
# Each image is compared with at most so many others, evenly spread over the set.
_REFERENCES: Final = 2_000
_CHUNK: Final = 2_000  # images that are compared together: 16 MB of distances
_LEVELS: Final = 8  # of each colour's histogram
_FEATURE_UNIT: Final = 255.0

Floats = NDArray[np.float64]


class Boxes(NamedTuple):
    """All boxes of a data set, one a row; sizes as shares of the image unless they say `px`."""

    image: NDArray[np.int64]  # its index in the manifest
    number: NDArray[np.int64]  # of the box within its image
    label: NDArray[np.int64]
    left: Floats
    top: Floats
    width: Floats
    height: Floats
    image_width_px: Floats
    image_height_px: Floats

    @property
    def area(self) -> Floats:
        """Shares of the images' areas."""
        return self.width * self.height

    @property
    def aspect(self) -> Floats:
        """Width through height, in pixels."""
        height_px = self.height * self.image_height_px
        return self.width * self.image_width_px / np.maximum(height_px, np.finfo(np.float64).tiny)

    def shorter_side_px(self, longer_side_px: int) -> Floats:
        """The shorter sides once each image's longer side is scaled to `longer_side_px`."""
        scale = longer_side_px / np.maximum(self.image_width_px, self.image_height_px)
        sides = (self.width * self.image_width_px, self.height * self.image_height_px)
        return np.minimum(*sides) * scale


def boxes_of(images: Sequence[ManifestImage]) -> Boxes:
    """The boxes of the images, in order."""
    counts = [len(image.boxes) for image in images]
    rows = np.array([box for image in images for box in image.boxes], np.float64).reshape(-1, 5)
    sizes = np.array([(image.width, image.height) for image in images], np.float64).reshape(-1, 2)
    index = np.repeat(np.arange(len(images)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts).astype(np.int64)
    label, x, y, width, height = rows.T
    return Boxes(
        image=index,
        number=np.arange(len(rows)) - first,
        label=label.astype(np.int64),
        left=x - width / 2,
        top=y - height / 2,
        width=width,
        height=height,
        image_width_px=sizes[index, 0],
        image_height_px=sizes[index, 1],
    )


def coincident(boxes: Boxes) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Pairs of boxes of one image that nearly coincide: rows of either, and their IoU.

    The intersection of such a pair is at least COINCIDENT_IOU of either box, so their left edges
    differ by at most the rest of a width: only boxes that begin near to one another are compared.
    """
    order = np.lexsort((boxes.left, boxes.image))
    found: list[tuple[Any, ...]] = []
    for step in range(1, _COINCIDENT_NEIGHBOURS + 1):
        one, other = order[:-step], order[step:]
        reach = (1 - COINCIDENT_IOU) * boxes.width[one]
        near = (boxes.image[one] == boxes.image[other]) & (
            boxes.left[other] - boxes.left[one] <= reach
        )
        if not near.any():
            break
        one, other = one[near], other[near]
        iou = _iou(boxes, one, other)
        same = iou > COINCIDENT_IOU
        found.append((one[same], other[same], iou[same]))
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, np.empty(0, np.float64)
    one, other, iou = (np.concatenate(part) for part in zip(*found, strict=True))
    return np.minimum(one, other), np.maximum(one, other), iou


def _iou(boxes: Boxes, one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
    def shared(low: Floats, size: Floats) -> Floats:
        ends = np.minimum(low[one] + size[one], low[other] + size[other])
        return np.asarray(np.maximum(ends - np.maximum(low[one], low[other]), 0))

    inside = shared(boxes.left, boxes.width) * shared(boxes.top, boxes.height)
    union = boxes.area[one] + boxes.area[other] - inside
    return np.asarray(inside / np.maximum(union, np.finfo(np.float64).tiny))


def deviations(values: Floats) -> Floats:
    """How far each value is from the median, in robust standard deviations, with its sign.

    The modified z-score of Iglewicz and Hoaglin (1993); all 0 where all values are equal.
    """
    if not len(values):
        return values
    away = values - np.median(values)
    scale = float(np.median(np.abs(away))) / _NORMAL_MAD
    if scale == 0:
        scale = float(np.mean(np.abs(away))) / _NORMAL_MEAN_AD
    return np.asarray(away / scale) if scale else np.zeros_like(values)


def strangeness(appearances: Sequence[Appearance]) -> Floats:
    """How little each image looks like the others: the distance to its fifth nearest, 0..2.

    Compared are histograms of colours and of edges' directions, by Hellinger's distance.
    """
    count = len(appearances)
    if count <= _COMPANY:
        return np.zeros(count)
    features = np.concatenate(
        [_features(appearances[at : at + _CHUNK]) for at in range(0, count, _CHUNK)]
    )
    chosen = np.unique(np.linspace(0, count - 1, min(count, _REFERENCES)).astype(np.int64))
    references = features[chosen]
    lengths, reference_lengths = (np.square(part).sum(axis=1) for part in (features, references))
    found = []
    for start in range(0, count, _CHUNK):
        part = slice(start, min(start + _CHUNK, count))
        # All numbers here are whole and below 2^24: float32 holds them exactly, in any order.
        squares = features[part] @ references.T
        squares *= -2
        squares += lengths[part, None]
        squares += reference_lengths
        squares[np.arange(part.start, part.stop)[:, None] == chosen] = np.inf
        squares.partition(_COMPANY - 1, axis=1)
        found.append(squares[:, _COMPANY - 1].copy())
    return np.sqrt(np.concatenate(found).astype(np.float64)) / _FEATURE_UNIT


def _features(appearances: Sequence[Appearance]) -> NDArray[np.float32]:
    """Rows of whole numbers: square roots of histograms, whose distance is Hellinger's."""
    pixels = np.stack([appearance.pixels() for appearance in appearances]).astype(np.int32)
    parts = [_level_shares(pixels[..., colour]) for colour in range(3)]
    luma = pixels @ np.array([299, 587, 114])
    across = (luma[:, 1:-1, 2:] - luma[:, 1:-1, :-2]).reshape(len(pixels), -1)
    down = (luma[:, 2:, 1:-1] - luma[:, :-2, 1:-1]).reshape(len(pixels), -1)
    octant = (across < 0) + 2 * (down < 0) + 4 * (np.abs(across) < np.abs(down))
    strength = (np.abs(across) + np.abs(down)).astype(np.float64)
    edges = np.stack([(strength * (octant == number)).sum(axis=1) for number in range(8)], axis=1)
    # Of a full black-white edge in each pixel this is 1: flat pictures have little of all edges.
    edges /= 1000.0 * 255 * (THUMBNAIL_PX - 2) ** 2
    parts.append(edges)
    shares = np.concatenate(parts, axis=1)
    return np.rint(np.sqrt(shares) * _FEATURE_UNIT).astype(np.float32)


def _level_shares(values: NDArray[np.int32]) -> Floats:
    """A colour's histogram; a value between two levels counts for both, so nothing jumps.

    The three colours together make 1.
    """
    rows = values.reshape(len(values), -1)
    position = rows * ((_LEVELS - 1) / 255)
    levels = [np.maximum(1 - np.abs(position - level), 0).sum(axis=1) for level in range(_LEVELS)]
    return np.stack(levels, axis=1) / (3 * rows.shape[1])
