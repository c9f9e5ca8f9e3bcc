"""Shapes in Label Studio's results: in percent of the image, and turned where somebody did so.

`image_rotation` says how the image was turned on the screen, and changes nothing: the editor saves
percentages of the original image (so its documentation of the Image tag). Its versions of 2020 turn
shapes back by that angle when they save, later ones never turn them.
"""

import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import NamedBox
from perdure.datasets.json_file import (
    coordinate,
    json_fault,
    json_text,
    not_finite,
    pointer,
    whole_number,
)

Way = tuple[str | int, ...]
_Point = tuple[float, float]
_Size = tuple[int, int]

_PERCENT: Final = 100
_FULL_TURN_DEGREES: Final = 360
_LABELS: Final = "labels"  # the end of rectanglelabels, polygonlabels, ...
_SIZE: Final = ("original_width", "original_height")
# Results that say something about a shape, whose place they repeat, and are none themselves.
_ABOUT_SHAPES: Final = frozenset(
    {"choices", "datetime", "number", "pairwise", "ranker", "rating", "taxonomy", "text"}
)
_BOX: Final = ("x", "y", "width", "height")
_ELLIPSE: Final = ("x", "y", "radiusX", "radiusY")
_MIN_POLYGON_POINTS: Final = 3
# What the value of any shape has: rectangles and key points x; polygons, lines, and brushes others.
_OF_SHAPES: Final = frozenset({"x", "points", "vertices", "rle"})


class Result(NamedTuple):
    """One entry of a result, and its place in the file."""

    item: dict[str, Any]
    way: Way

    @property
    def value(self) -> dict[str, Any]:
        """Where the shape is: in JSON-MIN that is the entry itself."""
        value = self.item.get("value")
        return value if isinstance(value, dict) else self.item

    @property
    def value_way(self) -> Way:
        """The way to `value`."""
        return self.way if self.value is self.item else (*self.way, "value")


