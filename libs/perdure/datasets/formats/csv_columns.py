"""Which column of a table means what: as its header says, or in the one order without a header."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from perdure.datasets.findings import Fault, Severity
from perdure.datasets.formats.csv_rows import TableRow, table_rows
from perdure.datasets.tree import is_image

# What tools call the columns; of several for one thing the first here is taken.
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "image": (
        *("filename", "file_name", "image_path", "image", "img_path", "image_name", "img"),
        *("file_path", "filepath", "path", "file"),
    ),
    "left": ("xmin", "x_min", "x1", "left"),
    "top": ("ymin", "y_min", "y1", "top"),
    "right": ("xmax", "x_max", "x2", "right"),
    "bottom": ("ymax", "y_max", "y2", "bottom"),
    "class": ("class", "class_name", "label", "label_name", "category", "category_name", "name"),
    "width": ("width", "image_width", "img_width"),
    "height": ("height", "image_height", "img_height"),
    "split": ("split", "set", "subset"),
}
_CORNERS: Final = ("left", "top", "right", "bottom")
_REQUIRED: Final = ("image", "class", *_CORNERS)
_DELIMITERS: Final = ",;\t"
# Excel's own line that names the delimiter.
_NAMED_DELIMITER: Final = re.compile(r'"?sep=([^\w\s"]|\t)"?[ ,;\t]*(?:\r?\n|\r|\Z)', re.IGNORECASE)
_BETWEEN_WORDS: Final = re.compile(r"[\s\-]+")
# Without a header (keras-retinanet's form): path,x1,y1,x2,y2,class. One good row among the first
# shows it, as the very first may be the bad one.
_FIELDS_WITHOUT_HEADER: Final = 6
_ROWS_LOOKED_AT: Final = 20
_COORDINATE: Final = re.compile(r"[+-]?\d+([.,]\d*)?", re.ASCII)

_RULE: Final = "a table must have columns for the image, the class, and the corners of the box"
_ADVICE: Final = "write a header with: filename, xmin, ymin, xmax, ymax, class"


@dataclass(frozen=True)
class Columns:
    """The places of a row's fields, 0 for the first; None for what the table does not have."""

    image: int
    left: int
    top: int
    right: int
    bottom: int
    class_name: int
    width: int | None = None
    height: int | None = None
    split: int | None = None
    count: int = _FIELDS_WITHOUT_HEADER


@dataclass(frozen=True)
class Head:
    """How a table is to be read: its delimiter and columns, and the line after its header."""

    delimiter: str
    columns: Columns
    rows_from: int


@dataclass(frozen=True)
class NoHead:
    """Why a file is not read as a table of boxes: a warning where it seems to be another table."""

    fault: Fault
    line: int


def find_head(text: str) -> Head | NoHead:
    """The head of the table in `text`."""
    named = _NAMED_DELIMITER.match(text)
    begin = 2 if named else 1
    best: list[TableRow] = []
    known = -1
    delimiter = ""
    for candidate in named[1] if named else _DELIMITERS:
        rows = [row for row in _first_rows(text, candidate) if row.line >= begin]
        number = len(_meanings(rows[0].fields)) if rows else 0
        if number == 0 and any(map(_is_row_without_header, rows)):
            columns = Columns(image=0, left=1, top=2, right=3, bottom=4, class_name=5)
            return Head(candidate, columns, begin)
        if number > known:
            best, known, delimiter = rows, number, candidate
    if not best:
        return _other_table([], begin)
    return _read_header(best, delimiter)


def _first_rows(text: str, delimiter: str) -> list[TableRow]:
    return [row for row in islice(table_rows(text, delimiter), _ROWS_LOOKED_AT) if not row.error]


def _read_header(rows: Sequence[TableRow], delimiter: str) -> Head | NoHead:
    line, header = rows[0].line, rows[0].fields
    places = _meanings(header)
    found = {_plain(name) for name in header}
    if "region_shape_attributes" in found:
        advice = "export the labels as COCO from the VGG Image Annotator"
        return NoHead(_error(header, advice, "the shapes are in one column, as JSON"), line)
    if {"imageid", "labelname", "xmin"} <= found:
        advice = (
            "convert the table: file names in place of image ids, names of classes in place of "
            "codes, and corners in pixels (multiply XMin and XMax by the image's width, YMin and "
            "YMax by its height)"
        )
        return NoHead(_error(header, advice, "this is a table of Open Images, in shares"), line)
    missing = [meaning for meaning in _REQUIRED if meaning not in places]
    if missing and not found & {"bbox", *(n for meaning in _CORNERS for n in _NAMES[meaning])}:
        return _other_table(header, line)
    if missing:
        wanted = ", ".join(f"{meaning} ({', '.join(_NAMES[meaning])})" for meaning in missing)
        advice = "split the column bbox into four; " * ("bbox" in found) + _ADVICE
        return NoHead(_error(header, advice, f"there is no column for: {wanted}"), line)
    for meaning in _CORNERS:
        if len(places[meaning]) > 1:
            twice = " and ".join(header[place] for place in places[meaning])
            advice = "remove or rename the one that is not meant"
            return NoHead(_error(header, advice, f"the columns {twice} mean the same"), line)
    first = {meaning: found[0] for meaning, found in places.items()}
    columns = Columns(
        image=first["image"],
        left=first["left"],
        top=first["top"],
        right=first["right"],
        bottom=first["bottom"],
        class_name=first["class"],
        width=first.get("width"),
        height=first.get("height"),
        split=first.get("split"),
        count=len(header),
    )
    return Head(delimiter, columns, line + 1)


def _meanings(header: Sequence[str]) -> dict[str, list[int]]:
    """The places of the columns by what they mean, the preferred name's first."""
    plain = [_plain(name) for name in header]
    return {
        meaning: places
        for meaning, names in _NAMES.items()
        if (
            places := [
                place for name in names for place, is_it in enumerate(plain) if is_it == name
            ]
        )
    }


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("_", name.lstrip("#").strip().lower())


def _is_row_without_header(row: TableRow) -> bool:
    if len(row.fields) != _FIELDS_WITHOUT_HEADER or not is_image(row.fields[0].replace("\\", "/")):
        return False
    corners = row.fields[1:5]
    return not any(corners) or all(map(_COORDINATE.fullmatch, corners))


def _other_table(header: Sequence[str], line: int) -> NoHead:
    value = ", ".join(header)
    fault = Fault(Severity.WARNING, "files.not-labels", value, _RULE, f"it was left out; {_ADVICE}")
    return NoHead(fault, line)


def _error(header: Sequence[str], advice: str, problem: str) -> Fault:
    return Fault(Severity.ERROR, "csv.invalid", ", ".join(header), _RULE, advice, problem)
