"""Tables of boxes in pixels: one row a box, or one for an image with nothing on it.

The rows of an image may lie anywhere, and in several tables. A table called train.csv or val.csv
says which split its images are in, unless it has a column for that.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName, NamedBox, NamedLabels
from perdure.datasets.formats.csv_columns import Columns, NoHead, find_head
from perdure.datasets.formats.csv_rows import TableRow, table_rows
from perdure.datasets.formats.numbers import coordinate_in_text
from perdure.datasets.formats.split_names import (
    NamedSplit,
    split_of_folders,
    split_of_name,
)
from perdure.datasets.image_names import ImageNames
from perdure.datasets.rules import ImportRules
from perdure.datasets.text import read_text
from perdure.datasets.tree import Tree, is_image

FORMAT: Final = "csv"

# About two million rows. The text is held in memory, as bytes and as characters.
MAX_TABLE_BYTES: Final = 128 << 20
_SUFFIXES: Final = (".csv", ".tsv")
_BETWEEN_WORDS: Final = re.compile(r"[\s_.\-]+")
# Corners that are no larger are shares of the image with a slip of the pen at most: nobody labels
# what has two pixels.
_LARGEST_SHARE: Final = 2.0
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
# "1,024" in quotes: where commas separate the fields, this may well be a thousand.
_MAYBE_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
# With one of these errors nobody knows which images the rows are of.
_UNREAD: Final = frozenset(
    {
        "csv.invalid",
        "files.missing-image",
        "files.path-escape",
        "files.too-large",
        "files.unreadable",
        "text.encoding",
    }
)

_Size = tuple[int, int]


@dataclass
class _ImageRows:
    """What all tables say of one image."""

    file: str  # the first that names it
    boxes: list[NamedBox] = field(default_factory=list)
    size: _Size | None = None
    sizes_differ: bool = False


def read_csv(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read tables of pixel corners; whatever is wrong goes to `findings`, with file and line."""
    images: dict[str, _ImageRows] = {}
    labels = LabelsByName(tree, findings)
    names = ImageNames(tree)
    files = sorted(name for name in tree.files if name.lower().endswith(_SUFFIXES))
    tables = 0
    for file in files:
        text = read_text(tree.files[file], file, findings, max_bytes=MAX_TABLE_BYTES)
        head = None if text is None else find_head(text)
        if isinstance(head, NoHead):
            findings.add(head.fault, file, head.line)
        elif text is not None and head is not None:
            tables += 1
            table = _Table(file, head.delimiter, head.columns, names, images, labels, findings)
            for row in table_rows(text, head.delimiter):
                if row.line >= head.rows_from:
                    table.take(row)
            table.finish()
    if not tables and not findings.number_of(Severity.ERROR):
        rule = "the labels must lie in a table"
        advice = "add a .csv with the columns filename, xmin, ymin, xmax, ymax, class"
        findings.error("label.none", files[0] if files else "", "", rule, advice)
    for image, rows in images.items():
        size = None if rows.sizes_differ else rows.size
        labels.add(image, NamedLabels(rows.file, size, tuple(rows.boxes)))
    all_read = _UNREAD.isdisjoint(findings.codes(Severity.ERROR))
    return labels.annotations(FORMAT, report_unlabelled=all_read)


