"""LabelMe's format: one JSON file for each image, with shapes drawn by hand.

The image is the file that `imagePath` names, relative to the JSON file; a copy of it that is
embedded as `imageData` is not looked at.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName, NamedBox, NamedLabels
from perdure.datasets.image_names import ImageNames
from perdure.datasets.json_file import coordinate, json_fault, json_text, pointer, read_json
from perdure.datasets.rules import ImportRules
from perdure.datasets.signatures import format_of
from perdure.datasets.tree import Tree

FORMAT: Final = "labelme"

# Most of a file is the embedded image, in four bytes for three; a scan of 80 megapixels as JPEG
# has about 60 MB.
MAX_FILE_BYTES: Final = 128 << 20
_SUFFIX: Final = ".json"
_OTHER_FORMATS: Final = ("coco", "label-studio")
# With one of these errors nobody knows which images the files are of.
_UNREAD: Final = frozenset(
    {
        "files.missing-image",
        "files.path-escape",
        "files.too-large",
        "files.unreadable",
        "json.invalid",
        "text.encoding",
    }
)

_MIN_POLYGON_POINTS: Final = 3

_Point = tuple[float, float]
_Envelope = tuple[float, float, float, float]  # left, top, right, bottom


def read_labelme(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read LabelMe's files; whatever is wrong goes to `findings`, with file and JSON pointer."""
    labels = LabelsByName(tree, findings)
    names = ImageNames(tree)
    files = sorted(name for name in tree.files if name.lower().endswith(_SUFFIX))
    read = 0
    for file in files:
        read += _read_file(tree, file, names, labels, findings)
    if not read and not findings.number_of(Severity.ERROR):
        rule, advice = "each image must have a .json file of LabelMe", "add the files"
        findings.error("label.none", files[0] if files else "", "", rule, advice)
    all_read = _UNREAD.isdisjoint(findings.codes(Severity.ERROR))
    return labels.annotations(FORMAT, report_unlabelled=all_read)


def _read_file(
    tree: Tree, file: str, names: ImageNames, labels: LabelsByName, findings: Findings
) -> bool:
    """Read one file; whether it is one of LabelMe, though it may be a bad one."""
    other = format_of(tree.files[file])
    value: Any = None
    if other not in _OTHER_FORMATS:
        value = read_json(tree.files[file], file, findings, max_bytes=MAX_FILE_BYTES)
        if value is None:  # that it cannot be read is said
            return True
    if not isinstance(value, dict) or not value.keys() & {"shapes", "imagePath"}:
        rule, advice = "a file of LabelMe must have shapes and an imagePath", "it was left out"
        findings.warning("files.not-labels", file, other or "", rule, advice)
        return False
    size = _size(value, file, findings)
    boxes = _boxes(value.get("shapes"), file, findings)
    name = value.get("imagePath")
    if isinstance(name, str) and name:
        image = names.find(name, file, findings, pointer=pointer("imagePath"))
    else:
        image = None
        rule, advice = "imagePath must name the image", "write the image's name, as text"
        findings.add(json_fault(name, rule, advice), file, pointer=pointer("imagePath"))
    if image is not None:
        labels.add(image, NamedLabels(file, size, boxes))
    return True


def _size(value: dict[str, Any], file: str, findings: Findings) -> tuple[int, int] | None:
    """The size that the file claims for its image; None where it claims none."""
    sides = []
    for key in ("imageWidth", "imageHeight"):
        side = value.get(key)
        if side is None:
            continue
        number = coordinate(side)
        if isinstance(number, float) and number.is_integer() and number > 0:
            sides.append(int(number))
        else:
            rule, advice = f"{key} must be a whole number above 0", "correct it, or leave it out"
            findings.add(json_fault(side, rule, advice), file, pointer=pointer(key))
    return (sides[0], sides[1]) if len(sides) == 2 else None


def _boxes(shapes: object, file: str, findings: Findings) -> tuple[NamedBox, ...]:
    if not isinstance(shapes, list):
        fault = json_fault(shapes, "shapes must be a list", "write [] where there are none")
        findings.add(fault, file, pointer=pointer("shapes"))
        return ()
    read = (_Shape(shape, file, number, findings).box() for number, shape in enumerate(shapes))
    return tuple(box for box in read if box is not None)


