"""One row of a YOLO label file: `class cx cy width height`, or `class x1 y1 x2 y2 x3 y3 ...`."""

import math
import re
from dataclasses import dataclass
from typing import Final

from perdure.datasets.annotation import MAX_CLASSES, Box
from perdure.datasets.border import degenerate_box
from perdure.datasets.findings import Fault, Severity
from perdure.datasets.rules import SixthField

_BOX_FIELDS: Final = 5
_POLYGON_FIELDS: Final = 7  # class and three points
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_CLASS_ID: Final = re.compile(r"\d{1,9}(\.0*)?", re.ASCII)  # some tools write whole numbers as 1.0
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_SEPARATORS: Final = re.compile(r"\s*,\s*|\s+")
# Values above this are no shares with a slip of the pen: they look like pixels.
_LOOKS_LIKE_PIXELS: Final = 2.0


@dataclass(frozen=True)
class Row:
    """A row as read: its box, or None when it has a fault that is an error."""

    box: Box | None
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class RowFormat:
    """What the rows of a data set hold."""

    class_count: int | None = None  # the number of names; None when unknown
    keypoint_fields: int = 0  # fields after a pose row's box; 0 in a set without keypoints
    sixth_field: SixthField | None = None  # what a sixth field holds, where the user has said so
    drop_degenerate: bool = False  # whether boxes without area are left out


def parse_row(text: str, form: RowFormat) -> Row:
    """Read a row that is not blank."""
    fields, faults = _split(text, form)
    row = _parse_fields(fields, text, form)
    box = None if any(fault.severity is Severity.ERROR for fault in faults) else row.box
    return Row(box, (*faults, *row.faults))


def _split(text: str, form: RowFormat) -> tuple[list[str], list[Fault]]:
    """The row's fields. Commas are decimal marks or separators; a guess is only made when safe."""
    if ";" in text:  # a semicolon is no decimal mark: there is nothing to guess
        between = [field.strip() for field in text.strip().removesuffix(";").split(";")]
        fields = _with_points(between)
        faults = [_separated(text, "semicolons"), *([] if fields == between else [_decimal(text)])]
        return fields, faults
    plain = text.split()
    if "," not in text:
        return plain, []
    decimal = _with_points(plain)
    separated = _SEPARATORS.split(text.strip().removesuffix(",").rstrip())
    as_decimal = _parse_fields(decimal, text, form)
    as_separated = _parse_fields(separated, text, form)
    if as_decimal.box and as_separated.box:
        fault = Fault(
            Severity.ERROR,
            "label.decimal-comma",
            text,
            "a comma must be either a decimal mark or a separator",
            "write 0.5, and spaces between the fields",
            problem="the commas of a row can be read in two ways",
        )
        return decimal, [fault]
    if as_decimal.box or (not as_separated.box and len(plain) >= _BOX_FIELDS):
        return decimal, [_decimal(text)]
    return separated, [_separated(text, "commas")]


def _with_points(fields: list[str]) -> list[str]:
    return [
        field.replace(",", ".") if _DECIMAL_COMMA.fullmatch(field) else field for field in fields
    ]


def _decimal(text: str) -> Fault:
    rule, advice = "numbers must have a decimal point", "the commas were read as decimal points"
    return Fault(Severity.WARNING, "label.decimal-comma", text, rule, advice)


def _separated(text: str, marks: str) -> Fault:
    rule, advice = "fields must be separated by spaces", f"the {marks} were read as separators"
    return Fault(Severity.WARNING, "label.comma-separated", text, rule, advice)


def _parse_fields(fields: list[str], text: str, form: RowFormat) -> Row:
    if "" in fields:  # between two separators; the fields after it would move up
        rule, advice = (
            "no field of a row may be empty",
            "write the missing value, or remove the row",
        )
        return _rejected("label.field-count", text, rule, advice)
    if form.keypoint_fields:
        return _pose(fields, text, form)
    count = len(fields)
    if count == _BOX_FIELDS + 1:
        return _six_fields(fields, text, form)
    if count != _BOX_FIELDS and (count < _POLYGON_FIELDS or count % 2 == 0):
        return _rejected(
            "label.field-count",
            text,
            f"a row must have 5 fields, or a class and at least 3 points; this one has {count}",
            "write: class centre-x centre-y width height",
        )
    return _shape(fields, text, form)