class _Table:
    """Takes the rows of one table, and brings them to the images they are of."""

    def __init__(
        self,
        file: str,
        delimiter: str,
        columns: Columns,
        names: ImageNames,
        images: dict[str, _ImageRows],
        labels: LabelsByName,
        findings: Findings,
    ) -> None:
        self._file = file
        self._delimiter = delimiter
        self._columns = columns
        self._names = names
        self._images = images
        self._labels = labels
        self._findings = findings
        self._split = _split_of_file(file)
        self._found: dict[str, str | None] = {}  # images by the names that rows give them
        self._placed: set[tuple[str, NamedSplit]] = set()
        self._classes: dict[str, str] = {}  # each name once in memory
        self._boxes: list[tuple[str, NamedBox]] = []
        self._sizeless: list[int] = []

    def take(self, row: TableRow) -> None:
        """Read a row below the header; what is wrong with it goes to the findings."""
        if not self._is_whole(row):
            return
        image = self._image(row)
        split = self._split_of(row)
        size = self._size(row)
        box = self._box(row)
        if image is None:
            return
        if split is not None and (image, split) not in self._placed:
            self._placed.add((image, split))
            self._labels.put_into(image, split)
        if size is not None:
            self._claim(image, size, row)
        if box is not None:
            self._boxes.append((image, box))

    def _is_whole(self, row: TableRow) -> bool:
        count = len(row.fields)
        while count > self._columns.count and not row.fields[count - 1]:
            count -= 1  # empty fields at the end mean nothing
        if not row.error and count == self._columns.count:
            return True
        rule = f"a row must have {self._columns.count} fields"
        advice = "correct the row; text with a delimiter or a quote in it must be in quotes"
        why = f"cannot be read: {row.error}" if row.error else f"has {count} fields"
        value = self._delimiter.join(row.fields)
        self._reject(row, _row_fault(value, rule, advice, f"a row of the table {why}"))
        place = self._columns.image
        if not row.error and place < count and is_image(row.fields[place]):
            self._image(row)  # that it has labels is known, though not which
        return False

    def finish(self) -> None:
        """Give the boxes to their images, and record what concerns more than one row."""
        if self._sizeless:
            rule, advice = "a size must be above 0", "the sizes of the images themselves were taken"
            value = f"{len(self._sizeless)} rows"
            fault = Fault(Severity.INFO, "csv.size-missing", value, rule, advice)
            self._findings.add(fault, self._file, self._sizeless[0])
        refused = self._lines_of_shares()
        for image, box in self._boxes:
            if box.line not in refused:
                self._images[image].boxes.append(box)

    def _lines_of_shares(self) -> set[int | None]:
        """The lines of boxes that seem to be shares of the image: all, or single ones."""
        small = [box for _, box in self._boxes if _may_be_shares(box)]
        shares = [box for box in small if not all(value.is_integer() for value in box[1:5])]
        rule = "corners must be in pixels"
        advice = (
            "multiply xmin and xmax by the image's width, ymin and ymax by its height; "
            "or export the labels in pixels"
        )
        problem = "boxes look like shares of the image, and not like pixels"
        all_are = bool(shares) and len(small) == len(self._boxes)
        for box in shares[:1] if all_are else shares:
            value = " ".join(f"{value:.10g}" for value in box[1:5])
            if all_are:
                value = f"{value}; all {len(small)} boxes are within 0..{_LARGEST_SHARE:g}"
            fault = _error("label.box-format-suspect", value, rule, advice, problem)
            self._findings.add(fault, self._file, box.line)
        return {box.line for box in (small if all_are else shares)}

    def _image(self, row: TableRow) -> str | None:
        """The image that the row names; what is wrong with a name is said once."""
        place = self._columns.image
        name = row.fields[place] if place < len(row.fields) else ""
        if not name:
            rule, advice = "a row must name its image", "write the name, or remove the row"
            problem = "a row does not say of which image it is"
            value = self._delimiter.join(row.fields)
            self._reject(row, _row_fault(value, rule, advice, problem))
            return None
        if name not in self._found:
            image = self._names.find(
                name, self._file, self._findings, line=row.line, prefer=self._is_of_split
            )
            self._found[name] = image
            if image is not None:
                self._images.setdefault(image, _ImageRows(self._file))
        return self._found[name]

    def _is_of_split(self, image: str) -> bool:
        """Whether an image lies in the folder of the split that the table's name says."""
        return self._split is not None and split_of_folders(image) == self._split

    def _split_of(self, row: TableRow) -> NamedSplit | None:
        place = self._columns.split
        if place is None or not row.fields[place]:
            return self._split
        split = split_of_name(row.fields[place])
        if split is None:
            rule, advice = "a split must be train, val or test", "correct it, or leave it empty"
            problem = "a row names a split that is none"
            self._reject(row, _row_fault(row.fields[place], rule, advice, problem))
        return split

    def _size(self, row: TableRow) -> _Size | None:
        """The size that the row claims for the image; None where it claims none."""
        if self._columns.width is None or self._columns.height is None:
            return None
        cells = [row.fields[self._columns.width], row.fields[self._columns.height]]
        if not any(cells):
            return None
        sides = [coordinate_in_text(cell) for cell in cells]
        faults = [side for side in sides if isinstance(side, Fault)]
        for fault in faults:
            self._reject(row, fault)
        if not faults and sides == [0, 0]:  # tools write 0 where they did not look
            self._sizeless.append(row.line)
        if faults or sides == [0, 0]:
            return None
        width, height = (side for side in sides if isinstance(side, float))
        if min(width, height) < 1 or not (width.is_integer() and height.is_integer()):
            rule = "an image's size must be two whole numbers above 0"
            advice = "correct the size, or leave its columns out"
            problem = "a row names a size that no image has"
            fault = _error("label.size-mismatch", " x ".join(cells), rule, advice, problem)
            self._reject(row, fault)
            return None
        return int(width), int(height)

    def _claim(self, image: str, size: _Size, row: TableRow) -> None:
        rows = self._images[image]
        if rows.size is None:
            rows.size = size
        elif rows.size != size and not rows.sizes_differ:
            rows.sizes_differ = True
            rule = f"an image must have one size; a row before says {_size_text(rows.size)}"
            advice = (
                "correct the sizes; or rename the columns, where they are the sizes of the boxes"
            )
            problem = "rows of one image name different sizes"
            fault = _error("label.size-mismatch", _size_text(size), rule, advice, problem)
            self._reject(row, fault)

    def _box(self, row: TableRow) -> NamedBox | None:
        """The box of a row; None where it has none, or a fault."""
        columns, fields = self._columns, row.fields
        cells = [
            fields[place] for place in (columns.left, columns.top, columns.right, columns.bottom)
        ]
        if not any(cells):
            return None  # an image with nothing on it
        if not all(cells):
            rule = "a row must have all corners of a box, or none for an image with nothing on it"
            advice = "write the missing corners, or remove the row"
            problem = "a row has a part of a box"
            self._reject(row, _row_fault(self._delimiter.join(fields), rule, advice, problem))
            return None
        corners = [coordinate_in_text(cell) for cell in self._with_points(cells, row)]
        faults = [corner for corner in corners if isinstance(corner, Fault)]
        name = fields[columns.class_name]
        if not name:
            rule, advice = "a box must have a class", "write the class, or remove the row"
            problem = "a box has no class"
            value = self._delimiter.join(fields)
            faults.append(_error("classes.names", value, rule, advice, problem))
        for fault in faults:
            self._reject(row, fault)
        if faults:
            return None
        left, top, right, bottom = (value for value in corners if isinstance(value, float))
        class_name = self._classes.setdefault(name, name)
        return NamedBox(class_name, left, top, right, bottom, row.line, file=self._file)

    def _with_points(self, cells: Sequence[str], row: TableRow) -> list[str]:
        """The cells with decimal points; as they are where their commas may mean something else."""
        decimal = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
        if not decimal or (
            self._delimiter == "," and any(map(_MAYBE_THOUSANDS.fullmatch, decimal))
        ):
            return list(cells)
        rule, advice = "numbers must have a decimal point", "the commas were read as decimal points"
        fault = Fault(Severity.WARNING, "label.decimal-comma", " ".join(cells), rule, advice)
        self._reject(row, fault)
        return [cell.replace(",", ".") if cell in decimal else cell for cell in cells]

    def _reject(self, row: TableRow, fault: Fault) -> None:
        self._findings.add(fault, self._file, row.line)


def _split_of_file(file: str) -> NamedSplit | None:
    """The split in a table's name, such as train.csv, val_labels.csv; None where it has two."""
    words = _BETWEEN_WORDS.split(posixpath.splitext(posixpath.basename(file))[0])
    splits = {split for word in words if (split := split_of_name(word)) is not None}
    return splits.pop() if len(splits) == 1 else None


def _may_be_shares(box: NamedBox) -> bool:
    return all(abs(value) <= _LARGEST_SHARE for value in box[1:5])


def _size_text(size: _Size) -> str:
    return f"{size[0]} x {size[1]}"


def _row_fault(value: str, rule: str, advice: str, problem: str) -> Fault:
    return _error("csv.invalid", value, rule, advice, problem)


def _error(code: str, value: str, rule: str, advice: str, problem: str) -> Fault:
    return Fault(Severity.ERROR, code, value, rule, advice, problem)
