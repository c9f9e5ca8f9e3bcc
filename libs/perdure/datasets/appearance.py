"""How an image looks, in few bytes: enough to find the same picture resized or encoded again."""

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

_WEIGHTS: Final = (1 << np.arange(_FREQUENCIES**2, dtype=np.uint64)).astype(np.uint64)
# The rows of a DCT-II for the lowest frequencies, not scaled: only signs against a median count.
_COSINES: Final = np.cos(
    np.pi / _HASHED_PX * np.outer(np.arange(_FREQUENCIES), np.arange(_HASHED_PX) + 0.5)
).astype(np.float32)


@dataclass(frozen=True)
class Appearance:
    """A picture's perceptual hash, 64 bits, and its thumbnail, RGB, THUMBNAIL_PX squared."""

    phash: int
    thumbnail: bytes

    def pixels(self) -> NDArray[np.uint8]:
        """The thumbnail: uint8, THUMBNAIL_PX x THUMBNAIL_PX x 3."""
        return np.frombuffer(self.thumbnail, np.uint8).reshape(THUMBNAIL_PX, THUMBNAIL_PX, 3)


def appearance_of(pixels: Pixels) -> Appearance:
    """What remains of an image when it is made small: uint8, height x width x 3, RGB, upright."""
    rows, columns = (_sampled(side) for side in pixels.shape[:2])
    sampled = Image.fromarray(pixels[rows[:, None], columns])
    small = sampled.reduce(_SAMPLED_PX // _HASHED_PX)
    gray = np.asarray(small.convert("L"), np.float32)
    low = (_COSINES @ gray @ _COSINES.T).ravel()
    # The first is the mean brightness: it says nothing of the picture, and would shift the median.
    bits = low > np.median(low[1:])
    thumbnail = small.reduce(_HASHED_PX // THUMBNAIL_PX)
    return Appearance(int(_WEIGHTS[bits].sum(dtype=np.uint64)), thumbnail.tobytes())


def _sampled(side_px: int) -> NDArray[np.int64]:
    """Places along a side, evenly spread."""
    return ((np.arange(_SAMPLED_PX) + 0.5) * side_px / _SAMPLED_PX).astype(np.int64)
