"""The YOLO format: images, one label file for each, and a data.yaml (or just folders)."""

import posixpath
from collections.abc import Iterable
from typing import Final

from perdure.datasets.annotation import AnnotatedImage, Annotations, Box
from perdure.datasets.border import clip_box
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.class_use import check_use
from perdure.datasets.formats.image_groups import read_groups
from perdure.datasets.formats.unlabelled import report_unlabelled
from perdure.datasets.formats.yolo_config import MAX_CONFIG_BYTES, YoloConfig, parse_config
from perdure.datasets.formats.yolo_inner_folder import data_set_around, report_inner_folder
from perdure.datasets.formats.yolo_layout import label_name, split_images
from perdure.datasets.formats.yolo_rows import RowFormat, parse_row
from perdure.datasets.formats.yolo_suspect import check_box_format
from perdure.datasets.rules import ImportRules
from perdure.datasets.text import lines, read_text
from perdure.datasets.tree import Tree

FORMAT: Final = "yolo"

_CONFIG_NAMES: Final = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_CLASSES_FILE: Final = "classes.txt"
# Text files that tools put beside labels and that hold none.
_NO_LABELS: Final = frozenset({"classes.txt", "train.txt", "val.txt", "valid.txt", "test.txt"})
# Errors about where images lie.
_ABOUT_PLACES: Final = ("yaml.path", "files.")

# A box as it is written, its line number, and the line.
_Row = tuple[Box, int, str]

