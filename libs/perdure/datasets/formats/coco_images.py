"""The images that a COCO file lists: their ids, their files, and the sizes that it claims."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.datasets.findings import Fault, Findings, Severity, quoted
from perdure.datasets.formats.by_name import NamedBox
from perdure.datasets.formats.coco_ids import Id, IdTypes, canonical_id, invalid_id
from perdure.datasets.formats.image_groups import GROUP_KEY, group_fault
from perdure.datasets.json_file import json_fault, json_text, pointer, whole_number

_KEY: Final = "images"

_Size = tuple[int, int]
# The image that a name at a place in the file means; None, with an error, if none is.
FindImage = Callable[[str, str], str | None]


@dataclass
class ListedImage:
    """An image of the data set, with the size that the file claims and the boxes found so far."""

    path: str
    size: _Size | None
    id: Id | None = None  # the first one, where the image is listed under several
    boxes: list[NamedBox] = field(default_factory=list)
    group: str = ""


@dataclass
class ListedImages:
    """The images of a file by path, and by id: None for an id that says no image for sure."""

    by_path: dict[str, ListedImage] = field(default_factory=dict)
    by_id: dict[Id, ListedImage | None] = field(default_factory=dict)


def read_images(
    value: dict[str, Any], file: str, types: IdTypes, find: FindImage, findings: Findings
) -> ListedImages | None:
    """The images in `value`; None, with an error, where there is no list of them."""
    entries = value.get(_KEY)
    if not isinstance(entries, list):
        rule, advice = "images must be a list of {id, file_name}", "add the list, or export again"
        findings.add(json_fault(entries, rule, advice), file, pointer=pointer(_KEY))
        return None
    listed = ListedImages()
    first: dict[Id, dict[str, Any]] = {}
    sizeless: list[int] = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            fault = json_fault(entry, "an image must be an object", "correct it or remove it")
            findings.add(fault, file, pointer=pointer(_KEY, number))
            continue
        image = _image(entry, number, listed, file, find, findings)
        if _size(entry) is None:
            sizeless.append(number)
        id_ = canonical_id(entry.get("id"))
        if id_ is None:
            findings.add(invalid_id(entry.get("id")), file, pointer=pointer(_KEY, number, "id"))
            continue
        types.see(entry["id"], _KEY, number, "id")
        faults = [_id_fault(first.setdefault(id_, entry), entry), _path_fault(image, id_)]
        for fault in filter(None, faults):
            findings.add(fault, file, pointer=pointer(_KEY, number, "id"))
            if fault.severity is Severity.ERROR:
                image = None
        listed.by_id[id_] = image
    if sizeless:
        _report_sizeless(entries, sizeless, file, findings)
    return listed


def _image(
    entry: dict[str, Any],
    number: int,
    listed: ListedImages,
    file: str,
    find: FindImage,
    findings: Findings,
) -> ListedImage | None:
    """The image that an entry lists, with what is known of it from earlier entries."""
    name = entry.get("file_name")
    place = pointer(_KEY, number, "file_name")
    if not isinstance(name, str) or not name:
        fault = json_fault(name, "file_name must be the name of an image file", "add the name")
        findings.add(fault, file, pointer=place)
        return None
    path = find(name, place)
    if path is None:
        return None
    size = _size(entry)
    image = listed.by_path.setdefault(path, ListedImage(path, size))
    image.size = image.size or size
    if size not in (None, image.size):
        findings.add(_other_size(size, image.size), file, pointer=pointer(_KEY, number))
    if wrong := _group_fault(image, entry):
        findings.add(wrong, file, pointer=pointer(_KEY, number, GROUP_KEY))
    else:
        image.group = image.group or entry.get(GROUP_KEY, "")
    return image


def _size(entry: dict[str, Any]) -> _Size | None:
    """The size that an entry claims, None where one of its numbers is none of pixels."""
    width, height = whole_number(entry.get("width")), whole_number(entry.get("height"))
    return (width, height) if width and height and min(width, height) > 0 else None


def _group_fault(image: ListedImage, entry: dict[str, Any]) -> Fault | None:
    """What is wrong with the group that an entry names, where it names one."""
    group = entry.get(GROUP_KEY, "")
    if (fault := group_fault(group)) or group in ("", image.group) or not image.group:
        return fault
    rule = f"an image must be in one group; before it was in {quoted(image.group)}"
    return json_fault(group, rule, "correct one of the two entries, or remove it")


def _id_fault(first: dict[str, Any], entry: dict[str, Any]) -> Fault | None:
    """What is wrong with the id of an entry, where an earlier one has the same."""
    if first is entry:
        return None
    if first["id"] != entry["id"]:  # 7 and "7"; 7 and 7.0 are equal in any file
        return Fault(
            Severity.ERROR,
            "coco.id-type",
            json_text(entry["id"]),
            f"an id must be that of one image; as a number it is the same as {first['id']!r}",
            "give one of the images an id of its own, to its annotations too",
            problem="ids that are number and text are the same number",
        )
    if first.get("file_name") == entry.get("file_name"):
        rule, advice = "an image must be listed once", "it was read once"
        value = json_text(entry["id"])
        return Fault(Severity.INFO, "coco.image-id-duplicate", value, rule, advice)
    return Fault(
        Severity.ERROR,
        "coco.image-id-duplicate",
        json_text(entry["id"]),
        "an id must be that of one image",
        "give one of the images an id of its own, to its annotations too",
        problem="images with different file names have the same id",
    )


def _path_fault(image: ListedImage | None, id_: Id) -> Fault | None:
    """What is wrong with an image that has another id already."""
    if image is None:
        return None
    if image.id is None:
        image.id = id_
    if image.id == id_:
        return None
    rule, advice = "an image must be listed once", "the boxes of both ids were read for it"
    value = f"{image.path}: {image.id}, {id_}"
    return Fault(Severity.WARNING, "coco.image-listed-twice", value, rule, advice)


def _other_size(size: _Size, known: _Size | None) -> Fault:
    assert known is not None
    return Fault(
        Severity.ERROR,
        "label.size-mismatch",
        f"{size[0]} x {size[1]}",
        f"an image must have one size; before it was {known[0]} x {known[1]}",
        "correct one of the two entries, or remove it",
        problem="an image is listed twice, with two sizes",
    )


def _report_sizeless(
    entries: list[Any], sizeless: list[int], file: str, findings: Findings
) -> None:
    """Record images without a size, all in one: as a rule a tool wrote none for any."""
    entry = entries[sizeless[0]]
    value = f"{json_text(entry.get('width'))} x {json_text(entry.get('height'))}"
    rule = "an image must have its width and height in pixels"
    advice = f"they were read from the images themselves, for {len(sizeless)} of {len(entries)}"
    fault = Fault(Severity.INFO, "coco.size-missing", value, rule, advice)
    findings.add(fault, file, pointer=pointer(_KEY, sizeless[0]))