class ShapeReader:
    """Reads the results of one image after the other."""

    def __init__(self, file: str, findings: Findings) -> None:
        self._file = file
        self._findings = findings

    def read(self, results: list[Result]) -> tuple[_Size | None, tuple[NamedBox, ...]]:
        """The size that the results name for the image, and their boxes in pixels of it."""
        size = next(filter(None, (_size(result.item) for result in results)), None)
        named = {
            json_text(result.item["id"]): labels
            for result in results
            if "id" in result.item and (labels := _labels(result.value)) is not None
        }
        boxes: list[NamedBox] = []
        for result in results:
            if _is_shape(result, named):
                boxes += self._boxes(result, size)
        return size, tuple(boxes)

    def _boxes(self, result: Result, size: _Size | None) -> Iterable[NamedBox]:
        """The box of a shape, once for each of its classes."""
        classes = self._classes(result)
        envelope = self._envelope(result, size)
        if envelope is None:
            return ()
        place = pointer(*result.way)
        return [NamedBox(name, *envelope, pointer=place) for name in classes]

    def _classes(self, result: Result) -> list[str]:
        labels = _labels(result.value)
        if labels is None or labels == []:
            rule, advice = "a shape must have a class", "label the shape, or remove it"
            self._add(_error("classes.names", "", rule, advice, "a shape has no class"), result.way)
            return []
        if not isinstance(labels, list) or not all(isinstance(name, str) for name in labels):
            fault = json_fault(labels, "labels must be a list of names", "correct the names")
            self._add(fault, result.value_way)
            return []
        if len(labels) > 1:
            rule, advice = "a box must have one class", "a box of each class was read"
            value = ", ".join(labels)
            self._add(
                Fault(Severity.INFO, "label.several-classes", value, rule, advice), result.way
            )
        return list(dict.fromkeys(labels))

    def _envelope(
        self, result: Result, size: _Size | None
    ) -> tuple[float, float, float, float] | None:
        """The smallest upright box around a shape, in pixels; None where there is none."""
        if not self._has_size(result, size):
            return None
        assert size is not None
        value = result.value
        if "points" in value:
            corners = self._polygon(result, size)
        elif "radiusX" in value:
            corners = self._ellipse(result, size)
        elif "height" in value:
            corners = self._rectangle(result, size)
        else:
            rule, advice = (
                "a shape must be a rectangle, an ellipse or a polygon",
                "it was left out; draw a rectangle where it stands for an object",
            )
            kind = result.item.get("type")
            said = kind if isinstance(kind, str) else ""
            self._add(Fault(Severity.WARNING, "label.not-a-box", said, rule, advice), result.way)
            return None
        if corners is None:
            return None
        xs, ys = zip(*corners, strict=True)
        envelope = (min(xs), min(ys), max(xs), max(ys))
        if all(map(math.isfinite, (*xs, *ys))):
            return envelope
        self._add(not_finite(list(envelope)), result.value_way)
        return None

    def _has_size(self, result: Result, size: _Size | None) -> bool:
        own = _size(result.item)
        if size is None:
            value = " x ".join(json_text(result.item.get(key)) for key in _SIZE)
            rule = "original_width and original_height must be the image's size in pixels"
            advice = "export the labels again; places in percent need it"
            self._add(_error("label-studio.size-missing", value, rule, advice, ""), result.way)
        elif own not in (None, size):
            value = " x ".join(json_text(result.item.get(key)) for key in _SIZE)
            rule = f"an image must have one size; before it was {size[0]} x {size[1]}"
            advice = "look at the image in Label Studio, and export again"
            problem = "two sizes are named for one image"
            self._add(_error("label.size-mismatch", value, rule, advice, problem), result.way)
        return size is not None and own in (None, size)

    def _polygon(self, result: Result, size: _Size) -> list[_Point] | None:
        points = result.value["points"]
        way = (*result.value_way, "points")
        if not isinstance(points, list) or len(points) < _MIN_POLYGON_POINTS:
            rule = f"a polygon must have at least {_MIN_POLYGON_POINTS} points"
            problem = "a shape has the wrong number of points"
            advice = "draw the shape again"
            self._add(_error("label.field-count", json_text(points), rule, advice, problem), way)
            return None
        found: list[_Point] = []
        for number, point in enumerate(points):
            if not isinstance(point, list) or len(point) != 2:
                rule, advice = "a point must be a list of x and y", "correct the point"
                self._add(json_fault(point, rule, advice), (*way, number))
                continue
            x, y = (self._number(part, (*way, number, at)) for at, part in enumerate(point))
            if x is not None and y is not None:
                found.append((x * size[0] / _PERCENT, y * size[1] / _PERCENT))
        if len(found) < len(points):
            return None
        self._note_envelope("polygon", result.way)
        return found

    def _ellipse(self, result: Result, size: _Size) -> list[_Point] | None:
        """Two corners of the box around an ellipse, which may be turned about its centre."""
        numbers = self._numbers(result, _ELLIPSE, size)
        angle = self._angle(result)
        if numbers is None or angle is None:
            return None
        x, y, a, b = numbers
        # The extent of a turned ellipse: x = a cos t cos r - b sin t sin r has this maximum.
        half_width = math.hypot(a * math.cos(angle), b * math.sin(angle))
        half_height = math.hypot(a * math.sin(angle), b * math.cos(angle))
        self._note_envelope("ellipse", result.way)
        return [(x - half_width, y - half_height), (x + half_width, y + half_height)]

    def _rectangle(self, result: Result, size: _Size) -> list[_Point] | None:
        """The corners of a rectangle, which may be turned clockwise about its first one."""
        numbers = self._numbers(result, _BOX, size)
        angle = self._angle(result)
        if numbers is None or angle is None:
            return None
        x, y, width, height = numbers
        if width < 0 or height < 0:
            value = " ".join(json_text(result.value[key]) for key in _BOX)
            rule, advice = "width and height must be positive", "the corners were swapped"
            fault = Fault(Severity.WARNING, "label.negative-size", value, rule, advice)
            self._add(fault, result.value_way)
        if angle == 0:
            return [(x, y), (x + width, y + height)]
        value = f"{result.value['rotation']} degrees"
        rule, advice = "a box must be upright", "the smallest upright box around it was taken"
        fault = Fault(Severity.WARNING, "label.rotated", value, rule, advice)
        self._add(fault, (*result.value_way, "rotation"))
        cos, sin = math.cos(angle), math.sin(angle)
        offsets = ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
        return [(x + dx * cos - dy * sin, y + dx * sin + dy * cos) for dx, dy in offsets]

    def _angle(self, result: Result) -> float | None:
        """The rotation in radians, clockwise as the y axis points down."""
        written = result.value.get("rotation")
        if written is None:
            return 0.0
        degrees = self._number(written, (*result.value_way, "rotation"))
        return None if degrees is None else math.radians(degrees % _FULL_TURN_DEGREES)

    def _numbers(
        self, result: Result, keys: tuple[str, ...], size: _Size
    ) -> tuple[float, float, float, float] | None:
        """Four numbers in pixels: two of them are of the horizontal axis, two of the vertical."""
        read = [self._number(result.value.get(key), (*result.value_way, key)) for key in keys]
        first, second, third, fourth = read
        if first is None or second is None or third is None or fourth is None:
            return None
        width, height = size
        return (
            first * width / _PERCENT,
            second * height / _PERCENT,
            third * width / _PERCENT,
            fourth * height / _PERCENT,
        )

    def _number(self, value: object, way: Way) -> float | None:
        number = coordinate(value)
        if isinstance(number, float):
            return number
        self._add(number, way)
        return None

    def _note_envelope(self, kind: str, way: Way) -> None:
        rule = "a shape must be a rectangle for detection"
        advice = f"the {kind} was replaced by the smallest box around it"
        problem = f"a shape is a {kind}"
        fault = Fault(Severity.INFO, "label.polygon-to-box", kind, rule, advice, problem)
        self._add(fault, way)

    def _add(self, fault: Fault, way: Way) -> None:
        self._findings.add(fault, self._file, pointer=pointer(*way))


def _is_shape(result: Result, named: dict[str, object]) -> bool:
    """Whether an entry is a shape of its own, and does not speak about one."""
    value = result.value
    if not value.keys() & _OF_SHAPES:
        return False
    if _labels(value) is not None:
        return True
    # A shape and its class can be two entries of one id; both have the place.
    is_other_half = "id" in result.item and json_text(result.item["id"]) in named
    return not is_other_half and not value.keys() & _ABOUT_SHAPES


def _labels(value: dict[str, Any]) -> object:
    """The classes of a shape, None where it has none."""
    return next((value[key] for key in value if key.endswith(_LABELS)), None)


def _size(item: dict[str, Any]) -> _Size | None:
    width, height = (whole_number(item.get(key)) for key in _SIZE)
    return (width, height) if width and height and min(width, height) > 0 else None


def _error(code: str, value: str, rule: str, advice: str, problem: str) -> Fault:
    return Fault(Severity.ERROR, code, value, rule, advice, problem)
