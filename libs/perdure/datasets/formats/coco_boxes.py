"""The box of a COCO annotation: left, top, width, height in pixels, or what else tools write."""

import math
from dataclasses import dataclass
from typing import Any, Final

from perdure.datasets.findings import Fault, Severity
from perdure.datasets.formats.coco_ids import Way
from perdure.datasets.json_file import coordinate, json_text, not_finite
from perdure.datasets.rules import BoxFormat

_POINT: Final = 2  # numbers
_TRIANGLE: Final = 6  # numbers

# Numbers that a box was written as, and a fault with its place in the annotation.
Numbers = tuple[float, float, float, float]
Misplaced = tuple[Fault, Way]

# Of fewer boxes that leave their image nothing can be concluded.
_MIN_LEAVING: Final = 3
# Boxes that reach past the border by less were rounded, or drawn so: a share of the image's side.
_TOLERANCE: Final = 0.01
# Of corners of objects in the right or lower half the sum is more than the image: three of four as
# a rule. Objects may be elsewhere, and that no box leaves the image as corners says the most.
_MIN_LEAVING_SHARE: Final = 0.25
# Of true corners the second is right of and below the first, but for a slip of the pen. Of corner
# and size, the size is the larger in both directions for less than half of all boxes.
_MIN_ORDERED_SHARE: Final = 0.95


# Of an annotation that an export wrote: centre and size as shares of the image. Its bbox in pixels
# is these times the size, rounded to floats, which no arithmetic leads back from.
SHARES_KEY: Final = "perdure_box"


def bbox_of(shares: Numbers, width: int, height: int) -> Numbers:
    """The bbox in pixels (left, top, width, height) of centre and size as shares of an image."""
    x, y, across, down = shares
    return (x - across / 2) * width, (y - down / 2) * height, across * width, down * height


def read_shares(
    annotation: dict[str, Any], bbox: Numbers, size: tuple[int, int] | None
) -> Numbers | None:
    """The shares that a bbox was made of; None where there are none, or something changed since."""
    shares = annotation.get(SHARES_KEY)
    if size is None or not isinstance(shares, list) or len(shares) != 4:
        return None
    if not all(isinstance(share, float) for share in shares):
        return None
    x, y, across, down = shares
    exact = (x, y, across, down)
    return exact if bbox_of(exact, *size) == bbox else None


def has_box(annotation: object) -> bool:
    """Whether an annotation has a bbox, or polygons that one could be made of."""
    return isinstance(annotation, dict) and bool(
        _is_given(annotation.get("bbox")) or _polygons(annotation)
    )


def read_bbox(annotation: dict[str, Any]) -> Numbers | list[Misplaced] | None:
    """The four numbers of an annotation's bbox; faults; or None where there is no bbox."""
    bbox = annotation.get("bbox")
    if not _is_given(bbox):
        return None
    if not isinstance(bbox, list) or len(bbox) != 4:
        fault = Fault(
            Severity.ERROR,
            "label.field-count",
            json_text(bbox),
            "a bbox must be a list of 4 numbers: left, top, width, height",
            "correct the box or remove its annotation",
            problem="a bbox has not four numbers",
        )
        return [(fault, ("bbox",))]
    numbers, faults = _finite(bbox, ("bbox",))
    return faults or (numbers[0], numbers[1], numbers[2], numbers[3])


def corners_of(numbers: Numbers, box_format: BoxFormat | None) -> Numbers | list[Misplaced]:
    """Left, top, right, bottom of a bbox; a fault where they are too large for floats."""
    if box_format == "xyxy":
        return numbers
    left, top, width, height = numbers
    right, bottom = left + width, top + height
    if math.isfinite(right) and math.isfinite(bottom):
        return left, top, right, bottom
    return [(not_finite(list(numbers)), ("bbox",))]


def read_envelope(annotation: dict[str, Any]) -> tuple[Numbers, Fault] | list[Misplaced]:
    """The smallest box around an annotation's polygons, with a note; or faults."""
    polygons = _polygons(annotation)
    if not polygons:
        return [(_no_box(annotation), ())]
    points: list[float] = []
    faults: list[Misplaced] = []
    for number, polygon in enumerate(polygons):
        way: Way = ("segmentation", number)
        if not isinstance(polygon, list) or len(polygon) % _POINT or len(polygon) < _TRIANGLE:
            faults.append((_no_polygon(polygon), way))
            continue
        numbers, wrong = _finite(polygon, way)
        points += numbers
        faults += wrong
    if faults:
        return faults
    xs, ys = points[0::2], points[1::2]
    note = Fault(
        Severity.INFO,
        "label.polygon-to-box",
        json_text(polygons),
        "an annotation must have a bbox",
        "the smallest box around its polygons was taken",
        problem="an annotation has polygons and no bbox",
    )
    return (min(xs), min(ys), max(xs), max(ys)), note


