"""CVAT for images 1.1: one XML file with the labels, and the shapes on each image.

The labels in <meta> are the classes, in their order. CVAT for video, whose boxes are tracks over
the frames of a film, is refused: CVAT itself exports the same work as "CVAT for images".
"""

from typing import Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName, NamedBox, NamedLabels
from perdure.datasets.formats.cvat_shapes import read_shape
from perdure.datasets.formats.numbers import coordinate_in_text
from perdure.datasets.formats.split_names import NamedSplit, split_of_name
from perdure.datasets.image_names import ImageNames
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree
from perdure.datasets.xml_file import Element, read_parts

FORMAT: Final = "cvat"

# About a million boxes. The text is held in memory, as bytes and as characters; shapes are not.
MAX_FILE_BYTES: Final = 256 << 20
_SUFFIX: Final = ".xml"
_ROOT: Final = "annotations"
# What CVAT calls the subset of images that are in none.
_NO_SUBSET: Final = frozenset({"", "default"})


def read_cvat(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read exports of CVAT; whatever is wrong with them goes to `findings`, with file and line."""
    files = sorted(name for name in tree.files if name.lower().endswith(_SUFFIX))
    reader = _Reader(tree, findings)
    for file in files:
        reader.read(file)
    return reader.annotations(files)


class _Reader:
    """Takes one export after the other."""

    def __init__(self, tree: Tree, findings: Findings) -> None:
        self._tree = tree
        self._findings = findings
        self._names = ImageNames(tree)
        self._labels = LabelsByName(tree, findings)
        self._read = 0
        self._all_read = True
        self._declared: dict[str, None] = {}  # in their order
        self._declared_in = ""
        self._images: dict[str, tuple[str, int]] = {}  # where each was listed: file and line
        self._taken: list[tuple[str, NamedLabels]] = []
        self._unread: list[str] = []  # classes of shapes that were refused
        self._subsets: set[str] = set()

    def read(self, file: str) -> None:
        """Read one file."""
        path = self._tree.files[file]
        has_tracks = False
        parts = read_parts(path, file, self._findings, max_bytes=MAX_FILE_BYTES)
        for number, part in enumerate(parts):
            if part is None:  # that it cannot be read is said
                self._read += 1
                self._all_read = False
            elif number == 0:
                if part.tag != _ROOT:
                    rule, advice = f"a label file's root must be <{_ROOT}>", "it was left out"
                    value = f"<{part.tag}>"
                    self._findings.warning("files.not-labels", file, value, rule, advice)
                    return
                self._read += 1
            elif part.tag == "meta":
                self._declare(part, file)
            elif part.tag == "image":
                self._take(part, file)
            elif part.tag == "track" and not has_tracks:
                has_tracks = True
                self._refuse_video(part, file)

    def annotations(self, files: list[str]) -> Annotations:
        """All images with their boxes."""
        if not self._read and not self._findings.number_of(Severity.ERROR):
            rule, advice = "the labels must lie in an export of CVAT", "add the annotations.xml"
            self._findings.error("label.none", files[0] if files else "", "", rule, advice)
        for image, labels in self._taken:
            boxes = tuple(box for box in labels.boxes if self._is_declared(box, labels.file))
            self._labels.add(image, NamedLabels(labels.file, labels.size, boxes))
        for class_name in self._unread:
            self._labels.note_unread(class_name)
        return self._labels.annotations(
            FORMAT,
            declared=tuple(self._declared) if self._declared else None,
            declared_in=self._declared_in,
            listed_only=True,
            report_unlabelled=self._all_read,
        )

    def _declare(self, meta: Element, file: str) -> None:
        """Take the classes: in a <task>, a <project> or a <job>, whichever was exported."""
        for exported in (meta, *meta.children):
            for labels in exported.all("labels"):
                for label in labels.all("label"):
                    name = label.first("name")
                    # Labels with a parent are the points of its skeleton.
                    if name is not None and label.first("parent") is None:
                        self._declared.setdefault(name.text)
                        self._declared_in = self._declared_in or file

    def _is_declared(self, box: NamedBox, file: str) -> bool:
        if not self._declared or box.class_name in self._declared:
            return True
        rule = f"a label must be one of those in <meta>: {', '.join(self._declared)}"
        advice = "correct the label, or add it to <meta>"
        problem = "a label is not declared"
        fault = Fault(
            Severity.ERROR, "label.class-out-of-range", box.class_name, rule, advice, problem
        )
        self._findings.add(fault, file, box.line)
        return False

    def _take(self, element: Element, file: str) -> None:
        boxes = []
        for child in element.children:
            shape = read_shape(child)
            if shape is None:
                continue
            if shape.fault is not None:
                self._findings.add(shape.fault, file, child.line)
            if shape.box is not None:
                boxes.append(shape.box)
            elif shape.class_name:
                self._unread.append(shape.class_name)
        size = self._size(element, file)
        split = self._split(element, file)
        image = self._image(element, file)
        if image is None:
            self._unread += [box.class_name for box in boxes]
            return
        if split is not None:
            self._labels.put_into(image, split)
        self._taken.append((image, NamedLabels(file, size, tuple(boxes))))

    def _image(self, element: Element, file: str) -> str | None:
        name = element.attributes.get("name", "")
        if not name:
            rule, advice = "an image must have a name", "write its name, or remove it"
            problem = "the file has an image without a name"
            fault = Fault(Severity.ERROR, "files.missing-image", "", rule, advice, problem)
            self._findings.add(fault, file, element.line)
            return None
        # In exports of a project, the images of each subset lie in a folder of its name.
        subset = element.attributes.get("subset", "")
        found = self._names.find(
            name,
            file,
            self._findings,
            line=element.line,
            prefer=lambda image: subset in image.split("/")[:-1],
        )
        if found is None:
            return None
        first_file, first_line = self._images.setdefault(found, (file, element.line))
        if (first_file, first_line) == (file, element.line):
            return found
        rule = f"an image must be listed once; this one is in {first_file}:{first_line} too"
        advice = "remove one of the two, or put the shapes into one"
        fault = Fault(Severity.ERROR, "cvat.image-twice", name, rule, advice)
        self._findings.add(fault, file, element.line)
        return None

    def _size(self, element: Element, file: str) -> tuple[int, int] | None:
        texts = [element.attributes.get(side, "") for side in ("width", "height")]
        values = [coordinate_in_text(text) for text in texts]
        whole = [
            int(value)
            for value in values
            if isinstance(value, float) and value.is_integer() and value > 0
        ]
        if len(whole) == 2:
            return whole[0], whole[1]
        rule, advice = "an image must have a width and a height", "they were read from the image"
        value = " x ".join(text for text in texts if text)
        fault = Fault(Severity.INFO, "cvat.size-missing", value, rule, advice)
        self._findings.add(fault, file, element.line)
        return None

    def _split(self, element: Element, file: str) -> NamedSplit | None:
        subset = element.attributes.get("subset", "").strip()
        split = split_of_name(subset)
        if split is None and subset.lower() not in _NO_SUBSET and subset not in self._subsets:
            self._subsets.add(subset)  # said once: all images of a set may be in it
            rule, advice = "a subset must be train, val or test", "rename it, or leave it empty"
            fault = Fault(Severity.ERROR, "cvat.subset", subset, rule, advice)
            self._findings.add(fault, file, element.line)
        return split

    def _refuse_video(self, track: Element, file: str) -> None:
        self._all_read = False
        rule = "labels must be of images, in the format CVAT for images 1.1"
        advice = "export the task from CVAT as 'CVAT for images', with its images"
        fault = Fault(Severity.ERROR, "cvat.video", "<track>", rule, advice)
        self._findings.add(fault, file, track.line)
