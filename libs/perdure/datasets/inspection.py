"""Looking at each image of a data set: what it is, whether it can be used, and the boxes on it."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.annotation import AnnotatedImage, Box
from perdure.datasets.appearance import Appearance, appearance_of
from perdure.datasets.findings import Findings
from perdure.datasets.imaging import ImageInfo, decode_whole, read_image
from perdure.datasets.manifest import ManifestImage
from perdure.datasets.pixels import upright_boxes
from perdure.datasets.rules import ImportRules
from perdure.datasets.text import unreadable_file
from perdure.errors import InvalidDataset

# The decoders release the GIL. More than four hold too much memory at MAX_PIXELS each.
_THREADS: Final = min(4, os.cpu_count() or 1)

# Called with the phase ("unpacking", "checking"), the step and the number of steps.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Inspection:
    """The usable images, and how each of them looks, by path."""

    images: tuple[ManifestImage, ...]
    appearances: Mapping[str, Appearance]


def inspect_images(
    images: Sequence[AnnotatedImage],
    rules: ImportRules,
    findings: Findings,
    progress: Progress | None,
) -> Inspection:
    """Decode all images; the usable ones, and findings for the others.

    Few undecodable ones are skipped with a warning, more than `rules.max_skipped` are errors.
    """
    inspected = _inspect_all(images, progress)
    undecodable = sum(
        isinstance(found.outcome, InvalidDataset)
        and found.outcome.details["code"] == "image.undecodable"
        for found in inspected
    )
    too_many = undecodable > rules.max_skipped * len(inspected)
    usable = []
    appearances = {}
    for image, found in zip(images, inspected, strict=True):
        if isinstance(found.outcome, OSError):
            findings.add(unreadable_file(found.outcome), image.path)
        elif isinstance(found.outcome, InvalidDataset):
            _report_unusable(image.path, found.outcome, rules, too_many, findings)
        else:
            _report_normalised(image.path, found.outcome, findings)
            usable.append(_manifest_image(image, found, found.outcome, rules, findings))
            if found.appearance is not None:
                appearances[image.path] = found.appearance
    return Inspection(tuple(usable), appearances)


def _manifest_image(
    image: AnnotatedImage,
    found: "_Inspected",
    info: ImageInfo,
    rules: ImportRules,
    findings: Findings,
) -> ManifestImage:
    boxes: tuple[Box, ...] = image.boxes
    if image.pixels is not None:
        boxes = upright_boxes(image.pixels, image.path, info, rules, findings)
    return ManifestImage(
        path=image.path,
        digest=found.digest,
        size_bytes=found.size_bytes,
        width=info.width,
        height=info.height,
        boxes=boxes,
        split=image.split,
        group=rules.group_of(image.path) if rules.group_by else image.group,
    )


@dataclass(frozen=True)
class _Inspected:
    """An image file: its digest and size, and its header or the reason why it is of no use."""

    digest: str
    size_bytes: int
    outcome: ImageInfo | InvalidDataset | OSError
    appearance: Appearance | None = None


def _inspect_all(images: Sequence[AnnotatedImage], progress: Progress | None) -> list[_Inspected]:
    found: list[_Inspected] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="decode") as pool:
        try:
            for inspected in pool.map(_inspect, (image.file for image in images)):
                found.append(inspected)
                if progress:
                    progress("checking", len(found), len(images))
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def _inspect(path: Path) -> _Inspected:
    """Decode an image whole: only so is it known not to be cut off."""
    try:
        data = read_image(path)
    except (InvalidDataset, OSError) as error:
        return _Inspected("", 0, error)
    try:
        info, pixels = decode_whole(data, path.name)
    except InvalidDataset as error:
        return _Inspected(digest_bytes(data), len(data), error)
    return _Inspected(digest_bytes(data), len(data), info, appearance_of(pixels))


def _report_unusable(
    path: str, error: InvalidDataset, rules: ImportRules, too_many: bool, findings: Findings
) -> None:
    fault = str(error.details["fault"])
    if error.details["code"] == "image.too-large":
        rule, advice = "an image must have a size that training can use", "cut it into tiles"
        findings.error("image.too-large", path, fault, rule, advice)
    elif too_many:
        share = f"{rules.max_skipped:.4%}".rstrip("0%").rstrip(".") + "%"
        findings.error(
            "image.undecodable",
            path,
            fault,
            f"at most {share} of the images may be undecodable",
            "replace or remove the image; or raise the share with --max-skipped",
            problem=f"an image cannot be decoded, and so cannot more than {share} of all",
        )
    else:
        rule, advice = "images must be decodable", "it was skipped: replace or remove it"
        findings.warning("image.undecodable", path, fault, rule, advice)


def _report_normalised(path: str, info: ImageInfo, findings: Findings) -> None:
    if info.mode != "RGB":
        rule, advice = "pixels must be 8-bit RGB", "they were converted"
        findings.info("image.converted", path, info.mode, rule, advice)
    if info.orientation != 1:
        rule, advice = (
            "images must be upright",
            "it was turned; boxes were read in the upright image",
        )
        findings.info("image.exif-orientation", path, str(info.orientation), rule, advice)
    if not info.matches_suffix(Path(path).suffix):
        rule, advice = "a file's name must say its format", "it was read by its content; rename it"
        findings.warning("image.extension-mismatch", path, info.format, rule, advice)
