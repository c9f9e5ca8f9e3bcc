"""The annotations of a COCO file: boxes, each of an image and of a category."""

from typing import Any, Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import NamedBox
from perdure.datasets.formats.coco_boxes import (
    FormatEvidence,
    Misplaced,
    Numbers,
    corners_of,
    has_box,
    read_bbox,
    read_envelope,
    read_shares,
)
from perdure.datasets.formats.coco_categories import Categories
from perdure.datasets.formats.coco_ids import (
    Id,
    IdTypes,
    canonical_id,
    invalid_id,
)
from perdure.datasets.formats.coco_images import ListedImage, ListedImages
from perdure.datasets.json_file import json_fault, json_text, pointer, whole_number
from perdure.datasets.rules import ImportRules

KEYPOINTS: Final = "keypoints"

_KEY: Final = "annotations"
# What annotations are that have one of these keys.
_CONTENTS: Final = {"caption": "captions", "segments_info": "panoptic segments"}


class AnnotationReader:
    """Reads the annotations of one file, and puts their boxes to the images that it lists.

    `unread` are the classes of boxes that were refused.
    """

    def __init__(
        self,
        file: str,
        images: ListedImages,
        categories: Categories | None,
        image_ids: IdTypes,
        category_ids: IdTypes,
        rules: ImportRules,
        findings: Findings,
    ) -> None:
        self.unread: set[str] = set()
        self._image_ids = image_ids
        self._category_ids = category_ids
        self._file = file
        self._images = images
        self._categories = categories
        self._rules = rules
        self._findings = findings
        self._evidence = FormatEvidence()
        self._ids: set[Id] = set()

    def read(self, value: dict[str, Any]) -> None:
        """Read the list in `value`. Without one, or without any box, the file is refused."""
        entries = value.get(_KEY)
        if not isinstance(entries, list) or (entries and not any(map(has_box, entries))):
            self._findings.add(_no_boxes(entries), self._file, pointer=pointer(_KEY))
            return
        crowds: list[int] = []
        repeated: list[int] = []
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                fault = json_fault(entry, "an annotation must be an object", "correct or remove it")
                self._add(fault, number)
                continue
            if self._is_repeated(entry):
                repeated.append(number)
            if self._is_crowd(entry, number):
                crowds.append(number)
            else:
                self._take(entry, number)
        if repeated:
            self._report_repeated(entries, repeated)
        if crowds:
            self._report_crowds(crowds)
        if self._rules.box_format is None and (suspect := self._evidence.fault()):
            self._findings.add(suspect, self._file, pointer=pointer(_KEY))
            self._forget_boxes()

    def _take(self, entry: dict[str, Any], number: int) -> None:
        image = self._image(entry, number)
        class_name = self._class_name(entry, number)
        corners, shares = self._corners(entry, number, image)
        if isinstance(corners, list):
            for fault, way in corners:
                self._add(fault, number, *way)
        elif class_name is not None and image is not None:
            place = pointer(_KEY, number)
            image.boxes.append(NamedBox(class_name, *corners, pointer=place, shares=shares))
            return
        if class_name is not None:
            self.unread.add(class_name)

    def _image(self, entry: dict[str, Any], number: int) -> ListedImage | None:
        """The image of an annotation; None where it has none, or the image's entry has a fault."""
        id_ = canonical_id(entry.get("image_id"))
        if id_ is None:
            self._add(invalid_id(entry.get("image_id")), number, "image_id")
            return None
        self._image_ids.see(entry["image_id"], _KEY, number, "image_id")
        if id_ not in self._images.by_id:
            self._add(_unknown_image(entry["image_id"]), number, "image_id")
            return None
        return self._images.by_id[id_]

    def _class_name(self, entry: dict[str, Any], number: int) -> str | None:
        """The class of an annotation; None where it has none, or its category has a fault."""
        id_ = canonical_id(entry.get("category_id"))
        if id_ is None:
            self._add(invalid_id(entry.get("category_id")), number, "category_id")
            return None
        self._category_ids.see(entry["category_id"], _KEY, number, "category_id")
        if self._categories is None:
            return None
        if id_ not in self._categories:
            self._add(_unknown_category(entry["category_id"]), number, "category_id")
            return None
        return self._categories[id_]

    def _corners(
        self, entry: dict[str, Any], number: int, image: ListedImage | None
    ) -> tuple[Numbers | list[Misplaced], Numbers | None]:
        """The corners of an annotation's box, or the faults why there is none to read.

        And the shares that it was made of, where they are known.
        """
        numbers = read_bbox(entry)
        if isinstance(numbers, list):
            return numbers, None
        if numbers is not None:
            size = image.size if image else None
            shares = read_shares(entry, numbers, size)
            if shares is not None:
                return corners_of(numbers, "xywh"), shares
            self._evidence.see(numbers, size)
            return corners_of(numbers, self._rules.box_format), None
        enveloped = read_envelope(entry)
        if isinstance(enveloped, list):
            return enveloped, None
        corners, note = enveloped
        self._add(note, number)
        return corners, None

    def _is_repeated(self, entry: dict[str, Any]) -> bool:
        """Whether an annotation has the id of an earlier one. Nothing needs it: it may be none."""
        id_ = canonical_id(entry.get("id"))
        if id_ is None:
            return False
        if id_ in self._ids:
            return True
        self._ids.add(id_)
        return False

    def _is_crowd(self, entry: dict[str, Any], number: int) -> bool:
        crowd = entry.get("iscrowd")
        if crowd is None or isinstance(crowd, bool):
            return bool(crowd)
        if whole_number(crowd) not in (0, 1):
            fault = json_fault(crowd, "iscrowd must be 0 or 1", "correct it, or leave it out")
            self._add(fault, number, "iscrowd")
        return whole_number(crowd) == 1

    def _report_repeated(self, entries: list[Any], repeated: list[int]) -> None:
        rule = "an annotation must have an id of its own"
        advice = f"all were kept; {len(repeated)} of {len(entries)} have the id of an earlier one"
        value = json_text(entries[repeated[0]]["id"])
        fault = Fault(Severity.INFO, "coco.annotation-id-duplicate", value, rule, advice)
        self._add(fault, repeated[0], "id")

    def _report_crowds(self, crowds: list[int]) -> None:
        fault = Fault(
            Severity.INFO,
            "coco.crowd",
            f"{len(crowds)} annotations",
            "a box must be around one object",
            "they were left out",
        )
        self._add(fault, crowds[0], "iscrowd")

    def _forget_boxes(self) -> None:
        """Leave all boxes out: as they mean something else, what is said of them is noise."""
        for image in self._images.by_path.values():
            self.unread.update(box.class_name for box in image.boxes)
            image.boxes.clear()

    def _add(self, fault: Fault, number: int, *way: str | int) -> None:
        self._findings.add(fault, self._file, pointer=pointer(_KEY, number, *way))


