"""Which annotation format a file is in, as its content shows it; YOLO's has no sign of its own."""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perdure.datasets.rules import FormatName

# COCO files have hundreds of megabytes: their lists begin at the head, and the classes, which are
# short, come first or last. 1 MiB of each end shows them, and an image that LabelMe embedded ends.
_END_BYTES: Final = 1 << 20

_COCO_LISTS: Final = tuple(
    re.compile(rb'"%s"\s*:\s*\[' % name) for name in (b"images", b"annotations", b"categories")
)
_LABELME: Final = tuple(re.compile(rb'"%s"\s*:' % name) for name in (b"shapes", b"imagePath"))
_LABEL_STUDIO: Final = re.compile(rb'"(rectanglelabels|original_width)"\s*:')
_VOC: Final = re.compile(rb"<annotation[\s>]")
_CVAT: Final = re.compile(rb"<annotations[\s>]")
_CSV_COLUMNS: Final = re.compile(
    rb"\A(?=.*\b(x_?min|x1|left)\b).*\b(x_?max|x2|right)\b|\b(bbox|region_shape_attributes)\b",
    re.IGNORECASE,
)
# A row without a header: path,x1,y1,x2,y2,class, or the path alone for an image without a box.
_CSV_ROW: Final = re.compile(rb"""[^,;\t]+\.\w{3,4}"?([,;\t])(\1{4}|([+-]?\d+([.]\d*)?\1){4})""")


def format_of(path: Path) -> FormatName | None:
    """The format of a label file, or None for another file or one that cannot be read."""
    recognise = _RECOGNISERS.get(posixpath.splitext(path.name)[1].lower())
    # Of UTF-16 every other byte is 0 in what is looked for.
    return recognise(_ends(path).replace(b"\0", b"")) if recognise else None


def _ends(path: Path) -> bytes:
    """The head and the tail of a file; nothing of one that cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_END_BYTES)
            size = path.stat().st_size
            file.seek(max(size - _END_BYTES, len(head)))
            return head + b"\n" + file.read(_END_BYTES)
    except OSError:
        return b""  # it is not a file of labels that anybody could read


def _recognise_xml(data: bytes) -> FormatName | None:
    if _CVAT.search(data):
        return "cvat"
    return "voc" if _VOC.search(data) else None


def _recognise_json(data: bytes) -> FormatName | None:
    if sum(bool(part.search(data)) for part in _COCO_LISTS) >= 2:
        return "coco"
    if all(part.search(data) for part in _LABELME):
        return "labelme"
    return "label-studio" if _LABEL_STUDIO.search(data) else None


def _recognise_csv(data: bytes) -> FormatName | None:
    # Excel may put a line before the header.
    plain = data[:_END_BYTES].lstrip(b"\xef\xbb\xbf\xff\xfe").splitlines()
    first = [line for line in plain if line.strip()][:2]
    known = any(_CSV_COLUMNS.search(line) or _CSV_ROW.match(line) for line in first)
    return "csv" if known else None


_RECOGNISERS: Final[dict[str, Callable[[bytes], FormatName | None]]] = {
    ".xml": _recognise_xml,
    ".json": _recognise_json,
    ".csv": _recognise_csv,
    ".tsv": _recognise_csv,
}
SUFFIXES: Final = tuple(_RECOGNISERS)
