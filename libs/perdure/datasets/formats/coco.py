"""The COCO format: one JSON file, or one for each split, with images, categories, annotations."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity, quoted
from perdure.datasets.formats.by_name import LabelsByName, NamedLabels
from perdure.datasets.formats.coco_annotations import KEYPOINTS, AnnotationReader, other_task
from perdure.datasets.formats.coco_categories import Categories, read_categories, report_remapped
from perdure.datasets.formats.coco_ids import IdTypes
from perdure.datasets.formats.coco_images import (
    FindImage,
    ListedImage,
    ListedImages,
    read_images,
)
from perdure.datasets.formats.split_names import NamedSplit, split_of_folders, split_of_name
from perdure.datasets.image_names import ImageNames
from perdure.datasets.json_file import json_fault, read_json
from perdure.datasets.rules import ImportRules
from perdure.datasets.signatures import format_of
from perdure.datasets.tree import Tree

FORMAT: Final = "coco"

# The largest of COCO has 449 MiB. What is read takes several times that in memory.
MAX_COCO_BYTES: Final = 1 << 30

_BETWEEN_WORDS: Final = re.compile(r"[^A-Za-z0-9]+")
# The classes of the first file come first: of what trains.
_SPLIT_ORDER: Final[dict[NamedSplit | None, int]] = {"train": 0, None: 1, "val": 2, "test": 3}


def read_coco(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read a COCO data set; whatever is wrong with it goes to `findings`, with file and pointer.

    Files are merged by the names of their classes. Which split a file is of, its name says or the
    name of its folder. Crowd regions are left out, as they are no objects.
    """
    files = {name: _split_of_file(name) for name in _label_files(tree, findings)}
    if not files:
        rule, advice = "a COCO data set must have a .json file", "add the file with the annotations"
        problem = "there is no COCO file"
        findings.error("label.none", "", "", rule, advice, problem=problem)
        return Annotations(FORMAT, (), ())
    merge = _Merge(tree, rules, findings)
    in_order = sorted(files, key=lambda name: (_SPLIT_ORDER[files[name]], name))
    for name in in_order:
        merge.read(name, files[name])
    merge.settle()
    return merge.annotations()


