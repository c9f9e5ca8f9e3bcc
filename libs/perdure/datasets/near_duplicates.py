"""Near-duplicates: the same picture resized, re-encoded or a little brighter, as two files.

Perceptual hashes that differ in at most MAX_DISTANCE bits make a pair a candidate; the thumbnails
decide. The bits are cut into one band more than may differ, so that of any such pair one band is
equal: only images with an equal band are compared, which keeps 100,000 images feasible.

Measured on 364 microscope images of one kind (BCCD): copies resized to 0.5-2 times, encoded with
quality 30-95, or 15 % brighter had at most 4 bits of distance and a correlation of at least 0.996;
of two different fields the nearest had 14 bits and 0.78. Cut-outs and mirror images are not found.
"""

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
# In a set of one scene all images may share a band: each is compared with so many of the next ones,
# in the order of their hashes, and the work stays linear.
_NEIGHBOURS: Final = 30
# Candidates that are looked at together: 60 MB of numbers.
_CHUNK: Final = 10_000

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
    for pair in crossing:
        val, train = pair.first, pair.second
        if sides[val] != "val":
            val, train = train, val
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
    (first, first_contrast), (second, second_contrast) = _normalised(one), _normalised(other)
    alike = np.einsum("ij,ij->i", first, second) >= MIN_CORRELATION
    visible = np.minimum(first_contrast, second_contrast) >= MIN_CONTRAST
    return np.asarray(alike & visible)


def _normalised(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of mean 0 and length 1, and their contrasts before."""
    rows = pixels.astype(np.float32)
    rows -= rows.mean(axis=1, keepdims=True)
    contrasts = rows.std(axis=1)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
    return rows, contrasts