# Pictures that no training here reads; without a word they would be missing.
_OTHER_IMAGES: Final = frozenset(
    {".avif", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jxl", ".pgm", ".ppm", ".tga"}
)


def has_labels(tree: Tree) -> bool:
    """Whether any image has a label file where YOLO's lie."""
    return any(_label_file(tree, image) in tree.files for image in tree.images())


def has_config(tree: Tree) -> bool:
    """Whether a file at the top says that this is a YOLO data set, labels or not."""
    return any("/" not in name and name.lower().endswith((".yaml", ".yml")) for name in tree.files)


def read_yolo(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read a YOLO data set; whatever is wrong with it goes to `findings`, with file and line."""
    config_file, config = _config(tree, findings)
    splits, left_out = split_images(tree, config, config_file, findings)
    if not config_file and not has_labels(tree) and (around := data_set_around(tree.root)):
        report_inner_folder(tree.root, around, findings)
        return Annotations(FORMAT, (), ())
    if not splits:
        _report_no_images(tree, config_file, findings)
    _check_stems(splits, findings)
    names = config.classes or (None if config_file else _classes_file(tree, findings))
    form = RowFormat(
        len(names) if names else None,
        config.keypoint_fields,
        rules.sixth_field,
        rules.drop_degenerate,
    )
    groups = read_groups(tree, config.groups, config_file, findings) if config.groups else {}
    images = []
    as_written: list[Box] = []
    past_border = Findings()
    for name, split in sorted(splits.items()):
        label_file = _label_file(tree, name)
        rows = _read_labels(tree, label_file, form, findings)
        as_written += [box for box, _, _ in rows]
        boxes = _clip(rows, label_file, past_border, findings)
        group = groups.get(name, "")
        images.append(AnnotatedImage(name, tree.files[name], boxes, split, group=group))
    _report_files(tree, splits, findings)
    if not check_box_format(as_written, config_file, findings):
        findings.take_over(past_border)  # of rows that mean something else they are noise
    used = {box[0] for image in images for box in image.boxes}
    classes = names if names is not None else _made_up(used, bool(config_file), findings)
    advice = "see that the labels of images/NAME.jpg lie in labels/NAME.txt"
    check_use(classes, used, config_file, advice, findings)
    return Annotations(FORMAT, classes, tuple(images), left_out)


def _config(tree: Tree, findings: Findings) -> tuple[str, YoloConfig]:
    """The name of data.yaml, "" when there is none, and what it says."""
    here = sorted(name for name in tree.files if name.lower().endswith((".yaml", ".yml")))
    here = [name for name in here if "/" not in name]
    preferred = [name for name in (tree.given, *_CONFIG_NAMES) if name in here]
    if not here:
        for name in sorted(tree.files):
            if posixpath.basename(name) in _CONFIG_NAMES:
                rule = "data.yaml must lie at the top of the data set"
                advice = f"give the folder {posixpath.dirname(name)}, or move the file to the top"
                findings.error("yaml.not-at-top", name, "", rule, advice)
        return "", YoloConfig()
    if not preferred and len(here) > 1:
        rule = "a data set must have one data.yaml"
        findings.error(
            "yaml.ambiguous", here[0], ", ".join(here), rule, "rename the right one to data.yaml"
        )
    file = preferred[0] if preferred else here[0]
    text = read_text(tree.files[file], file, findings, max_bytes=MAX_CONFIG_BYTES)
    return file, parse_config(text, file, findings) if text is not None else YoloConfig()


def _check_stems(images: Iterable[str], findings: Findings) -> None:
    owners: dict[str, str] = {}
    for image in sorted(images):
        owner = owners.setdefault(label_name(image), image)
        if owner != image:
            findings.error(
                "files.stem-collision",
                image,
                owner,
                f"an image must have a label file of its own; both would read {label_name(image)}",
                "rename one of the images, and give it labels",
            )


def _label_file(tree: Tree, image: str) -> str:
    """The name of an image's label file, whether it is there or not."""
    name = label_name(image)
    upper = name.removesuffix(".txt") + ".TXT"
    return upper if name not in tree.files and upper in tree.files else name


def _report_no_images(tree: Tree, config_file: str, findings: Findings) -> None:
    said = any(code.startswith(_ABOUT_PLACES) for code in findings.codes(Severity.ERROR))
    if said and tree.images():
        return  # there are images; why they were not found is said already
    findings.error(
        "files.no-images",
        config_file,
        "",
        "a data set must have images",
        "give a folder with data.yaml, or with the folders images and labels",
    )


def _read_labels(tree: Tree, name: str, form: RowFormat, findings: Findings) -> list[_Row]:
    """The rows of a label file that can be read, as they are written."""
    path = tree.files.get(name)
    if path is None:
        return []
    text = read_text(path, name, findings)
    rows: list[_Row] = []
    for number, line in enumerate(lines(text or ""), start=1):
        if not line.strip():
            continue
        row = parse_row(line, form)
        for found in row.faults:
            findings.add(found, name, number)
        if row.box is not None:
            rows.append((row.box, number, line))
    return rows


def _clip(
    rows: Iterable[_Row], name: str, past_border: Findings, findings: Findings
) -> tuple[Box, ...]:
    """The boxes inside of the image, each once."""
    boxes: dict[Box, int] = {}
    for as_written, number, line in rows:
        box, fault = clip_box(as_written, line)
        if fault is not None:
            past_border.add(fault, name, number)
        if boxes.setdefault(box, number) != number:
            rule = f"a box must occur once; this one is in line {boxes[box]}"
            note = Fault(Severity.INFO, "label.duplicate", line, rule, "it was read once")
            findings.add(note, name, number)
    return tuple(boxes)


def _classes_file(tree: Tree, findings: Findings) -> tuple[str, ...] | None:
    """The names in classes.txt, which labelling tools write; None without one."""
    file = next(
        (name for name in (_CLASSES_FILE, f"labels/{_CLASSES_FILE}") if name in tree.files), None
    )
    if file is None:
        return None
    text = read_text(tree.files[file], file, findings, max_bytes=MAX_CONFIG_BYTES)
    if text is None:
        return None
    names = tuple(line.strip() for line in lines(text.strip()))
    if len(set(names)) != len(names) or not all(name and name.isprintable() for name in names):
        rule = "each line must name one class, and no two may be equal"
        findings.error("classes.names", file, "", rule, "correct the file, or write a data.yaml")
        return None
    return names


def _made_up(used: set[int], has_config: bool, findings: Findings) -> tuple[str, ...]:
    names = tuple(f"class{index}" for index in range(max(used, default=-1) + 1))
    if names and not has_config:  # with a data.yaml its missing names are an error already
        findings.warning(
            "classes.unnamed",
            "",
            ", ".join(names),
            "classes must have names",
            "names were made up: add a data.yaml with names, or a classes.txt",
        )
    return names


def _report_files(tree: Tree, images: Iterable[str], findings: Findings) -> None:
    images = set(images)
    missing = sorted(image for image in images if _label_file(tree, image) not in tree.files)
    rule = "an image must have a label file, empty when nothing is on it"
    where = (
        "see that the labels of images/NAME.jpg lie in labels/NAME.txt; "
        "for images with nothing on them create empty .txt files"
    )
    report_unlabelled(missing, len(images), rule, where, findings)
    every_label = {_label_file(tree, image) for image in tree.images()}
    label_folders = {posixpath.dirname(label_name(image)) for image in images}
    folders = label_folders | {posixpath.dirname(image) for image in images}
    for name in sorted(tree.files):
        suffix = posixpath.splitext(name)[1].lower()
        folder = posixpath.dirname(name)
        is_label = suffix == ".txt" and posixpath.basename(name).lower() not in _NO_LABELS
        if is_label and name not in every_label and folder in folders:
            rule, advice = (
                "a label file must belong to an image",
                "add the image or remove the file",
            )
            if folder not in label_folders:
                rule = "the labels of images in a folder images must lie in a folder labels"
                advice = f"move it to {label_name(name)}, or remove it"
            findings.warning("files.label-without-image", name, "", rule, advice)
        elif suffix in _OTHER_IMAGES:
            rule = "images must be JPEG, PNG, BMP, TIFF or WebP, and be named so"
            advice = "it was left out: convert it, e.g. to PNG, or rename it"
            findings.warning("files.unsupported-image", name, suffix, rule, advice)