class _Merge:
    """Takes one file after the other, and gives what all of them hold."""

    def __init__(self, tree: Tree, rules: ImportRules, findings: Findings) -> None:
        self._tree = tree
        self._rules = rules
        self._findings = findings
        self._names = ImageNames(tree)
        self._labels = LabelsByName(tree, findings)
        self._classes: dict[str, int] = {}
        # The first file that lists an image, and its split.
        self._owners: dict[str, tuple[str, NamedSplit | None]] = {}
        self._all_read = True
        self._others: dict[str, tuple[NamedSplit | None, str]] = {}  # files for other tasks
        self._first_file = ""  # of those that are read for boxes

    def read(self, file: str, split: NamedSplit | None) -> None:
        """Read a file; of a test file only which images it lists, as they are left out.

        One for another task than detection is kept for `settle`.
        """
        value = read_json(self._tree.files[file], file, self._findings, max_bytes=MAX_COCO_BYTES)
        task = "" if split == "test" else other_task(value, may_lack_list=split is None)
        if task:
            self._others[file] = (split, task)
        else:
            self._take(value, file, split)

    def settle(self) -> None:
        """Leave the files for other tasks out, where there are files for detection.

        COCO has captions, panoptic segments and keypoints of the images of which it has boxes.
        Keypoints come with boxes: such a file is read, where no image of it is in another one.
        """
        known = frozenset(self._owners)
        in_turn = sorted(self._others.items(), key=lambda other: other[1][1] != KEYPOINTS)
        for file, (split, task) in in_turn:
            value = read_json(self._tree.files[file], file, Findings(), max_bytes=MAX_COCO_BYTES)
            left_out = (
                not known.isdisjoint(self._listed(value, file, split))
                if task == KEYPOINTS
                else self._first_file
            )
            if left_out:
                rule = "labels must be boxes, of each image in one file"
                advice = f"it was left out, as it has {task}; {self._first_file} was read"
                self._findings.warning("files.not-labels", file, task, rule, advice)
            else:
                self._take(value, file, split)

    def _take(self, value: object, file: str, split: NamedSplit | None) -> None:
        if split != "test":
            self._first_file = self._first_file or file
        images = None
        if isinstance(value, dict):
            images = (
                self._listed_images(value, file, split)
                if split == "test"
                else self._read(value, file, split)
            )
        elif value is not None:
            rule = "a COCO file must be an object with images, annotations and categories"
            self._findings.add(json_fault(value, rule, "export it again as COCO"), file, pointer="")
        if images is None:
            self._all_read = False
        else:
            self._add_images(images, file, split)

    def annotations(self) -> Annotations:
        """All images with their boxes."""
        return self._labels.annotations(
            FORMAT,
            declared=tuple(self._classes),
            declared_in=self._first_file,
            listed_only=True,
            report_unlabelled=self._all_read,
        )

    def _read(
        self, value: dict[str, Any], file: str, split: NamedSplit | None
    ) -> ListedImages | None:
        image_ids, category_ids = IdTypes(), IdTypes()
        find = self._finder(file, split, self._findings)
        images = read_images(value, file, image_ids, find, self._findings)
        categories = read_categories(value, file, category_ids, self._findings)
        if categories is not None:
            self._add_classes(categories, file)
        if images is not None:
            reader = AnnotationReader(
                file, images, categories, image_ids, category_ids, self._rules, self._findings
            )
            reader.read(value)
            for class_name in reader.unread:
                self._labels.note_unread(class_name)
        image_ids.report(file, self._findings)
        category_ids.report(file, self._findings)
        return images

    def _listed_images(
        self, value: dict[str, Any], file: str, split: NamedSplit | None
    ) -> ListedImages | None:
        """The images of a file that is left out; what is wrong with it is left out as well."""
        unheard = Findings()
        return read_images(value, file, IdTypes(), self._finder(file, split, unheard), unheard)

    def _listed(self, value: object, file: str, split: NamedSplit | None) -> Iterable[str]:
        images = self._listed_images(value, file, split) if isinstance(value, dict) else None
        return images.by_path if images else ()

    def _finder(self, file: str, split: NamedSplit | None, findings: Findings) -> FindImage:
        def is_of_split(path: str) -> bool:
            return split_of_folders(path) == split

        prefer = is_of_split if split else None
        return lambda name, place: self._names.find(
            name, file, findings, pointer=place, prefer=prefer
        )

    def _add_classes(self, categories: Categories, file: str) -> None:
        for name in categories.values():
            if name is not None:
                self._classes.setdefault(name, len(self._classes))
        report_remapped(categories, self._classes, file, self._findings)

    def _add_images(self, images: ListedImages, file: str, split: NamedSplit | None) -> None:
        again: dict[str, list[str]] = defaultdict(list)
        for path, image in images.by_path.items():
            owner, first_split = self._owners.setdefault(path, (file, split))
            if owner == file or {first_split, split} == {"train", "val"}:
                if split is not None:
                    self._labels.put_into(path, split)
            elif split != "test":
                again[owner].append(path)
            if owner == file:
                self._labels.add(path, _labels(image, file))
        for owner, paths in again.items():
            self._findings.add(_listed_by_two(owner, paths), file)


def _label_files(tree: Tree, findings: Findings) -> list[str]:
    """The COCO files; where none is recognised, all that could be one."""
    files = sorted(name for name in tree.files if name.lower().endswith(".json"))
    formats = {name: format_of(tree.files[name]) for name in files}
    found = [name for name in files if formats[name] == FORMAT]
    for name in files if found else ():
        if formats[name] != FORMAT:
            rule = "a COCO file must have images, annotations and categories"
            advice = "it was left out: remove it, or see what wrote it"
            findings.warning("files.not-labels", name, formats[name] or "", rule, advice)
    return found or files


def _split_of_file(file: str) -> NamedSplit | None:
    """The split that a file's name tells, as instances_train2017.json does, or its folder's."""
    words = _BETWEEN_WORDS.split(posixpath.splitext(posixpath.basename(file))[0])
    named = {split for word in words if (split := split_of_name(word)) is not None}
    if len(named) > 1:  # train_val.json
        return None
    return next(iter(named), None) or split_of_folders(file)


def _labels(image: ListedImage, file: str) -> NamedLabels:
    return NamedLabels(file, image.size, tuple(image.boxes), image.group)


def _listed_by_two(owner: str, paths: list[str]) -> Fault:
    return Fault(
        Severity.ERROR,
        "coco.image-in-two-files",
        f"{len(paths)} images, first {min(paths)}",
        f"an image must be listed in one file; {quoted(owner)} has it too",
        "remove one of the two files, or put the annotations of both into one",
    )
