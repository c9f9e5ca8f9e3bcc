"""Boxes in pixels become shares of the upright image, once the image itself has been looked at.

A label file speaks of the frame whose size it names. That is the upright image as a rule; where it
is only the image as it is stored (a camera held upright, and a tool that ignored the EXIF tag), the
boxes are turned with the pixels. A label file that names no size speaks of the upright image.
"""

from collections.abc import Callable
from typing import Final

from perdure.datasets.annotation import Box, Corners, PixelLabels
from perdure.datasets.border import clip_box, degenerate_box
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.imaging import ImageInfo
from perdure.datasets.rules import ImportRules

# Where the point at shares (x, y) of the stored image lies in the upright one, by EXIF orientation
# (EXIF 2.32, 4.6.4 A, tag 274). With the orientations 2 to 4 both frames have one size: boxes are
# read in the upright one.
_TURNED: Final[dict[int, Callable[[float, float], tuple[float, float]]]] = {
    5: lambda x, y: (y, x),
    6: lambda x, y: (1 - y, x),
    7: lambda x, y: (1 - y, 1 - x),
    8: lambda x, y: (y, 1 - x),
}


def upright_boxes(
    labels: PixelLabels, path: str, info: ImageInfo, rules: ImportRules, findings: Findings
) -> tuple[Box, ...]:
    """The boxes of the image `path` as shares of the upright image, each once.

    Boxes without area, outside the image, or cut at its border go to `findings`; so does a size
    that is not the image's.
    """
    frame = _frame(labels, path, info, findings)
    if frame is None:
        return ()
    width, height, turned = frame
    boxes: dict[Box, Corners] = {}
    for corners in labels.corners:
        if corners.shares is not None and turned is None:
            box: Box = (corners.class_index, *corners.shares)
        else:
            box = _share(corners, width, height, turned)
        fault = _fault(corners, box, width, height, rules)
        if fault is None:
            box, fault = clip_box(box, _text(corners))
            first = boxes.setdefault(box, corners)
            if first is not corners:
                rule, advice = "a box must occur once", "it was read once"
                fault = Fault(Severity.INFO, "label.duplicate", _text(corners), rule, advice)
        if fault is not None:
            findings.add(fault, corners.file or labels.file, corners.line, corners.pointer)
    return tuple(boxes)


def _frame(
    labels: PixelLabels, path: str, info: ImageInfo, findings: Findings
) -> tuple[int, int, Callable[[float, float], tuple[float, float]] | None] | None:
    """Width and height of the frame that the boxes are in, and how it is turned."""
    upright = (info.width, info.height)
    if labels.size in (None, upright):
        return *upright, None
    stored = upright[::-1]
    if info.orientation in _TURNED and labels.size == stored:
        findings.info(
            "image.exif-orientation",
            path,
            str(info.orientation),
            "boxes must be in the upright image",
            f"{labels.file} has the size of the image as it is stored: its boxes were turned too",
        )
        return *stored, _TURNED[info.orientation]
    assert labels.size is not None
    findings.error(
        "label.size-mismatch",
        labels.file,
        f"{labels.size[0]} x {labels.size[1]}",
        f"the labels must be of the image {path}, which is {info.width} x {info.height}",
        "give the image that was labelled, or label this one",
    )
    return None


def _fault(corners: Corners, box: Box, width: int, height: int, rules: ImportRules) -> Fault | None:
    """Why a box is not taken."""
    # The share of a tiny box may be nothing, though it is something in pixels.
    if corners.right <= corners.left or corners.bottom <= corners.top or min(box[3:]) <= 0:
        return degenerate_box(_text(corners), dropped=rules.drop_degenerate)
    across = min(corners.right, width) - max(corners.left, 0)
    down = min(corners.bottom, height) - max(corners.top, 0)
    if 2 * across >= corners.right - corners.left and 2 * down >= corners.bottom - corners.top:
        return None
    rule = f"at least half of a box's sides must lie in the image, which is {width} x {height}"
    advice = "correct the box or remove it"
    return Fault(Severity.ERROR, "label.out-of-range", _text(corners), rule, advice)


def _share(
    corners: Corners,
    width: int,
    height: int,
    turned: Callable[[float, float], tuple[float, float]] | None,
) -> Box:
    left, right = corners.left / width, corners.right / width
    top, bottom = corners.top / height, corners.bottom / height
    if turned is not None:
        (left, top), (right, bottom) = turned(left, top), turned(right, bottom)
        left, right = sorted((left, right))
        top, bottom = sorted((top, bottom))
    return (
        corners.class_index,
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
    )


def _text(corners: Corners) -> str:
    """The corners, to be quoted: left, top, right, bottom."""
    return " ".join(f"{value:.10g}" for value in corners[1:5])