class _Shape:
    """One shape of a file, with its place there for what is wrong with it."""

    def __init__(self, value: object, file: str, number: int, findings: Findings) -> None:
        self._value = value
        self._file = file
        self._number = number
        self._findings = findings

    def box(self) -> NamedBox | None:
        """The box around the shape; None where it has none, which is said."""
        if not isinstance(self._value, dict):
            self._report(json_fault(self._value, "a shape must be an object", "remove it"))
            return None
        kind = self._value.get("shape_type")
        if kind is None:  # old versions knew polygons only
            kind = "polygon"
        if not isinstance(kind, str) or kind not in _ENVELOPES:
            self._report(_not_a_box(kind), "shape_type")
            return None
        label = self._label(self._value.get("label"))
        points = self._points(self._value.get("points"))
        if points is None:
            return None
        envelope = self._envelope(kind, points)
        if label is None or envelope is None:
            return None
        if note := _NOTES.get(kind):
            self._report(note)
        return NamedBox(label, *envelope, pointer=pointer("shapes", self._number))

    def _label(self, label: object) -> str | None:
        if not isinstance(label, str):
            self._report(json_fault(label, "a label must be text", "write the class"), "label")
            return None
        if label := label.strip():
            return label
        rule, advice = "a shape must have a class", "write the class, or remove the shape"
        problem = "a shape has no class"
        self._report(_error("classes.names", "", rule, advice, problem), "label")
        return None

    def _points(self, points: object) -> list[_Point] | None:
        if not isinstance(points, list):
            rule, advice = "points must be a list", "correct the shape or remove it"
            self._report(json_fault(points, rule, advice), "points")
            return None
        read = []
        for number, point in enumerate(points):
            if not isinstance(point, list) or len(point) != 2:
                rule, advice = "a point must be a list of x and y", "correct the point"
                self._report(json_fault(point, rule, advice), "points", number)
                continue
            x, y = (self._coordinate(value, number, at) for at, value in enumerate(point))
            if x is not None and y is not None:
                read.append((x, y))
        return read if len(read) == len(points) else None

    def _coordinate(self, value: object, *place: int) -> float | None:
        number = coordinate(value)
        if isinstance(number, float):
            return number
        self._report(number, "points", *place)
        return None

    def _envelope(self, kind: str, points: Sequence[_Point]) -> _Envelope | None:
        counts, envelope_of = _ENVELOPES[kind]
        if len(points) not in counts if counts else len(points) < _MIN_POLYGON_POINTS:
            wanted = " or ".join(map(str, counts)) or f"at least {_MIN_POLYGON_POINTS}"
            rule, advice = f"a {kind} must have {wanted} points", "draw the shape again"
            problem = "a shape has the wrong number of points"
            fault = _error("label.field-count", f"{len(points)} points", rule, advice, problem)
            self._report(fault, "points")
            return None
        envelope = envelope_of(points)
        if all(map(math.isfinite, envelope)):
            return envelope
        rule, advice = "a coordinate must be finite", "correct the points or remove the shape"
        problem = "the box around a shape is infinite"
        value = json_text(points)
        self._report(_error("label.not-finite", value, rule, advice, problem), "points")
        return None

    def _report(self, fault: Fault, *place: str | int) -> None:
        where = pointer("shapes", self._number, *place)
        self._findings.add(fault, self._file, pointer=where)


def _around(points: Sequence[_Point]) -> _Envelope:
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _around_circle(points: Sequence[_Point]) -> _Envelope:
    """Around a circle, which is given by its centre and a point on it."""
    (x, y), on_it = points
    radius = math.dist((x, y), on_it)
    return x - radius, y - radius, x + radius, y + radius


def _around_mask(points: Sequence[_Point]) -> _Envelope:
    """Around a mask, which is given by its first and its last pixel in both directions."""
    left, top, right, bottom = _around(points)
    return left, top, right + 1, bottom + 1


# Numbers of points, none where it is three or more, and the box around them. LabelMe itself gives
# a rectangle by two corners; X-AnyLabeling writes all four.
_ENVELOPES: Final[dict[str, tuple[tuple[int, ...], Callable[[Sequence[_Point]], _Envelope]]]] = {
    "rectangle": ((2, 4), _around),
    "polygon": ((), _around),
    "rotation": ((), _around),
    "circle": ((2,), _around_circle),
    "mask": ((2,), _around_mask),
}
_LINES: Final = frozenset({"line", "linestrip", "point", "points"})


def _note(kind: str, advice: str) -> Fault:
    rule = "a shape must be a rectangle for detection"
    problem = f"a shape is a {kind}"
    return Fault(Severity.INFO, "label.polygon-to-box", kind, rule, advice, problem)


_NOTES: Final = {
    kind: _note(kind, f"the {kind} was replaced by the smallest box around it")
    for kind in ("polygon", "circle", "mask")
} | {
    "rotation": Fault(
        Severity.WARNING,
        "label.rotated",
        "rotation",
        "a box must be upright",
        "it was replaced by the smallest upright box around it",
    )
}


def _not_a_box(kind: object) -> Fault:
    rule = f"a shape must be one of {', '.join(_ENVELOPES)}"
    value = kind if isinstance(kind, str) else json_text(kind)
    if value in _LINES:
        advice = "it was left out; draw a rectangle where it stands for an object"
        return Fault(Severity.WARNING, "label.not-a-box", value, rule, advice)
    advice = "draw the shape again as one of these, or remove it"
    return _error("label.not-a-box", value, rule, advice, "the type of a shape is not known")


def _error(code: str, value: str, rule: str, advice: str, problem: str) -> Fault:
    return Fault(Severity.ERROR, code, value, rule, advice, problem)
