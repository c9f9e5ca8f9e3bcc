"""Data sets that are not in a format we read: named for what they are, with what to do.

Looked for only where no image has a YOLO label file, so that left-over files of another tool beside
good labels are no reason to refuse a data set.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.datasets.findings import Findings
from perdure.datasets.formats.yolo_layout import IMAGE_FOLDERS, LABEL_FOLDERS
from perdure.datasets.report import plural
from perdure.datasets.tree import Tree

# COCO files have hundreds of megabytes: their lists begin at the head, and the classes, which are
# short, come first or last. 1 MiB of each end shows them, and an image that LabelMe embedded ends.
_END_BYTES: Final = 1 << 20
# Files of one ending that are looked into: one of them tells, and a folder may hold others first.
_LOOKED_INTO: Final = 20

_COCO_LISTS: Final = tuple(
    re.compile(rb'"%s"\s*:\s*\[' % name) for name in (b"images", b"annotations", b"categories")
)
_LABELME: Final = tuple(re.compile(rb'"%s"\s*:' % name) for name in (b"shapes", b"imagePath"))
_VOC: Final = re.compile(rb"<annotation[\s>]")
_CSV_COLUMNS: Final = re.compile(
    rb"\bx_?min\b.*\bx_?max\b|\bbbox\b|\bregion_shape_attributes\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Foreign:
    """A format that we do not read: its short name, its name for people, and a file in it."""

    format: str
    name: str
    file: str


def find_foreign(folder: Path, tree: Tree) -> Foreign | None:
    """The format that the annotation files of a data set without YOLO labels are in.

    `folder` is what was given; `tree` may begin in the one folder that it holds.
    """
    files = _beside_wrapping(folder.resolve(), tree.root) | tree.files
    for suffix, recognise in _RECOGNISERS.items():
        candidates = [name for name in sorted(files) if name.lower().endswith(suffix)]
        for name in candidates[:_LOOKED_INTO]:
            if found := recognise(_ends(files[name])):
                return Foreign(*found, name)
    return None


def _beside_wrapping(folder: Path, root: Path) -> dict[str, Path]:
    """The files in `folder`, and in those down to `root`, by their bare names."""
    found: dict[str, Path] = {}
    while root != folder:
        root = root.parent
        found |= {file.name: file for file in root.iterdir() if file.is_file()}
    return found


def report_foreign(foreign: Foreign, images: int, findings: Findings) -> None:
    """Record that the data set is in another format."""
    counted = plural(images, "image", "images")
    findings.error(
        "format.unsupported",
        foreign.file,
        "",
        "labels must be in the YOLO format",
        "convert them: for each images/NAME.jpg one labels/NAME.txt, with a row "
        "`class cx cy w h` for each box, as shares of the image, 0..1",
        problem=f"this looks like {foreign.name}, with {counted}; this version reads YOLO",
    )


def data_set_around(folder: Path) -> Path | None:
    """The data set's folder when `folder` is, or lies in, its folder of images or of labels."""
    folder = folder.resolve()
    for inner in (folder, *folder.parents):
        try:
            beside = {entry.name for entry in inner.parent.iterdir() if entry.is_dir()}
        except OSError:
            return None
        whole = beside & IMAGE_FOLDERS and beside & LABEL_FOLDERS
        if whole and inner.name in IMAGE_FOLDERS | LABEL_FOLDERS:
            return inner.parent
    return None


def report_inner_folder(folder: Path, around: Path, findings: Findings) -> None:
    """Record that the folder is only a part of the data set `around` it."""
    inner = folder.resolve().relative_to(around).as_posix()
    findings.error(
        "files.not-the-top",
        "",
        inner,
        "the folder must hold the folders images and labels",
        f"give the folder {around}",
    )


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


def _recognise_xml(data: bytes) -> tuple[str, str] | None:
    return ("pascal-voc", "Pascal VOC") if _VOC.search(data) else None


def _recognise_json(data: bytes) -> tuple[str, str] | None:
    if sum(bool(part.search(data)) for part in _COCO_LISTS) >= 2:
        return "coco", "COCO"
    return ("labelme", "LabelMe") if all(part.search(data) for part in _LABELME) else None


def _recognise_csv(data: bytes) -> tuple[str, str] | None:
    header = data.lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    return ("csv", "a CSV table of boxes") if _CSV_COLUMNS.search(header) else None


_RECOGNISERS: Final[dict[str, Callable[[bytes], tuple[str, str] | None]]] = {
    ".xml": _recognise_xml,
    ".json": _recognise_json,
    ".csv": _recognise_csv,
}
