"""How an image looks, in few bytes: enough to find the same picture resized or encoded again."""

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from perdure.datasets.imaging import Pixels

THUMBNAIL_PX: Final = 16
# pHash (Zauner 2010): the signs of the 8 x 8 lowest frequencies of a 32 x 32 picture.
_HASHED_PX: Final = 32
_FREQUENCIES: Final = 8
_WEIGHTS: Final = (1 << np.arange(64, dtype=np.uint64)).astype(np.uint64)


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
    small = cv2.resize(pixels, (_HASHED_PX, _HASHED_PX), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32)
    low = cv2.dct(gray)[:_FREQUENCIES, :_FREQUENCIES].ravel()
    # The first is the mean brightness: it says nothing of the picture, and would shift the median.
    bits = low > np.median(low[1:])
    thumbnail = cv2.resize(small, (THUMBNAIL_PX, THUMBNAIL_PX), interpolation=cv2.INTER_AREA)
    return Appearance(int(_WEIGHTS[bits].sum(dtype=np.uint64)), thumbnail.tobytes())
