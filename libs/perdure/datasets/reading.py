"""Reading a data set's labels: in which format they are, and the reader for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Findings, Severity
from perdure.datasets.formats.coco import read_coco
from perdure.datasets.formats.csv_table import read_csv
from perdure.datasets.formats.cvat import read_cvat
from perdure.datasets.formats.label_studio import read_label_studio
from perdure.datasets.formats.labelme import read_labelme
from perdure.datasets.formats.voc import read_voc
from perdure.datasets.formats.yolo import has_config, has_labels, read_yolo
from perdure.datasets.rules import FormatName, ImportRules
from perdure.datasets.signatures import SUFFIXES, format_of
from perdure.datasets.tree import Tree

Reader = Callable[[Tree, ImportRules, Findings], Annotations]

READERS: Final[dict[FormatName, Reader]] = {
    "yolo": read_yolo,
    "coco": read_coco,
    "voc": read_voc,
    "csv": read_csv,
    "labelme": read_labelme,
    "cvat": read_cvat,
    "label-studio": read_label_studio,
}
# Files of one ending that are looked into: one of them tells, and a folder may hold others first.
_LOOKED_INTO: Final = 20


def read_annotations(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read the labels in `tree`, in the format that `rules` name or that their content shows."""
    chosen = rules.format or _recognised(tree, findings)
    if chosen is None:
        return Annotations("unknown", (), ())
    annotations = READERS[chosen](tree, rules, findings)
    # After an error it is refused anyway, and what is missing may be what could not be read.
    sound = findings.number_of(Severity.ERROR) == 0
    if sound and {image.split for image in annotations.images} == {"val"}:
        return _without_splits(annotations, findings)
    return annotations


def _without_splits(annotations: Annotations, findings: Findings) -> Annotations:
    """One split is none: with nothing to train on, the images are parted anew."""
    findings.warning(
        "split.only-val",
        "",
        f"{len(annotations.images)} images",
        "beside images to validate on there must be others to train on",
        "they were taken as images of no split, and Perdure makes one; add the others if any are "
        "missing",
    )
    images = tuple(replace(image, split=None) for image in annotations.images)
    return replace(annotations, images=images)


def _recognised(tree: Tree, findings: Findings) -> FormatName | None:
    """The format of the labels. Files of another tool beside YOLO's labels do not matter."""
    if has_labels(tree):
        return "yolo"
    found: dict[FormatName, str] = {}
    unknown: list[str] = []
    for suffix in SUFFIXES:
        files = sorted(name for name in tree.files if name.lower().endswith(suffix))
        unknown += files
        for name in files[:_LOOKED_INTO]:
            if known := format_of(tree.files[name]):
                found.setdefault(known, name)
    if len(found) > 1:
        names = ", ".join(f"{file} ({known})" for known, file in found.items())
        rule, advice = "labels must be in one format", f"choose with --format: {', '.join(found)}"
        findings.error("format.ambiguous", "", names, rule, advice)
        return None
    if not found and unknown and not has_config(tree):
        rule = f"labels must be in a format that is read: {', '.join(READERS)}"
        advice = "export them again in one of these; --format says what is wrong in a file of it"
        findings.error("format.unknown", unknown[0], "", rule, advice)
        return None
    return next(iter(found), "yolo")
