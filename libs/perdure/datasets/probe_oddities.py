"""Finding what looks odd: in the classes, in copies of images, in pictures, and in boxes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perdure.datasets.appearance import Appearance
from perdure.datasets.findings import Findings
from perdure.datasets.manifest import Manifest
from perdure.datasets.near_duplicates import MIN_CONTRAST, NearDuplicate
from perdure.datasets.probe_kinds import (
    FULL_AREA,
    INPUT_PX,
    MAX_BOX_ASPECT,
    MAX_CLASS_RATIO,
    MAX_DEVIATION,
    MAX_IMAGE_ASPECT,
    MAX_SHARPNESS_SHARE,
    MIN_BRIGHTNESS_GAP,
    MIN_IMAGES_OF_CLASS,
    MIN_LONGER_SIDE_PX,
    MIN_STRANGENESS_RATIO,
    TINY_AREA,
    TINY_SIDE_PX,
)
from perdure.datasets.probe_measures import Boxes, Floats, coincident, deviations

# Of each kind so many cases are named, the worst first: enough to see the pattern.
MAX_CASES: Final = 12
# Of one image, so many boxes are pointed out.
_MAX_BOXES: Final = 20

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class ClassCount:
    """How much there is of a class: boxes, and images that have one. Without a split, 0 in each."""

    name: str
    boxes: int
    images: int
    train_boxes: int
    train_images: int
    val_boxes: int
    val_images: int


@dataclass(frozen=True)
class Place:
    """Where something is odd, as Case says it."""

    subject: str
    value: float | None = None
    boxes: tuple[int, ...] = ()
    other: str = ""
    note: str = ""


@dataclass(frozen=True)
class Found:
    """How many there are of a kind, and where, the worst first."""

    code: str
    count: int
    worst: tuple[Place, ...]


def odd_classes(classes: Sequence[ClassCount], *, split: bool) -> Iterator[Found]:
    """Classes that are rare, far rarer than another one, or in one split only."""
    used = [counted for counted in classes if counted.boxes]
    rare = [counted for counted in used if counted.images < MIN_IMAGES_OF_CLASS]
    rare.sort(key=lambda counted: (counted.images, counted.name))
    yield _found("probe.class-rare", (Place(c.name, c.images) for c in rare))
    most = max((counted.boxes for counted in used), default=0)
    behind = [counted for counted in used if counted.boxes * MAX_CLASS_RATIO < most]
    behind.sort(key=lambda counted: (counted.boxes, counted.name))
    yield _found("probe.class-imbalance", (Place(c.name, most / c.boxes) for c in behind))
    if split:
        alone = [c for c in used if not (c.train_boxes and c.val_boxes)]
        alone.sort(key=lambda counted: (-counted.boxes, counted.name))
        yield _found(
            "probe.class-one-split",
            (Place(c.name, c.boxes, note="all in " + _only(c)) for c in alone),
        )


def _only(counted: ClassCount) -> str:
    return "train" if counted.train_boxes else "val"


def odd_copies(manifest: Manifest, alike: Sequence[NearDuplicate]) -> Iterator[Found]:
    """Images that are there several times: the same bytes, or the same picture."""
    by_digest: dict[str, list[str]] = defaultdict(list)
    for image in manifest.images:
        by_digest[image.digest].append(image.path)
    groups = [paths for paths in by_digest.values() if len(paths) > 1]
    groups.sort(key=lambda paths: (-len(paths), paths[0]))
    yield Found(
        "probe.duplicate-images",
        sum(len(paths) - 1 for paths in groups),
        tuple(Place(paths[0], len(paths), other=paths[1]) for paths in groups[:MAX_CASES]),
    )
    pairs = sorted(alike, key=lambda pair: (pair.distance, pair.first, pair.second))
    yield Found(
        "probe.near-duplicates",
        len({path for pair in alike for path in (pair.first, pair.second)}),
        tuple(Place(pair.first, pair.distance, other=pair.second) for pair in pairs[:MAX_CASES]),
    )


def odd_pictures(
    manifest: Manifest, appearances: Mapping[str, Appearance], strange: Floats
) -> Iterator[Found]:
    """Images without boxes, of odd size or shape, and those that look odd."""
    paths = [image.path for image in manifest.images]
    looks = [appearances[path] for path in paths]
    empty = (image.path for image in manifest.images if not image.boxes)
    yield _found("probe.empty-labels", map(Place, empty))

    sizes = np.array([(image.width, image.height) for image in manifest.images], np.float64)
    longer, shorter = sizes.reshape(-1, 2).max(axis=1), sizes.reshape(-1, 2).min(axis=1)
    yield _images("probe.image-small", paths, longer < MIN_LONGER_SIDE_PX, longer, longer)
    aspect = longer / shorter
    yield _images("probe.image-aspect", paths, aspect > MAX_IMAGE_ASPECT, -aspect, aspect)

    contrast = np.array([look.contrast for look in looks])
    flat = contrast < MIN_CONTRAST
    yield _images("probe.contrast", paths, flat, contrast, contrast)
    brightness = np.array([look.brightness for look in looks])
    gap = np.abs(brightness - _median(brightness))
    odd = (np.abs(deviations(brightness)) > MAX_DEVIATION) & (gap > MIN_BRIGHTNESS_GAP)
    odd &= ~flat
    yield _images("probe.brightness", paths, odd, -gap, brightness)
    seen = ~(flat | odd)  # what is dark or flat is not named again for what follows from that
    # By how many times, not by how much: sharpness has no upper end.
    sharpness = np.array([look.sharpness for look in looks])
    away = deviations(np.log2(np.maximum(sharpness, 0.001)))
    odd = (away < -MAX_DEVIATION) & (sharpness < MAX_SHARPNESS_SHARE * _median(sharpness))
    yield _images("probe.blur", paths, odd & seen, sharpness, sharpness)
    far = strange > MIN_STRANGENESS_RATIO * _median(strange)
    odd = (deviations(strange) > MAX_DEVIATION) & far
    yield _images("probe.unlike", paths, odd & seen, -strange, strange)


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else 0.0


def odd_boxes(manifest: Manifest, boxes: Boxes, findings: Findings) -> Iterator[Found]:
    """Boxes of odd size or shape, those that lie on another one, and those cut at the border."""
    area = boxes.area
    tiny = (area < TINY_AREA) | (boxes.shorter_side_px(INPUT_PX) < TINY_SIDE_PX)
    yield _boxes("probe.tiny-boxes", manifest, boxes, tiny, area, area)
    yield _boxes("probe.full-image-boxes", manifest, boxes, area > FULL_AREA, -area, area)
    aspect = np.maximum(boxes.aspect, 1 / np.maximum(boxes.aspect, np.finfo(np.float64).tiny))
    yield _boxes("probe.box-aspect", manifest, boxes, aspect > MAX_BOX_ASPECT, -aspect, aspect)
    yield from _coincident(manifest, boxes)
    for group in findings.groups(MAX_CASES):
        if group.code == "label.clipped":
            places = tuple(
                Place(found.file, note=f"line {found.line}" if found.line else found.pointer or "")
                for found in group.first
            )
            yield Found("probe.clipped-boxes", group.count, places)


def _coincident(manifest: Manifest, boxes: Boxes) -> Iterator[Found]:
    one, other, iou = coincident(boxes)
    for code, same in (("probe.box-twice", True), ("probe.box-two-classes", False)):
        chosen = (boxes.label[one] == boxes.label[other]) == same
        overlap = np.zeros(len(boxes.image))
        for rows in (one[chosen], other[chosen]):
            np.maximum.at(overlap, rows, iou[chosen])
        found = _boxes(code, manifest, boxes, overlap > 0, -overlap, overlap)
        # Of a pair one box is too much.
        yield Found(code, len(np.unique(other[chosen])), found.worst)


def _found(code: str, places: Iterable[Place]) -> Found:
    every = tuple(places)
    return Found(code, len(every), every[:MAX_CASES])


def _images(code: str, paths: Sequence[str], odd: Flags, badness: Floats, values: Floats) -> Found:
    """The odd images, those with the lowest `badness` first."""
    rows = sorted(np.flatnonzero(odd).tolist(), key=lambda row: (badness[row], paths[row]))
    worst = tuple(Place(paths[row], float(values[row])) for row in rows[:MAX_CASES])
    return Found(code, len(rows), worst)


def _boxes(
    code: str, manifest: Manifest, boxes: Boxes, odd: Flags, badness: Floats, values: Floats
) -> Found:
    """The odd boxes by image, those images first that have the box with the lowest `badness`."""
    rows = np.flatnonzero(odd)
    rows = rows[np.lexsort((rows, badness[rows]))]
    images = boxes.image[rows]
    _, first = np.unique(images, return_index=True)
    places = []
    for place in np.sort(first)[:MAX_CASES].tolist():
        image = images[place]
        of_image = rows[images == image].tolist()
        shown = of_image[:_MAX_BOXES]
        names = sorted({manifest.classes[boxes.label[row]] for row in shown})
        more = f"{len(of_image)} boxes of " if len(of_image) > 1 else ""
        places.append(
            Place(
                manifest.images[image].path,
                float(values[of_image[0]]),
                tuple(int(boxes.number[row]) for row in shown),
                note=more + ", ".join(names),
            )
        )
    return Found(code, len(rows), tuple(places))