def other_task(value: object, *, may_lack_list: bool) -> str:
    """What a file has in place of boxes alone, "" where it seems to be for detection.

    That is a file with keypoints, one whose annotations have neither boxes nor classes, and, with
    `may_lack_list`, one that lists images and has no list of annotations.
    """
    if not isinstance(value, dict):
        return ""
    if _KEY not in value and may_lack_list and isinstance(value.get("images"), list):
        return "no annotations"
    entries = value.get(_KEY)
    if not isinstance(entries, list):
        return ""
    objects = [entry for entry in entries if isinstance(entry, dict)]
    if any(entry.get(KEYPOINTS) for entry in objects):
        return KEYPOINTS
    if not objects or any("category_id" in entry or has_box(entry) for entry in objects):
        return ""
    return _content_of(objects)


def _content_of(objects: list[Any]) -> str:
    for key, content in _CONTENTS.items():
        if any(isinstance(entry, dict) and key in entry for entry in objects):
            return content
    return "no boxes"


def _no_boxes(entries: object) -> Fault:
    """The fault of a file that is not one for detection."""
    if not isinstance(entries, list):
        entries, what = [], "there is no list of them"
    elif (content := _content_of(entries)) in _CONTENTS.values():
        what = f"these are {content}"
    else:
        what = "none of these has one"
    return Fault(
        Severity.ERROR,
        "coco.no-boxes",
        f"{len(entries)} annotations",
        f"annotations must have a bbox; {what}",
        "give the file for detection (instances_...json), or remove this one",
    )


def _unknown_image(value: object) -> Fault:
    return Fault(
        Severity.ERROR,
        "coco.image-unknown",
        json_text(value),
        "image_id must be the id of an image in the list images",
        "add the image to the list, or remove the annotation",
    )


def _unknown_category(value: object) -> Fault:
    return Fault(
        Severity.ERROR,
        "coco.category-unknown",
        json_text(value),
        "category_id must be the id of a category in the list categories",
        "add the category to the list, or correct the annotation",
    )
