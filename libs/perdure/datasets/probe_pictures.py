"""Small pictures of images with their boxes drawn, for people to judge at a glance."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageDraw

from perdure.datasets.annotation import Box
from perdure.datasets.imaging import decode

# Four of them fit beside one another on a laptop's screen, and take 10 kB each.
PICTURE_PX: Final = 240
ICON_PX: Final = 88
_JPEG_QUALITY: Final = 75
# A box of less than this part of the image is shown enlarged ...
_SMALL_PART: Final = 1 / 4
# ... with so many times its size around it, so that one sees what it is on.
_SURROUNDINGS: Final = 4
# So many pixels of the image are shown at least: fewer are no picture.
_MIN_WINDOW_PX: Final = 48
# More would cover the image; those that are meant are always drawn.
_MAX_OTHER_BOXES: Final = 300
# A smaller frame would not be seen.
_MIN_FRAME_PX: Final = 5

_MARKED: Final = (255, 176, 0)
_OTHER: Final = (120, 200, 255)
_CASING: Final = (0, 0, 0)

_Window = tuple[float, float, float, float]  # left, top, right, bottom in pixels


def picture(
    file: Path, boxes: Sequence[Box], marked: Sequence[int], side_px: int = PICTURE_PX
) -> bytes:
    """A JPEG of at most `side_px` on either side, with the boxes; those in `marked` stand out.

    When the first of these is small, the picture shows its surroundings only. Raises
    InvalidDataset when the file cannot be decoded, and OSError when it cannot be read.
    """
    pixels = decode(file)
    height, width = pixels.shape[:2]
    window = (0.0, 0.0, float(width), float(height))
    if marked:
        window = _around(boxes[marked[0]], width, height)
    left, top, right, bottom = (round(edge) for edge in window)
    image = Image.fromarray(np.ascontiguousarray(pixels[top:bottom, left:right]))
    scale = side_px / max(image.size)
    if scale < 1 or marked:  # a small image is shown as it is
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(size, Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC)
    else:
        scale = 1.0
    draw = ImageDraw.Draw(image)
    chosen = set(marked)
    others = [number for number in range(len(boxes)) if number not in chosen]
    for number in others[:_MAX_OTHER_BOXES]:
        frame = _frame(boxes[number], width, height, (left, top, right, bottom), scale)
        draw.rectangle(frame, outline=_OTHER)
    for number in marked:
        frame = _frame(boxes[number], width, height, (left, top, right, bottom), scale)
        draw.rectangle(_grown(frame, 1), outline=_CASING, width=4)
        draw.rectangle(frame, outline=_MARKED, width=2)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def data_uri(jpeg: bytes) -> str:
    """A JPEG as a URL that holds it."""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii")


def _around(box: Box, width: int, height: int) -> _Window:
    """The part of the image that shows the box: all of it, or a square around a small one."""
    _, x, y, box_width, box_height = box
    if max(box_width, box_height) >= _SMALL_PART:
        return (0.0, 0.0, float(width), float(height))
    side = max(box_width * width, box_height * height) * _SURROUNDINGS
    side = max(side, _MIN_WINDOW_PX)
    across, down = min(side, width), min(side, height)
    left = min(max(x * width - across / 2, 0), width - across)
    top = min(max(y * height - down / 2, 0), height - down)
    return (left, top, left + across, top + down)


def _frame(box: Box, width: int, height: int, window: _Window, scale: float) -> _Window:
    """Where a box is in the picture; tiny ones are drawn larger."""
    _, x, y, box_width, box_height = box
    left, top = window[:2]
    centre = ((x * width - left) * scale, (y * height - top) * scale)
    half = tuple(
        max(part * side * scale, _MIN_FRAME_PX) / 2
        for part, side in ((box_width, width), (box_height, height))
    )
    return (centre[0] - half[0], centre[1] - half[1], centre[0] + half[0], centre[1] + half[1])


def _grown(frame: _Window, by: float) -> _Window:
    left, top, right, bottom = frame
    return (left - by, top - by, right + by, bottom + by)