def _six_fields(fields: list[str], text: str, form: RowFormat) -> Row:
    """A box and a confidence or a track id, which is left out where the user has said so."""
    rule = "a row must have 5 fields"
    if form.sixth_field is None:
        advice = "drop the sixth field; or say what it is, with --sixth-field confidence|track"
        return _rejected("label.extra-field", text, rule, advice)
    row = _shape(fields[:_BOX_FIELDS], text, form)
    if row.box is None or not _NUMBER.fullmatch(fields[-1]):
        faults = row.faults or tuple(_number_faults(fields[-1:]))
        return Row(None, faults)
    advice = f"the {form.sixth_field} was left out"
    note = Fault(Severity.INFO, "label.extra-field", text, rule, advice)
    return Row(row.box, (*row.faults, note))


def _pose(fields: list[str], text: str, form: RowFormat) -> Row:
    """A box, alone or with keypoints, whose number data.yaml says; never a polygon."""
    expected = _BOX_FIELDS + form.keypoint_fields
    if len(fields) not in (_BOX_FIELDS, expected):
        rule = f"by kpt_shape a row must have {expected} fields, or 5; this one has {len(fields)}"
        advice = "correct the row, or kpt_shape in data.yaml"
        return _rejected("label.field-count", text, rule, advice)
    row = _shape(fields[:_BOX_FIELDS], text, form)
    if len(fields) == _BOX_FIELDS or row.box is None:
        return row
    rule, advice = (
        "a row must be a box for detection",
        "the box was read and its keypoints were left out",
    )
    return Row(row.box, (Fault(Severity.INFO, "label.keypoints-dropped", text, rule, advice),))


def _shape(fields: list[str], text: str, form: RowFormat) -> Row:
    faults = [*_class_faults(fields[0], form.class_count), *_number_faults(fields[1:])]
    if faults:
        return Row(None, tuple(faults))
    class_index = int(float(fields[0]))
    values = [float(field) for field in fields[1:]]
    if len(fields) == _BOX_FIELDS:
        return _box(class_index, values, text, form)
    return _envelope(class_index, values, text, form)


def _box(class_index: int, values: list[float], text: str, form: RowFormat) -> Row:
    x, y, width, height = values
    if width == 0 or height == 0:
        return Row(None, (degenerate_box(text, dropped=form.drop_degenerate),))
    return Row((class_index, x, y, width, height), ())


def _envelope(class_index: int, values: list[float], text: str, form: RowFormat) -> Row:
    xs, ys = values[0::2], values[1::2]
    left, right, top, bottom = min(xs), max(xs), min(ys), max(ys)
    row = _box(
        class_index,
        [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top],
        text,
        form,
    )
    note = Fault(
        Severity.INFO,
        "label.polygon-to-box",
        text,
        "a row must be a box for detection",
        "the polygon was replaced by the smallest box around it",
    )
    return Row(row.box, row.faults or (note,))


def _class_faults(field: str, class_count: int | None) -> list[Fault]:
    above = class_count or MAX_CLASSES
    if _CLASS_ID.fullmatch(field) and int(float(field)) < above:
        return []
    return [
        _error(
            "label.class-out-of-range",
            field,
            f"a class id must be a whole number, 0..{above - 1}",
            "correct the id, or add the missing name to data.yaml",
        )
    ]


def _number_faults(fields: list[str]) -> list[Fault]:
    faults = []
    for field in fields:
        if _NOT_FINITE.fullmatch(field) or (
            _NUMBER.fullmatch(field) and not math.isfinite(float(field))
        ):
            rule, advice = "a coordinate must be finite", "correct the coordinate or remove the row"
            faults.append(_error("label.not-finite", field, rule, advice))
        elif not _NUMBER.fullmatch(field):
            rule, advice = "a coordinate must be a number", "correct the coordinate"
            faults.append(_error("label.not-a-number", field, rule, advice))
        elif not 0 <= float(field) <= 1:
            advice = (
                "this looks like pixels: divide x and width by the image's width, "
                "y and height by its height"
                if float(field) > _LOOKS_LIKE_PIXELS
                else "correct the coordinate"
            )
            rule = "a coordinate must be a share of the image, 0..1"
            faults.append(_error("label.out-of-range", field, rule, advice))
    return faults


def _error(code: str, value: str, rule: str, advice: str) -> Fault:
    return Fault(Severity.ERROR, code, value, rule, advice)


def _rejected(code: str, value: str, rule: str, advice: str) -> Row:
    return Row(None, (_error(code, value, rule, advice),))