@dataclass
class FormatEvidence:
    """Counts what speaks for boxes that are corners, or shares, and not corner and size."""

    boxes: int = 0
    leaving: int = 0  # read as corner and size
    leaving_as_corners: int = 0
    ordered_as_corners: int = 0
    shares: int = 0  # boxes of numbers from 0 to 1

    def see(self, numbers: Numbers, size: tuple[int, int] | None) -> None:
        """Take a bbox of an image of the size that the file claims; without one it tells nothing.

        Neither does one without area.
        """
        left, top, third, fourth = numbers
        if size is None or third <= 0 or fourth <= 0:
            return
        right, bottom = size[0] * (1 + _TOLERANCE), size[1] * (1 + _TOLERANCE)
        self.boxes += 1
        self.leaving += left + third > right or top + fourth > bottom
        self.leaving_as_corners += third > right or fourth > bottom
        self.ordered_as_corners += third > left and fourth > top
        self.shares += min(left, top) >= 0 and max(numbers) <= 1

    def fault(self) -> Fault | None:
        """The fault of boxes that seem to be something else."""
        if self.boxes < _MIN_LEAVING:
            return None
        if self.shares == self.boxes:
            return self._suspect(
                f"all numbers of {self.boxes} boxes lie between 0 and 1",
                "a bbox must be in pixels; these look like shares of the image",
                "multiply left and width by the image's width, top and height by its height",
            )
        is_corners = (
            self.leaving >= max(_MIN_LEAVING, _MIN_LEAVING_SHARE * self.boxes)
            and self.leaving_as_corners == 0
            and self.ordered_as_corners >= _MIN_ORDERED_SHARE * self.boxes
        )
        if not is_corners:
            return None
        return self._suspect(
            f"{self.leaving} of {self.boxes} boxes leave the image",
            "a bbox must be left, top, width, height; read as corners no box leaves the image",
            "if they are left, top, right, bottom, say so with --box-format xyxy; "
            "if not, with --box-format xywh",
        )

    def _suspect(self, value: str, rule: str, advice: str) -> Fault:
        return Fault(Severity.ERROR, "coco.box-format-suspect", value, rule, advice)


def _is_given(bbox: object) -> bool:
    return bbox is not None and bbox != []


def _polygons(annotation: dict[str, Any]) -> list[Any]:
    """The polygons of an annotation; none where it has a mask of run lengths, or nothing."""
    segmentation = annotation.get("segmentation")
    return segmentation if isinstance(segmentation, list) else []


def _finite(values: list[Any], way: Way) -> tuple[list[float], list[Misplaced]]:
    """The numbers in `values`, and the faults of those that are none, with their places."""
    numbers: list[float] = []
    faults: list[Misplaced] = []
    for position, value in enumerate(values):
        number = coordinate(value)
        if isinstance(number, Fault):
            faults.append((number, (*way, position)))
        else:
            numbers.append(number)
    return numbers, faults


def _no_polygon(polygon: object) -> Fault:
    return Fault(
        Severity.ERROR,
        "label.field-count",
        json_text(polygon),
        "a polygon must be a list of x1, y1, x2, y2, x3, y3, ...",
        "correct the polygon, or give the annotation a bbox",
        problem="a polygon is no list of at least three points",
    )


def _no_box(annotation: dict[str, Any]) -> Fault:
    has_mask = isinstance(annotation.get("segmentation"), dict)
    return Fault(
        Severity.ERROR,
        "coco.no-boxes",
        "segmentation" if has_mask else json_text(annotation.get("bbox")),
        "an annotation must have a bbox",
        "add the bbox: pycocotools.mask.toBbox gives that of a mask"
        if has_mask
        else "add the bbox, or remove the annotation",
        problem="an annotation has a mask and no bbox" if has_mask else "an annotation has no bbox",
    )
