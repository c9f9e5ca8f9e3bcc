"""The shapes on an image of CVAT, and the box around each.

Lines, points and skeletons have no area that stands for an object: they are left out, with a
warning. A tag is of the whole image and no shape: it is passed over.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from perdure.datasets.findings import Fault, Severity
from perdure.datasets.formats.by_name import NamedBox
from perdure.datasets.formats.numbers import coordinate_in_text
from perdure.datasets.xml_file import Element

_NOT_BOXES: Final = frozenset({"points", "polyline", "skeleton"})
_OF_THE_IMAGE: Final = frozenset({"tag"})
_MIN_POINTS: Final = 3
_FULL_TURN_DEGREES: Final = 360.0


class _Envelope(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Shape:
    """A shape as read: its box, None where it has none, and what there is to say of it."""

    class_name: str
    box: NamedBox | None
    fault: Fault | None  # an error only where there is no box


class _Refused(Exception):
    """Carries the fault out of the reading of numbers; it ends in `read_shape`."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.code)
        self.fault = fault


def read_shape(element: Element) -> Shape | None:
    """Read a child of <image>; None for one that is no shape."""
    kind = element.tag
    if kind in _OF_THE_IMAGE:
        return None
    class_name = element.attributes.get("label", "").strip()
    if kind in _NOT_BOXES:
        return Shape(class_name, None, _not_a_box(kind))
    envelope_of = _ENVELOPES.get(kind)
    if envelope_of is None:
        return Shape(class_name, None, _unknown(kind))
    if not class_name:
        rule, advice = "a shape must have a label", "label it, or remove it"
        problem = "a shape has no class"
        return Shape("", None, _error("classes.names", f"<{kind}>", rule, advice, problem))
    try:
        envelope, note = envelope_of(element)
    except _Refused as refused:
        return Shape(class_name, None, refused.fault)
    return Shape(class_name, NamedBox(class_name, *envelope, element.line), note)


def _box(element: Element) -> tuple[_Envelope, Fault | None]:
    left, top = _number(element, "xtl"), _number(element, "ytl")
    right, bottom = _number(element, "xbr"), _number(element, "ybr")
    degrees = _angle(element)
    upright = _Envelope(left, top, right, bottom)
    # A box without area is to be found as such, and not to get one by being turned.
    if degrees == 0 or right <= left or bottom <= top:
        return upright, None
    rule, advice = "a box must be upright", "the smallest upright box around it was taken"
    value = f"{degrees:g} degrees"
    note = Fault(Severity.WARNING, "label.rotated", value, rule, advice)
    cos, sin = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
    half_width, half_height = (right - left) / 2, (bottom - top) / 2
    return _around(
        (left + right) / 2,
        (top + bottom) / 2,
        half_width * cos + half_height * sin,
        half_width * sin + half_height * cos,
    ), note


def _ellipse(element: Element) -> tuple[_Envelope, Fault | None]:
    x, y = _number(element, "cx"), _number(element, "cy")
    radius_x, radius_y = _number(element, "rx"), _number(element, "ry")
    angle = math.radians(_angle(element))
    cos, sin = math.cos(angle), math.sin(angle)
    half_width = math.hypot(radius_x * cos, radius_y * sin)
    half_height = math.hypot(radius_x * sin, radius_y * cos)
    return _around(x, y, half_width, half_height), _note("ellipse")


def _mask(element: Element) -> tuple[_Envelope, Fault | None]:
    """A mask says which pixels it lies in: the first, and how many."""
    left, top = _number(element, "left"), _number(element, "top")
    width, height = _number(element, "width"), _number(element, "height")
    return _Envelope(left, top, left + width, top + height), _note("mask")


def _cuboid(element: Element) -> tuple[_Envelope, Fault | None]:
    """The picture of a cuboid: corners t(op)/b(ottom), l(eft)/r(ight), of its two sides 1 and 2."""
    corners = [f"{end}{side}" for end in ("tl", "bl", "tr", "br") for side in "12"]
    xs = [_number(element, f"x{corner}") for corner in corners]
    ys = [_number(element, f"y{corner}") for corner in corners]
    return _Envelope(min(xs), min(ys), max(xs), max(ys)), _note("cuboid")


def _polygon(element: Element) -> tuple[_Envelope, Fault | None]:
    pairs = [pair.split(",") for pair in element.attributes.get("points", "").split(";") if pair]
    if len(pairs) < _MIN_POINTS or any(len(pair) != 2 for pair in pairs):
        rule = f"a polygon must have at least {_MIN_POINTS} points, written x,y;x,y;x,y"
        problem = "a polygon has too few points, or parts that are no points"
        value = element.attributes.get("points", "")
        raise _Refused(_error("label.not-a-box", value, rule, "correct or remove it", problem))
    xs = [_parsed(x) for x, _ in pairs]
    ys = [_parsed(y) for _, y in pairs]
    return _Envelope(min(xs), min(ys), max(xs), max(ys)), _note("polygon")


_ENVELOPES: Final[dict[str, Callable[[Element], tuple[_Envelope, Fault | None]]]] = {
    "box": _box,
    "polygon": _polygon,
    "ellipse": _ellipse,
    "mask": _mask,
    "cuboid": _cuboid,
}


def _around(x: float, y: float, half_width: float, half_height: float) -> _Envelope:
    return _Envelope(x - half_width, y - half_height, x + half_width, y + half_height)


def _angle(element: Element) -> float:
    """The rotation in degrees, clockwise; 0 without one."""
    if "rotation" not in element.attributes:
        return 0.0
    return _number(element, "rotation") % _FULL_TURN_DEGREES


def _number(element: Element, name: str) -> float:
    text = element.attributes.get(name)
    if text is not None:
        return _parsed(text)
    rule, advice = f"<{element.tag}> must have {name}", "write it, or remove the shape"
    raise _Refused(
        _error("label.not-a-number", "", rule, advice, f"a coordinate is missing: {name}")
    )


def _parsed(text: str) -> float:
    number = coordinate_in_text(text.strip())
    if isinstance(number, Fault):
        raise _Refused(number)
    return number


def _note(kind: str) -> Fault:
    rule = "a shape must be a rectangle for detection"
    advice = f"the {kind} was replaced by the smallest box around it"
    problem = f"a shape is a {kind}"
    return Fault(Severity.INFO, "label.polygon-to-box", kind, rule, advice, problem)


def _not_a_box(kind: str) -> Fault:
    rule = f"a shape must be one of {', '.join(_ENVELOPES)}"
    advice = "it was left out; draw a rectangle where it stands for an object"
    return Fault(Severity.WARNING, "label.not-a-box", kind, rule, advice)


def _unknown(kind: str) -> Fault:
    rule = f"a shape must be one of {', '.join(_ENVELOPES)}"
    advice = "draw the shape again as one of these, or remove it"
    return _error("label.not-a-box", kind, rule, advice, "the type of a shape is not known")


def _error(code: str, value: str, rule: str, advice: str, problem: str) -> Fault:
    return Fault(Severity.ERROR, code, value, rule, advice, problem)
