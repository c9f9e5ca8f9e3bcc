"""A data set as a format's reader gives it: images, their boxes, and the splits it names."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

# Class index, then centre x, centre y, width, height as shares (0..1) of the upright image.
Box = tuple[int, float, float, float, float]
SplitName = Literal["train", "val"]

# Large vocabularies (LVIS has 1,203 classes, OpenImages 601, Objects365 365) stay far below.
MAX_CLASSES: Final = 10_000


@dataclass(frozen=True)
class AnnotatedImage:
    """An image and its boxes. `path` is relative to the data set's folder, with forward slashes."""

    path: str
    file: Path
    boxes: tuple[Box, ...]
    split: SplitName | None


@dataclass(frozen=True)
class Annotations:
    """What a reader found. `classes` is in the order of the class indices."""

    format: str
    classes: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]
