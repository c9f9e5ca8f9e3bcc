"""The lists of images in a data set of Pascal VOC: ImageSets/Main/train.txt and its like."""

import posixpath
import re
from typing import Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName
from perdure.datasets.formats.split_names import NamedSplit
from perdure.datasets.formats.voc_images import VocImages
from perdure.datasets.text import lines, read_text
from perdure.datasets.tree import Tree, is_image

# Those of single classes (aeroplane_train.txt) and of other tasks (Segmentation, Layout) say
# nothing about detection. Some tools leave Main out.
_FOLDERS: Final = ("Main", "ImageSets")
_SPLITS: Final[dict[str, NamedSplit | None]] = {
    "train.txt": "train",
    "val.txt": "val",
    "trainval.txt": None,
    "test.txt": "test",
}
# In lists that were made from those of a class, each name has a mark: present, absent, difficult.
_MARKED: Final = re.compile(r"(.*\S)\s+(?:-1|0|1)")


def read_lists(
    tree: Tree, images: VocImages, labels: LabelsByName, findings: Findings
) -> set[str] | None:
    """The images that the lists name, which are put into their splits; None without lists.

    Only where neither train nor val is listed, trainval says what there is.
    """
    lists = _lists(tree)
    if any(split in ("train", "val") for split in lists.values()):
        lists = {file: split for file, split in lists.items() if split is not None}
    elif None not in lists.values():
        return None  # test alone does not say what else there is
    listed: set[str] = set()
    for file, split in lists.items():
        found = _read_list(tree, file, split, images, findings)
        listed.update(found)
        if split is not None:
            for image in found:
                labels.put_into(image, split)
    return listed


def _lists(tree: Tree) -> dict[str, NamedSplit | None]:
    """The lists and their splits, test last."""
    for folder in _FOLDERS:
        found = {
            file: _SPLITS[posixpath.basename(file)]
            for file in sorted(tree.files)
            if posixpath.basename(file) in _SPLITS
            and posixpath.basename(posixpath.dirname(file)) == folder
        }
        if found:
            return dict(sorted(found.items(), key=lambda entry: entry[1] == "test"))
    return {}


def _read_list(
    tree: Tree, file: str, split: NamedSplit | None, images: VocImages, findings: Findings
) -> list[str]:
    text = read_text(tree.files[file], file, findings)
    if text is None:
        return []
    entries = [(number, line.strip()) for number, line in enumerate(lines(text), 1) if line.strip()]
    found = []
    for number, entry in entries:
        image = _image(entry, file, images)
        if isinstance(image, str):
            found.append(image)
        elif split != "test":  # test images are often kept elsewhere
            findings.add(image, file, number)
    if not entries and split in ("train", "val"):
        # Without this the data set would be split anew, against its lists.
        rule, advice = "a list must name images", "add them, or remove the lists of train and val"
        problem = "the list of a split is empty"
        findings.error("split.too-few-images", file, "", rule, advice, problem=problem)
    return found


def _image(entry: str, file: str, images: VocImages) -> str | Fault:
    """The image that a line of a list means: a name without ending, as a rule."""
    marked = _MARKED.fullmatch(entry)
    names = [entry, marked[1]] if marked else [entry]
    for name in names:
        plain = name.strip('"')
        stem = posixpath.splitext(plain)[0] if is_image(plain) else plain
        found = images.of_stem(stem, file)
        if len(found) > 1 and is_image(plain):
            found = [image for image in found if image.endswith(plain.replace("\\", "/"))]
        if len(found) == 1:
            return found[0]
        if found:
            rule = f"a name must mean one image; this could be {found[0]} or {found[1]}"
            advice = "rename one of the images"
            return Fault(Severity.ERROR, "files.image-ambiguous", entry, rule, advice)
    rule, advice = "a list must name images that exist", "add the image or remove the line"
    return Fault(Severity.ERROR, "files.missing-image", entry, rule, advice)
