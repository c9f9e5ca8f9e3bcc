"""Probes: what a data set is like, and what in it looks odd. They warn, and refuse nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import rfc8785

from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.annotation import SplitName
from perdure.datasets.check import CheckResult
from perdure.datasets.manifest import Manifest
from perdure.datasets.probe_kinds import KINDS, Kind
from perdure.datasets.probe_measures import Boxes, Floats, boxes_of, strangeness
from perdure.datasets.probe_oddities import (
    ClassCount,
    Found,
    odd_boxes,
    odd_classes,
    odd_copies,
    odd_pictures,
)
from perdure.datasets.split import names_splits
from perdure.errors import InvalidInput

FORMAT: Final = "perdure.probe/1"
# Edges that people can read: 0.00001, 0.00002, 0.00005, ... 1 and 32, 48, 64, 96, ... 16384.
_SHARES: Final = (*(float(f"{step}e{power}") for power in range(-5, 0) for step in (1, 2, 5)), 1.0)
_SIDES_PX: Final = (*(float(step << power) for power in range(9) for step in (32, 48)), 16384.0)
# Digits after the point of what is stored: what follows differs between machines.
_DECIMALS: Final = 6


@dataclass(frozen=True)
class Histogram:
    """How often values fall between `edges`. What is beyond the ends is in the last bars."""

    name: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]  # one less than edges


@dataclass(frozen=True)
class Case:
    """One of the worst: an image's path, a label file or a class, and how bad it is there."""

    subject: str
    value: float | None
    boxes: tuple[int, ...] = ()  # numbers of the boxes meant, in the manifest's order
    other: str = ""  # the other image of a pair
    note: str = ""

    def told(self, kind: Kind) -> str:
        """The value and the note in words; "" when there is nothing to say."""
        value = "" if self.value is None else kind.told.format(self.value).replace("%", " %")
        return ", ".join(part for part in (value, self.note) if part)


@dataclass(frozen=True)
class Oddity:
    """How much there is of a kind, of how many in all, and the worst cases."""

    code: str
    count: int
    total: int
    cases: tuple[Case, ...]

    @property
    def kind(self) -> Kind:
        """What was looked for."""
        return KINDS[self.code]

    @property
    def share(self) -> float:
        """`count` through `total`."""
        return self.count / self.total if self.total else 0.0

    @property
    def warns(self) -> bool:
        """Whether there is more of it than the limit."""
        return self.share > self.kind.limit


@dataclass(frozen=True)
class Probe:
    """What was found. `split` is "given" by the data set, "made" by the import, or "" for none."""

    version: str
    images: int
    empty: int  # images without a box
    boxes: int
    split: str
    classes: tuple[ClassCount, ...]
    histograms: tuple[Histogram, ...]
    oddities: tuple[Oddity, ...]  # warnings first
    findings: tuple[tuple[str, str, int], ...]  # severity, code and number, of the check

    @property
    def warnings(self) -> tuple[Oddity, ...]:
        """The oddities above their limits."""
        return tuple(oddity for oddity in self.oddities if oddity.warns)

    def to_json(self) -> dict[str, Any]:
        """The probe as JSON values."""
        return {
            "format": FORMAT,
            "version": self.version,
            "images": self.images,
            "empty": self.empty,
            "empty_share": _rounded(self.empty / self.images if self.images else 0.0),
            "boxes": self.boxes,
            "split": self.split or None,
            "classes": [dict(vars(counted)) for counted in self.classes],
            "histograms": [
                {
                    "name": histogram.name,
                    "edges": [_rounded(edge) for edge in histogram.edges],
                    "counts": list(histogram.counts),
                }
                for histogram in self.histograms
            ],
            "warnings": [oddity.code for oddity in self.warnings],
            "oddities": [_oddity_json(oddity) for oddity in self.oddities],
            "findings": [
                {"severity": severity, "code": code, "count": count}
                for severity, code, count in self.findings
            ],
        }

    @cached_property
    def text(self) -> str:
        """The canonical form: JSON after RFC 8785."""
        return rfc8785.dumps(self.to_json()).decode()

    @cached_property
    def digest(self) -> str:
        """The BLAKE3 digest of the text, 64 hex digits."""
        return digest_bytes(self.text.encode())


