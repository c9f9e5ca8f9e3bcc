"""Labels in pixels with classes by name, as most formats have them, brought together.

A reader gives the labels of one image after the other, in any order; the class ids follow from the
names, and the splits from what the reader says or from the names of folders.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from perdure.datasets.annotation import (
    MAX_CLASSES,
    AnnotatedImage,
    Annotations,
    Corners,
    PixelLabels,
)
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.class_use import check_use
from perdure.datasets.formats.split_names import NamedSplit, split_of_folders
from perdure.datasets.formats.unlabelled import report_unlabelled
from perdure.datasets.tree import Tree

MAX_NAME_CHARACTERS: Final = 100


class NamedBox(NamedTuple):
    """A box in pixels as a label file has it; see `Corners`."""

    class_name: str
    left: float
    top: float
    right: float
    bottom: float
    line: int | None = None
    pointer: str | None = None
    file: str | None = None
    shares: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class NamedLabels:
    """The labels of one image. `size` is what the label file claims, None without a claim."""

    file: str
    size: tuple[int, int] | None
    boxes: tuple[NamedBox, ...]
    group: str = ""  # see `AnnotatedImage`


class LabelsByName:
    """Takes the labels of images, and gives all of them as Annotations."""

    def __init__(self, tree: Tree, findings: Findings) -> None:
        self._tree = tree
        self._findings = findings
        self._labels: dict[str, NamedLabels] = {}
        self._splits: dict[str, NamedSplit] = {}
        self._unread: set[str] = set()
        self._left_out: set[str] = set()

    def add(self, image: str, labels: NamedLabels) -> None:
        """Take the labels of an image of the tree. A second file for it is an error."""
        first = self._labels.setdefault(image, labels)
        if first is not labels:
            self._findings.error(
                "files.stem-collision",
                labels.file,
                image,
                f"an image must have one label file; this one has {first.file} too",
                "remove one of the two, or put the boxes into one",
                problem="two label files are of one image",
            )

    def note_unread(self, class_name: str) -> None:
        """Say that a class has a box that was refused, so that it does not count as unused."""
        self._unread.add(class_name)

    def leave_out(self, image: str) -> None:
        """Say that an image without labels is left out, and that this has been recorded."""
        self._left_out.add(image)

    def put_into(self, image: str, split: NamedSplit) -> None:
        """Say which split an image is in; being in train and in val is an error."""
        first = self._splits.setdefault(image, split)
        if {first, split} == {"train", "val"}:
            self._findings.error(
                "split.leakage",
                image,
                "",
                "an image must be in train or in val, not in both",
                "correct the lists of images",
            )

    def annotations(
        self,
        format_: str,
        *,
        declared: tuple[str, ...] | None = None,
        declared_in: str = "",
        listed_only: bool = False,
        report_unlabelled: bool = True,
    ) -> Annotations:
        """All images with their labels.

        Class ids are in the order of `declared` (named in the file `declared_in`), which has the
        names of all boxes, and otherwise in the order of the names. Images without labels count as
        background and are recorded, as an error where most have none; with `listed_only` they are
        left out, as the format lists its images. Without `report_unlabelled` they are not recorded:
        for a reader that could not read all its files.
        """
        first_uses = self._first_uses()
        classes = declared if declared is not None else tuple(sorted(first_uses))
        self._check_names(classes, declared_in, first_uses)
        index = {name: number for number, name in enumerate(classes)}
        images, left_out = self._images(index, listed_only)
        if report_unlabelled and self._labels:  # that there are none at all is said below
            self._report_unlabelled(listed_only)
        used = {index[name] for name in self._unread if name in index}
        used |= {
            box.class_index for image in images if image.pixels for box in image.pixels.corners
        }
        check_use(classes, used, declared_in, "see that the label files have boxes", self._findings)
        return Annotations(format_, tuple(map(_writable, classes)), images, left_out)

    def _images(
        self, index: dict[str, int], listed_only: bool
    ) -> tuple[tuple[AnnotatedImage, ...], int]:
        """The images to import, and the number of test images."""
        taken = []
        left_out = 0
        for image in sorted(self._labels) if listed_only else self._tree.images():
            split = self._split(image)
            if split == "test":
                left_out += 1
                continue
            labels = self._labels.get(image)
            pixels = None if labels is None else _pixel_labels(labels, index)
            group = "" if labels is None else labels.group
            taken.append(AnnotatedImage(image, self._tree.files[image], (), split, pixels, group))
        return tuple(taken), left_out

    def _split(self, image: str) -> NamedSplit | None:
        if self._splits:
            return self._splits.get(image)
        return split_of_folders(image)

    def _report_unlabelled(self, listed_only: bool) -> None:
        known = self._labels.keys() | self._left_out
        images = self._tree.images()
        if not listed_only:  # test images are left out, with labels or without
            images = [image for image in images if self._split(image) != "test"]
        unlabelled = [image for image in images if image not in known]
        if not listed_only:
            rule = "an image must have labels, empty ones when nothing is on it"
            where = (
                "see that all label files are there, and that they name their images rightly; "
                "add empty labels for images with nothing on them"
            )
            report_unlabelled(unlabelled, len(images), rule, where, self._findings)
        elif unlabelled:
            counted = f"{len(unlabelled)} of {len(images)} images"
            rule, advice = "images must be listed", "they were left out: list them, or remove them"
            self._findings.warning("files.unlisted-image", unlabelled[0], counted, rule, advice)

    def _check_names(
        self,
        classes: tuple[str, ...],
        declared_in: str,
        first_uses: dict[str, tuple[str, NamedBox]],
    ) -> None:
        for name in classes:
            if fault := name_fault(name):
                if use := first_uses.get(name):
                    file, box = use
                    self._findings.add(fault, box.file or file, box.line, box.pointer)
                else:
                    self._findings.add(fault, declared_in)
        if len(classes) > MAX_CLASSES:
            rule = f"there must be at most {MAX_CLASSES} classes"
            advice = "see whether the names are classes, and not descriptions"
            self._findings.error("classes.names", "", f"{len(classes)}", rule, advice)

    def _first_uses(self) -> dict[str, tuple[str, NamedBox]]:
        """The first box of each class that a box names, and the file of its labels."""
        uses: dict[str, tuple[str, NamedBox]] = {}
        for labels in self._labels.values():
            for box in labels.boxes:
                uses.setdefault(box.class_name, (labels.file, box))
        return uses


def _writable(name: str) -> str:
    """A name as UTF-8 can hold it: JSON allows half a surrogate pair, which is refused by then."""
    return name.encode(errors="backslashreplace").decode()


def name_fault(name: str) -> Fault | None:
    """Why `name` cannot be the name of a class, or None where it can."""
    if 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable():
        return None
    rule = f"a class name must be text of 1 to {MAX_NAME_CHARACTERS} printable characters"
    return Fault(Severity.ERROR, "classes.names", name, rule, "correct the name")


def _pixel_labels(labels: NamedLabels, index: dict[str, int]) -> PixelLabels:
    corners = tuple(Corners(index[box.class_name], *box[1:]) for box in labels.boxes)
    return PixelLabels(labels.file, labels.size, corners)
