"""Boxes that are valid numbers and mean something else: corners, or a corner and a size."""

from collections.abc import Sequence
from typing import Final

from perdure.datasets.annotation import Box
from perdure.datasets.border import past_border
from perdure.datasets.findings import Findings

# Of fewer boxes nothing can be concluded.
_MIN_BOXES: Final = 20
# Boxes that reach past the border by less were rounded, or drawn so.
_TOLERANCE: Final = 0.01
# Read as centres, about two of three corner pairs leave the image; of boxes that are given by their
# upper left corner, only those do that are near the left or upper border.
_MIN_SHARE_OF_CORNERS: Final = 0.5
_MIN_SHARE_OF_UPPER_LEFTS: Final = 0.05


def check_box_format(boxes: Sequence[Box], file: str, findings: Findings) -> bool:
    """Record an error when many boxes leave the image as they are read, and none otherwise.

    Returns whether there was one. `boxes` are as written, not yet cut at the border.
    """
    if len(boxes) < _MIN_BOXES:
        return False
    leaving = sum(past_border(box) > _TOLERANCE for box in boxes) / len(boxes)
    if leaving >= _MIN_SHARE_OF_CORNERS and all(
        width > x and height > y for _, x, y, width, height in boxes
    ):
        meaning = "left, top, right, bottom"
    elif leaving >= _MIN_SHARE_OF_UPPER_LEFTS and all(
        x + width <= 1 + 1e-6 and y + height <= 1 + 1e-6 for _, x, y, width, height in boxes
    ):
        meaning = "left, top, width, height"
    else:
        return False
    findings.error(
        "label.box-format-suspect",
        file,
        f"{leaving:.0%} of {len(boxes)} boxes leave the image",
        "a row must be class, centre-x, centre-y, width, height; "
        f"read as {meaning} no box leaves the image",
        "write centres and sizes: export the labels again as YOLO, or convert them",
    )
    return True
