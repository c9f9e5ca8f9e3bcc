"""Near-duplicates: the same picture resized, re-encoded or a little brighter, as two files.

Perceptual hashes that differ in at most MAX_DISTANCE bits make a pair a candidate; the thumbnails
decide. The bits are cut into one band more than may differ, so that of any such pair one band is
equal: only images with an equal band are compared, which keeps 100,000 images feasible.

Measured on 364 microscope images of one kind (BCCD): copies resized to 0.5-2 times, encoded with
quality 30-95, or 15 % brighter had at most 4 bits of distance and a correlation of at least 0.996;
of two different fields the nearest had 14 bits and 0.78. Cut-outs and mirror images are not found.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perdure.datasets.annotation import SplitName
from perdure.datasets.appearance import Appearance
from perdure.datasets.findings import Findings

MAX_DISTANCE: Final = 4  # bits of 64
MIN_CORRELATION: Final = 0.95  # of the thumbnails, brightness and contrast taken out
# Of a picture with less contrast than this (standard deviation, of 255) nothing can be said: all
# white pages look alike.
MIN_CONTRAST: Final = 4.0
# How far a pixel of a thumbnail may be off (of 255), once brightness and contrast are alike. An
# object that only one of two frames of a fixed camera has is farther off, though all else agrees.
MAX_DIFFERENCE: Final = 14.0
# From here on a pixel of a thumbnail may hold clipped ones: a brighter copy is bound to differ.
_CLIPPED_FROM: Final = 225
# In a set of one scene all images may share a band: each is compared with so many of the next ones,
# in the order of their hashes, and the work stays linear.
_NEIGHBOURS: Final = 30
# Candidates that are looked at together: 60 MB of numbers.
_CHUNK: Final = 10_000

# Of a validation image, so many pairs are named: more do not say more.
_NAMED_PAIRS: Final = 3

_BANDS: Final = ((0, 13), (13, 13), (26, 13), (39, 13), (52, 12))  # first bit, bits
assert len(_BANDS) == MAX_DISTANCE + 1


class NearDuplicate(NamedTuple):
    """Two images that look alike and are not the same bytes; `first` < `second`."""

    first: str
    second: str
    distance: int  # bits in which the perceptual hashes differ


def near_duplicates(
    appearances: Mapping[str, Appearance], digests: Mapping[str, str]
) -> tuple[NearDuplicate, ...]:
    """All pairs of images that look alike, by path; byte-identical ones (`digests`) are none."""
    paths = sorted(appearances)
    if len(paths) < 2:
        return ()
    hashes = np.array([appearances[path].phash for path in paths], np.uint64)
    left, right = _candidates(hashes)
    pixels = np.stack([appearances[path].pixels().ravel() for path in paths])
    found = []
    for start in range(0, len(left), _CHUNK):
        one, other = left[start : start + _CHUNK], right[start : start + _CHUNK]
        alike = _look_alike(pixels[one], pixels[other])
        for first, second in zip(one[alike].tolist(), other[alike].tolist(), strict=True):
            if digests[paths[first]] != digests[paths[second]]:
                distance = int(hashes[first] ^ hashes[second]).bit_count()
                found.append(NearDuplicate(paths[first], paths[second], distance))
    return tuple(sorted(found))


def report_crossing(
    pairs: Iterable[NearDuplicate], sides: Mapping[str, SplitName | None], findings: Findings
) -> None:
    """Record the pairs of which one image trains and the other validates.

    `sides` has the split of each image; None trains, as the split of a data set has it.
    """
    crossing = [pair for pair in pairs if _crosses(pair, sides)]
    tainted = {
        path for pair in crossing for path in (pair.first, pair.second) if sides[path] == "val"
    }
    validating = sum(side == "val" for side in sides.values())
    named: Counter[str] = Counter()
    for pair in crossing:
        val, train = pair.first, pair.second
        if sides[val] != "val":
            val, train = train, val
        named[val] += 1
        if named[val] > _NAMED_PAIRS:
            continue
        share = f"{len(tainted)} of {validating} validation images"
        findings.warning(
            "split.near-duplicate",
            val,
            train,
            f"validation images must be new to the model; {share} are not",
            "put both images into one split, or remove one of them",
        )


def _crosses(pair: NearDuplicate, sides: Mapping[str, SplitName | None]) -> bool:
    if pair.first not in sides or pair.second not in sides:
        return False
    return (sides[pair.first] == "val") != (sides[pair.second] == "val")


def _candidates(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the pairs with at most MAX_DISTANCE bits between them, each pair once."""
    found: list[NDArray[np.int64]] = []
    for first_bit, bits in _BANDS:
        band = (hashes >> np.uint64(first_bit)) & np.uint64((1 << bits) - 1)
        order = np.lexsort((hashes, band))
        of_band = band[order]
        for step in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
            same = of_band[:-step] == of_band[step:]
            if not same.any():
                break
            one, other = order[:-step][same], order[step:][same]
            near = np.bitwise_count(hashes[one] ^ hashes[other]) <= MAX_DISTANCE
            found.append(np.stack([one[near], other[near]], axis=1))
    pairs = np.sort(np.concatenate(found) if found else np.empty((0, 2), np.int64), axis=1)
    unique = np.unique(pairs, axis=0)
    return unique[:, 0], unique[:, 1]


def _look_alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which thumbnails of `one` look like those of `other`, each of them a row."""
    (first, first_length), (second, second_length) = _normalised(one), _normalised(other)
    alike = np.einsum("ij,ij->i", first, second) >= MIN_CORRELATION
    lower = np.minimum(first_length, second_length)
    visible = lower >= MIN_CONTRAST * np.sqrt(one.shape[1])
    unclipped = np.maximum(one, other) < _CLIPPED_FROM
    difference = (np.abs(first - second) * unclipped).max(axis=1) * lower
    near = difference <= MAX_DIFFERENCE
    return np.asarray(alike & visible & near)


def _normalised(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of length 1, each colour with the mean 0, and their lengths before.

    The mean colour is taken out: a wall has no contrast, whatever its colour.
    """
    colours = pixels.reshape(len(pixels), -1, 3).astype(np.float32)
    colours -= colours.mean(axis=1, keepdims=True)
    rows = colours.reshape(len(pixels), -1)
    lengths = np.linalg.norm(rows, axis=1)
    rows /= np.maximum(lengths, 1e-6)[:, None]
    return rows, lengths