def probe(checked: CheckResult, sides: Mapping[str, SplitName] | None = None) -> Probe:
    """Look at a data set that was checked without errors.

    `sides` says of each image, by path, what it does in a split that was made; a split that the
    data set names is known. Raises InvalidInput for a check with errors: it has no manifest.
    """
    manifest = checked.manifest
    if manifest is None:
        raise InvalidInput("a data set with errors is not probed: correct them first")
    images = manifest.images
    split = "made" if sides else ""
    if names_splits(manifest):
        split = "given"
        sides = {image.path: image.split or "train" for image in images}
    boxes = boxes_of(images)
    strange = strangeness([checked.appearances[image.path] for image in images])
    classes = _count_classes(manifest, boxes, sides or {})
    found = [
        *odd_classes(classes, split=bool(split)),
        *odd_copies(manifest, checked.near_duplicates),
        *odd_pictures(manifest, checked.appearances, strange),
        *odd_boxes(manifest, boxes, checked.findings),
    ]
    oddities = [_oddity(part, manifest, boxes) for part in found if part.count]
    order = list(KINDS)
    return Probe(
        version=manifest.version,
        images=len(images),
        empty=sum(not image.boxes for image in images),
        boxes=len(boxes.image),
        split=split,
        classes=classes,
        histograms=_histograms(checked, manifest, boxes, strange),
        oddities=tuple(
            sorted(oddities, key=lambda oddity: (not oddity.warns, order.index(oddity.code)))
        ),
        findings=tuple(
            (str(group.severity), group.code, group.count) for group in checked.findings.groups(0)
        ),
    )


def _count_classes(
    manifest: Manifest, boxes: Boxes, sides: Mapping[str, SplitName]
) -> tuple[ClassCount, ...]:
    count = len(manifest.classes)
    side = np.array([sides.get(image.path, "") for image in manifest.images])
    of_box = side[boxes.image]
    images, labels = np.unique(np.stack([boxes.image, boxes.label]), axis=1)
    of_image = side[images]

    def counted(values: Any) -> list[int]:
        return [int(number) for number in np.bincount(values, minlength=count)]

    columns = (
        counted(boxes.label),
        counted(labels),
        counted(boxes.label[of_box == "train"]),
        counted(labels[of_image == "train"]),
        counted(boxes.label[of_box == "val"]),
        counted(labels[of_image == "val"]),
    )
    return tuple(
        ClassCount(name, *numbers)
        for name, numbers in zip(manifest.classes, zip(*columns, strict=True), strict=True)
    )


def _oddity(found: Found, manifest: Manifest, boxes: Boxes) -> Oddity:
    total = {"images": len(manifest.images), "boxes": len(boxes.image)}
    cases = tuple(
        Case(
            subject=place.subject,
            value=None if place.value is None else _rounded(place.value),
            boxes=place.boxes,
            other=place.other,
            note=place.note,
        )
        for place in found.worst
    )
    of = total.get(KINDS[found.code].counted, len(manifest.classes))
    return Oddity(found.code, found.count, of, cases)


def _histograms(
    checked: CheckResult, manifest: Manifest, boxes: Boxes, strange: Floats
) -> tuple[Histogram, ...]:
    looks = [checked.appearances[image.path] for image in manifest.images]
    sizes = np.array([(image.width, image.height) for image in manifest.images], np.float64)
    widths, heights = sizes.reshape(-1, 2).T
    per_image = [float(len(image.boxes)) for image in manifest.images]
    return (
        _histogram("box-area", boxes.area, _SHARES),
        _histogram("box-aspect", boxes.aspect, _powers(2, -5, 5, 2)),
        _histogram("boxes-per-image", per_image, (0, 1, 2, 3, 4, 6, 11, 21, 51, 101, 201, 501)),
        _histogram("image-longer-side", np.maximum(widths, heights), _SIDES_PX),
        _histogram("image-aspect", widths / heights, _powers(2, -3, 3, 4)),
        _histogram("brightness", [look.brightness for look in looks], _steps(256, 16)),
        _histogram("contrast", [look.contrast for look in looks], _steps(128, 16)),
        _histogram("sharpness", [look.sharpness for look in looks], _powers(2, -1, 14, 1)),
        _histogram("strangeness", strange, (*_SHARES[_SHARES.index(0.01) :], 2.0)),
    )


def _histogram(name: str, values: Sequence[float] | Floats, edges: Sequence[float]) -> Histogram:
    inside = np.clip(np.asarray(values, np.float64), edges[0], np.nextafter(edges[-1], -np.inf))
    counts, _ = np.histogram(inside, edges)
    return Histogram(name, tuple(float(edge) for edge in edges), tuple(counts.tolist()))


def _powers(base: float, first: int, last: int, parts: int) -> tuple[float, ...]:
    """From base^first to base^last, `parts` steps for each power."""
    return tuple(base ** (number / parts) for number in range(first * parts, last * parts + 1))


def _steps(end: float, parts: int) -> tuple[float, ...]:
    return tuple(end * number / parts for number in range(parts + 1))


def _oddity_json(oddity: Oddity) -> dict[str, Any]:
    kind = oddity.kind
    return {
        "code": oddity.code,
        "counted": kind.counted,
        "count": oddity.count,
        "total": oddity.total,
        "share": _rounded(oddity.share),
        "limit": kind.limit,
        "warning": oddity.warns,
        "problem": kind.problem,
        "advice": kind.advice,
        "cases": [
            {
                "subject": case.subject,
                "value": case.value,
                "boxes": list(case.boxes),
                "other": case.other or None,
                "note": case.note or None,
            }
            for case in oddity.cases
        ],
    }


def _rounded(value: float) -> float:
    return round(float(value), _DECIMALS)
