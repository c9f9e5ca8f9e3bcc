"""A folder that is only a part of a YOLO data set: named for what it is."""

from pathlib import Path

from perdure.datasets.findings import Findings
from perdure.datasets.formats.yolo_layout import IMAGE_FOLDERS, LABEL_FOLDERS


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
