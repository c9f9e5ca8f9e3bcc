"""How an image looks, in few bytes: enough to find the same picture resized or encoded again, and
those that are dark, flat or blurred.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perdure.datasets.imaging import Pixels

THUMBNAIL_PX: Final = 16
# pHash (Zauner 2010): the signs of the 8 x 8 lowest frequencies of a 32 x 32 picture.
_HASHED_PX: Final = 32
_FREQUENCIES: Final = 8
# Averaging a large picture whole takes half as long as decoding it. The mean of some of the pixels
# that fall on one of the small picture is as good.
_SAMPLED_PX: Final = 128

_DECIMALS: Final = 3  # of the measures: what follows depends on the machine

# The scale at which sharpness is measured: the longer side that training uses by default. Finer
# detail than that is lost there anyway. A smaller image is measured as it is.
SHARPNESS_SIDE_PX: Final = 640
# Sharpness is measured in a grid of patches: the whole image would take longer than its decoding.
_PATCHES: Final = 6
_PATCH_PX: Final = 16

_WEIGHTS: Final = (1 << np.arange(_FREQUENCIES**2, dtype=np.uint64)).astype(np.uint64)
# The rows of a DCT-II for the lowest frequencies, not scaled: only signs against a median count.
_COSINES: Final = np.cos(
    np.pi / _HASHED_PX * np.outer(np.arange(_FREQUENCIES), np.arange(_HASHED_PX) + 0.5)
).astype(np.float32)


@dataclass(frozen=True)
class Appearance:
    """A picture's perceptual hash, 64 bits, and its thumbnail, RGB, THUMBNAIL_PX squared.

    Luma (ITU-R BT.601) is 0..255: `brightness` is its mean, `contrast` its standard deviation once
    the picture is made small. `sharpness` is the variance of its Laplacian, at SHARPNESS_SIDE_PX.
    """

    phash: int
    thumbnail: bytes
    brightness: float
    contrast: float
    sharpness: float

    def pixels(self) -> NDArray[np.uint8]:
        """The thumbnail: uint8, THUMBNAIL_PX x THUMBNAIL_PX x 3."""
        return np.frombuffer(self.thumbnail, np.uint8).reshape(THUMBNAIL_PX, THUMBNAIL_PX, 3)


def appearance_of(pixels: Pixels) -> Appearance:
    """What remains of an image when it is made small: uint8, height x width x 3, RGB, upright."""
    rows, columns = (_sampled(side) for side in pixels.shape[:2])
    # A third of what indexing by rows and columns takes.
    places = rows[:, None] * pixels.shape[1] + columns
    sampled = Image.fromarray(np.take(pixels.reshape(-1, 3), places, axis=0))
    small = sampled.reduce(_SAMPLED_PX // _HASHED_PX)
    gray = np.asarray(small.convert("L"), np.float32)
    low = (_COSINES @ gray @ _COSINES.T).ravel()
    # The first is the mean brightness: it says nothing of the picture, and would shift the median.
    bits = low > np.median(low[1:])
    return Appearance(
        phash=int(_WEIGHTS[bits].sum(dtype=np.uint64)),
        thumbnail=small.reduce(_HASHED_PX // THUMBNAIL_PX).tobytes(),
        brightness=round(float(gray.mean(dtype=np.float64)), _DECIMALS),
        contrast=round(float(gray.std(dtype=np.float64)), _DECIMALS),
        sharpness=round(_sharpness(pixels), _DECIMALS),
    )


def _sampled(side_px: int) -> NDArray[np.int64]:
    """Places along a side, evenly spread."""
    return ((np.arange(_SAMPLED_PX) + 0.5) * side_px / _SAMPLED_PX).astype(np.int64)


def _sharpness(pixels: Pixels) -> float:
    """The variance of the Laplacian (4 neighbours) of the luma (Pech-Pacheco et al. 2000)."""
    height, width = pixels.shape[:2]
    side = min(round(max(height, width, SHARPNESS_SIDE_PX) / SHARPNESS_SIDE_PX * _PATCH_PX), width)
    side = min(side, height)
    if side < 3:  # no pixel has a neighbour on all sides
        return 0.0
    tops, lefts = _spread(height - side), _spread(width - side)
    strips = (
        np.concatenate([pixels[top : top + side, left : left + side] for left in lefts], axis=1)
        for top in tops
    )
    picture = Image.fromarray(np.concatenate(list(strips)))  # the patches, side by side
    scaled = min(side, _PATCH_PX)
    small = picture.convert("L").resize(
        (len(lefts) * scaled, len(tops) * scaled), Image.Resampling.BOX
    )
    luma = np.asarray(small, np.int16).reshape(len(tops), scaled, len(lefts), scaled)
    across = luma[:, 1:-1, :, :-2] + luma[:, 1:-1, :, 2:]
    down = luma[:, :-2, :, 1:-1] + luma[:, 2:, :, 1:-1]
    return float((4 * luma[:, 1:-1, :, 1:-1] - across - down).var(dtype=np.float64))


def _spread(last: int) -> list[int]:
    """At most _PATCHES of the places 0..last, evenly spread, each once."""
    return sorted({last * number // (_PATCHES - 1) for number in range(_PATCHES)})
