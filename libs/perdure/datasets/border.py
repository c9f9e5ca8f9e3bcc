"""Boxes at the border: of those that reach past it, training would see what is inside.

A row is only read when its centre lies in the image and its sides are at most the image's. Then at
least half of each side is inside, and a quarter of the box. Where the centre lies outside, most of
the box does: that is `label.out-of-range`, and such a row is not read.
"""

from typing import Final

from perdure.datasets.annotation import Box
from perdure.datasets.findings import Fault, Severity

# Below this it is the arithmetic of floats: the box is left as it is written.
_ARITHMETIC: Final = 1e-9
# Rows with three decimals move an edge by up to 0.00075 (half a unit of the centre and a quarter of
# one of the size), which is half a pixel in an image of 640. Such boxes are cut without a word.
ROUNDING: Final = 1e-3


def clip_box(box: Box, line: str) -> tuple[Box, Fault | None]:
    """The part of a box inside the image, and the fault when more than rounding is outside."""
    index, x, y, width, height = box
    past = past_border(box)
    if past <= _ARITHMETIC:
        return box, None
    (x, width), (y, height) = _clip_side(x, width), _clip_side(y, height)
    inside = (index, x, y, width, height)
    if past <= ROUNDING:
        return inside, None
    rule, advice = "a box must lie inside of the image", "it was cut at the border"
    return inside, Fault(Severity.WARNING, "label.clipped", line, rule, advice)


def degenerate_box(value: str, *, dropped: bool) -> Fault:
    """The fault of a box without area: an error, or a note where the user has it left out."""
    rule = "a box must be wider and higher than 0"
    if dropped:
        return Fault(Severity.INFO, "label.degenerate-box", value, rule, "it was left out")
    advice = "correct the box or remove it; or leave such boxes out, with --drop-degenerate"
    return Fault(Severity.ERROR, "label.degenerate-box", value, rule, advice)


def _clip_side(centre: float, size: float) -> tuple[float, float]:
    """Centre and size of what is inside; as they are written when all of it is."""
    if max(size / 2 - centre, centre + size / 2 - 1) <= _ARITHMETIC:
        return centre, size
    low, high = max(centre - size / 2, 0.0), min(centre + size / 2, 1.0)
    return (low + high) / 2, high - low


def past_border(box: Box) -> float:
    """How far a box reaches past the border, as a share of the image; negative when inside."""
    _, x, y, width, height = box
    return max(width / 2 - x, height / 2 - y, x + width / 2 - 1, y + height / 2 - 1)
