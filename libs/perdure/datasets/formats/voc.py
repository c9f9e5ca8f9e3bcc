"""Pascal VOC: one XML file for each image, and lists of the images in each split.

Corners are taken as they are written: from xmin to xmax is the width. VOC itself counted pixels
from 1 and included the last one, but most files that are called VOC today come from tools that do
not, and no file says which it is. Other readers take them so too (labelformat always, Datumaro by
default). A pixel at the left and the upper side is less than people differ by when they draw.

Of an object, its name and its box are read. Parts, poses, polygons, and the marks `difficult` and
`truncated` are passed over: a difficult object is a box like others. <folder> and <path> tell of
another machine.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Final

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName, NamedBox, NamedLabels
from perdure.datasets.formats.numbers import coordinate_in_text
from perdure.datasets.formats.voc_images import VocImages
from perdure.datasets.formats.voc_splits import read_lists
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree
from perdure.datasets.xml_file import Element, read_xml

FORMAT: Final = "voc"

_SUFFIX: Final = ".xml"
_ROOT: Final = "annotation"
_CORNERS: Final = ("xmin", "ymin", "xmax", "ymax")
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_MAYBE_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)

_PlacedFault = tuple[Fault, int]  # and its line


def read_voc(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read a data set of Pascal VOC; whatever is wrong goes to `findings`, with file and line."""
    labels = LabelsByName(tree, findings)
    images = VocImages(tree, labels, findings)
    files = sorted(name for name in tree.files if name.lower().endswith(_SUFFIX))
    if not tree.images():
        rule, advice = "a data set must have images", "give the folder that has Annotations in it"
        findings.error("files.no-images", "", "", rule, advice)
    read = sum([_read_file(tree, file, images, labels, findings) for file in files])
    if not read and not findings.number_of(Severity.ERROR):
        rule, advice = "each image must have an .xml file with an <annotation>", "add the files"
        findings.error("label.none", files[0] if files else "", "", rule, advice)
    listed = read_lists(tree, images, labels, findings)
    if listed is None:
        return labels.annotations(FORMAT)
    unlisted = [image for image in tree.images() if image not in listed]
    for image in unlisted:
        labels.leave_out(image)
    return _without(unlisted, labels.annotations(FORMAT), findings)


def _without(unlisted: list[str], annotations: Annotations, findings: Findings) -> Annotations:
    """The data set without the images that no list names: they would be trained on otherwise."""
    if not unlisted:
        return annotations
    value = f"{len(unlisted)} images"
    rule = "an image must be in one of the lists in ImageSets"
    advice = "they were left out: list them, or remove the lists"
    findings.warning("files.unlisted-image", unlisted[0], value, rule, advice)
    names = set(unlisted)
    kept = tuple(image for image in annotations.images if image.path not in names)
    return dataclasses.replace(annotations, images=kept)


def _read_file(
    tree: Tree, file: str, images: VocImages, labels: LabelsByName, findings: Findings
) -> bool:
    """Read one file; whether it is one of VOC, though it may be a bad one."""
    root = read_xml(tree.files[file], file, findings)
    if root is None:  # that it cannot be read is said
        images.leave_out(file)
        return True
    if root.tag != _ROOT:
        rule, advice = f"a label file's root must be <{_ROOT}>", "it was left out"
        findings.warning("files.not-labels", file, f"<{root.tag}>", rule, advice)
        return False
    size = _size(root, file, findings)
    boxes = []
    for found in root.all("object"):
        read = _box(found)
        for fault, line in read.faults:
            findings.add(fault, file, line)
        if read.box is not None:
            boxes.append(read.box)
        elif read.class_name:
            labels.note_unread(read.class_name)
    image = images.of_file(file, root)
    if image is not None:
        labels.add(image, NamedLabels(file, size, tuple(boxes)))
    return True


def _size(root: Element, file: str, findings: Findings) -> tuple[int, int] | None:
    """The size that the file claims for its image; None where it claims none."""
    element = root.first("size")
    sides = [] if element is None else [element.first(side) for side in ("width", "height")]
    texts = [side.text for side in sides if side is not None]
    values = [coordinate_in_text(text) for text in texts]
    whole = [
        int(value)
        for value in values
        if isinstance(value, float) and value.is_integer() and value > 0
    ]
    if len(whole) == 2:
        return whole[0], whole[1]
    rule, advice = "<size> must have the image's width and height", "they were read from the image"
    fault = Fault(Severity.INFO, "voc.size-missing", " x ".join(texts), rule, advice)
    findings.add(fault, file, root.line if element is None else element.line)
    return None


@dataclasses.dataclass(frozen=True)
class _Object:
    """An object as read: its box, None when a fault is an error."""

    class_name: str
    box: NamedBox | None
    faults: tuple[_PlacedFault, ...]


def _box(found: Element) -> _Object:
    names = found.all("name")
    class_name = names[0].text if len(names) == 1 else ""
    faults: list[_PlacedFault] = []
    if not class_name:
        rule, advice = "an object must have one <name>", "write its class, or remove the object"
        problem = "an object has several classes" if len(names) > 1 else "an object has no class"
        value = ", ".join(name.text for name in names)
        fault = Fault(Severity.ERROR, "classes.names", value, rule, advice, problem)
        faults.append((fault, found.line))
    corners: list[float] = []
    boxes = found.all("bndbox")
    if len(boxes) == 1:
        for read in _corners(boxes[0]):
            if isinstance(read, float):
                corners.append(read)
            else:
                faults.append(read)
    else:
        problem = "an object has several boxes" if boxes else "an object has no box"
        value = " ".join(f"<{child.tag}>" for child in found.children)
        faults.append((_box_fault(value, "an object must have one <bndbox>", problem), found.line))
    box = None
    if class_name and len(corners) == len(_CORNERS):
        left, top, right, bottom = corners
        box = NamedBox(class_name, left, top, right, bottom, boxes[0].line)
    return _Object(class_name, box, tuple(faults))


def _corners(bndbox: Element) -> Iterator[float | _PlacedFault]:
    """The four coordinates, or what is wrong with them, and warnings."""
    rule = f"<bndbox> must have each of {', '.join(f'<{tag}>' for tag in _CORNERS)} once"
    if not bndbox.children and any(tag in bndbox.attributes for tag in _CORNERS):
        value = " ".join(f'{tag}="{text}"' for tag, text in bndbox.attributes.items())
        yield _box_fault(value, rule, "coordinates are attributes, and not elements"), bndbox.line
        return
    for tag in _CORNERS:
        elements = bndbox.all(tag)
        if len(elements) != 1:
            problem = f"a box has several <{tag}>" if elements else f"a box has no <{tag}>"
            value = ", ".join(element.text for element in elements)
            yield _box_fault(value, rule, problem), bndbox.line
            continue
        text, line = elements[0].text, elements[0].line
        # "1,024" may well be a thousand.
        if _DECIMAL_COMMA.fullmatch(text) and not _MAYBE_THOUSANDS.fullmatch(text):
            point, advice = "numbers must have a decimal point", "the comma was read as one"
            yield Fault(Severity.WARNING, "label.decimal-comma", text, point, advice), line
            text = text.replace(",", ".")
        number = coordinate_in_text(text)
        yield number if isinstance(number, float) else (number, line)


def _box_fault(value: str, rule: str, problem: str) -> Fault:
    advice = "correct the box, or remove the object"
    return Fault(Severity.ERROR, "voc.box", value, rule, advice, problem)
