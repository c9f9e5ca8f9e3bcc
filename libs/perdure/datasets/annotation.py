"""A data set as a format's reader gives it: images, their boxes, and the splits it names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

# Class index, then centre x, centre y, width, height as shares (0..1) of the upright image.
Box = tuple[int, float, float, float, float]
SplitName = Literal["train", "val"]

# Large vocabularies (LVIS has 1,203 classes, OpenImages 601, Objects365 365) stay far below.
MAX_CLASSES: Final = 10_000


class Corners(NamedTuple):
    """A box in pixels as a label file has it, and its place there.

    The origin is the image's upper left corner; `right` and `bottom` are the border's far side,
    so that `right - left` is the width. Values are finite.
    """

    class_index: int
    left: float
    top: float
    right: float
    bottom: float
    line: int | None = None  # of the label file, 1 for the first
    pointer: str | None = None  # JSON pointer into the label file
    file: str | None = None  # the label file, where it is not the one of the image's other boxes
    # Centre and size as shares, where the label file has the very numbers that the pixels are from.
    shares: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class PixelLabels:
    """The boxes of one image in pixels, not yet related to the image that lies there."""

    file: str  # the label file, relative to the data set's folder
    # Width and height that the label file claims; None where it claims none.
    size: tuple[int, int] | None
    corners: tuple[Corners, ...]


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and its labels: `boxes`, or `pixels` where the format has boxes in pixels.

    `path` is relative to the data set's folder, with forward slashes. `group` is what the labels
    say; images of one group stay in one split, and one of "" is on its own.
    """

    path: str
    file: Path
    boxes: tuple[Box, ...]
    split: SplitName | None
    pixels: PixelLabels | None = None
    group: str = ""


@dataclass(frozen=True)
class Annotations:
    """What a reader found. `classes` is in the order of the class indices."""

    format: str
    classes: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]
    left_out: int = 0  # test images: kept for the user's own final test, and not imported
