"""Checking a data set: read it, decode every image, list all findings, and give its manifest.

The command line, the SDK and data-prep all use this, so that a data set that passes at home passes
on the server.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.artifacts.archive import unpack
from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.annotation import AnnotatedImage, Annotations, SplitName
from perdure.datasets.findings import (
    Fault,
    Finding,
    Findings,
    Severity,
    count_codes,
    count_severities,
)
from perdure.datasets.formats.yolo import read_yolo
from perdure.datasets.imaging import ImageInfo, decode_bytes, probe_bytes, read_image
from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.datasets.split import distinct_contents, names_splits
from perdure.datasets.text import unreadable_file
from perdure.errors import InvalidDataset, InvalidInput, NotFound, Unavailable, UnsafeArchive

# Of a large set, single broken files can be missed without harm; more points to a broken copy.
MAX_SKIPPED_SHARE: Final = 0.01
# The decoders release the GIL. More than four hold too much memory at MAX_PIXELS each.
_THREADS: Final = min(4, os.cpu_count() or 1)

# Called with the phase ("unpacking", "checking"), the step and the number of steps.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class CheckResult:
    """What a check found. `manifest` is None when there are errors.

    `files` says where the bytes of the manifest's images lie; for a zip they are gone by now.
    """

    format: str
    classes: tuple[str, ...]
    images: int
    boxes: int
    background: int  # images without a box
    skipped: int  # images that could not be decoded
    findings: tuple[Finding, ...]
    manifest: Manifest | None
    files: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the data set would be imported."""
        return self.errors == 0

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return count_severities(self.findings)[Severity.ERROR]

    @property
    def warnings(self) -> int:
        """The number of findings that are warnings."""
        return count_severities(self.findings)[Severity.WARNING]

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values: format, counts, classes, and every finding."""
        by_severity = count_severities(self.findings)
        return {
            "format": self.format,
            "counts": {
                "errors": by_severity[Severity.ERROR],
                "warnings": by_severity[Severity.WARNING],
                "infos": by_severity[Severity.INFO],
                "by_code": count_codes(self.findings),
                "images": self.images,
                "boxes": self.boxes,
                "background": self.background,
                "skipped": self.skipped,
            },
            "classes": list(self.classes),
            "version": self.manifest.version if self.manifest else None,
            "findings": [finding.to_json() for finding in self.findings],
        }


def check(path: Path, *, progress: Progress | None = None) -> CheckResult:
    """Check a folder, its data.yaml, or a zip, which is unpacked to a temporary folder.

    Raises NotFound when there is nothing at `path`, InvalidInput when it is something else or
    cannot be read, and Unavailable when there is no room to unpack it.
    """
    if not path.exists():
        raise NotFound(f"there is no {path}: give the data set's folder or zip")
    if path.is_dir():
        return check_folder(path, progress=progress)
    if path.suffix.lower() in (".yaml", ".yml"):
        return check_folder(path.parent, progress=progress, config_name=path.name)
    if path.suffix.lower() != ".zip":
        raise InvalidInput(f"{path} is neither a folder nor a .zip: give the data set's folder")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}): correct its owner or permissions"
        ) from error
    with tempfile.TemporaryDirectory(prefix="perdure-check-") as temporary:
        try:
            return check_archive(path, Path(temporary, "unpacked"), path.name, progress=progress)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be unpacked to {temporary} ({error.strerror}): "
                "make room there, or name another folder in TMPDIR"
            ) from error


def check_archive(
    archive: Path, target: Path, name: str, *, progress: Progress | None = None
) -> CheckResult:
    """Unpack a zip into the new folder `target` and check it; an unsafe one is a finding too."""

    def unpacking(step: int, steps: int) -> None:
        if progress:
            progress("unpacking", step, steps)

    try:
        unpack(archive, target, progress=unpacking)
    except UnsafeArchive as error:
        return rejected_archive(name, error)
    return check_folder(target, progress=progress)


def rejected_archive(name: str, error: UnsafeArchive) -> CheckResult:
    """The result of a check that ended at the archive itself."""
    details = error.details
    rule = "an archive must be a whole zip that is safe to unpack"
    fault = Fault(
        Severity.ERROR, details["code"], "", rule, details["advice"], problem=details["fault"]
    )
    return CheckResult(
        format="zip",
        classes=(),
        images=0,
        boxes=0,
        background=0,
        skipped=0,
        findings=(fault.at(name),),
        manifest=None,
    )


def check_folder(
    folder: Path, *, progress: Progress | None = None, config_name: str | None = None
) -> CheckResult:
    """Check the data set in a folder, which must not change meanwhile.

    `config_name` says which file in it is its data.yaml; without it that is found by its name.
    """
    findings = Findings()
    annotations = read_yolo(folder, findings, config_name)
    inspected = _inspect_all(annotations.images, progress)
    images = _manifest_images(annotations, inspected, findings)
    manifest = manifest_of(annotations.classes, images)
    _check_splits(manifest, {image.split for image in annotations.images}, findings)
    _check_twins(manifest, findings)
    ordered = findings.in_order()
    rejected = count_severities(ordered)[Severity.ERROR] > 0
    return CheckResult(
        format=annotations.format,
        classes=annotations.classes,
        images=len(images),
        boxes=sum(len(image.boxes) for image in images),
        background=sum(not image.boxes for image in images),
        skipped=len(annotations.images) - len(images),
        findings=ordered,
        manifest=None if rejected else manifest,
        files={image.path: image.file for image in annotations.images},
    )


@dataclass(frozen=True)
class _Inspected:
    """An image file: its digest and size, and its header or the reason why it is of no use."""

    digest: str
    size_bytes: int
    outcome: ImageInfo | InvalidDataset | OSError


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
        decode_bytes(data, path.name)
        outcome: ImageInfo | InvalidDataset = probe_bytes(data, path.name)
    except InvalidDataset as error:
        outcome = error
    return _Inspected(digest_bytes(data), len(data), outcome)


def _manifest_images(
    annotations: Annotations, inspected: Sequence[_Inspected], findings: Findings
) -> tuple[ManifestImage, ...]:
    """The usable images. Few undecodable ones are skipped with a warning, many are errors."""
    undecodable = sum(
        isinstance(found.outcome, InvalidDataset)
        and found.outcome.details["code"] == "image.undecodable"
        for found in inspected
    )
    too_many = undecodable > MAX_SKIPPED_SHARE * len(inspected)
    images = []
    for image, found in zip(annotations.images, inspected, strict=True):
        if isinstance(found.outcome, OSError):
            findings.add(unreadable_file(found.outcome), image.path)
            continue
        if isinstance(found.outcome, InvalidDataset):
            _report_unusable(image.path, found.outcome, too_many, findings)
            continue
        _report_normalised(image.path, found.outcome, findings)
        images.append(
            ManifestImage(
                path=image.path,
                digest=found.digest,
                size_bytes=found.size_bytes,
                width=found.outcome.width,
                height=found.outcome.height,
                boxes=image.boxes,
                split=image.split,
            )
        )
    return tuple(images)


def _report_unusable(path: str, error: InvalidDataset, too_many: bool, findings: Findings) -> None:
    fault = str(error.details["fault"])
    if error.details["code"] == "image.too-large":
        rule, advice = "an image must have a size that training can use", "cut it into tiles"
        findings.error("image.too-large", path, fault, rule, advice)
    elif too_many:
        share = f"{MAX_SKIPPED_SHARE:.0%}"
        findings.error(
            "image.undecodable",
            path,
            fault,
            f"at most {share} of the images may be undecodable",
            "replace or remove the image",
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


def _check_splits(manifest: Manifest, named: set[SplitName | None], findings: Findings) -> None:
    """`named` are the splits that the data set names, before images were skipped."""
    if not names_splits(manifest):
        if {"train", "val"} <= named and manifest.images:
            findings.error(
                "split.too-few-images",
                "",
                "",
                "train and val must each have an image that can be decoded",
                "replace the images that were skipped",
                problem="of train or of val no image can be decoded",
            )
        elif len(distinct_contents(manifest)) == 1:
            rule = "one image must train and another one validate"
            findings.error("split.too-few-images", "", "1 image", rule, "add different images")
        return
    in_train = {image.digest: image.path for image in manifest.images if image.split != "val"}
    for image in manifest.images:
        if image.split == "val" and image.digest in in_train:
            findings.error(
                "split.leakage",
                image.path,
                in_train[image.digest],
                "an image must be in train or in val, not in both",
                "remove one of the two files",
                problem="a file in val is byte-identical to one in train",
            )


def _check_twins(manifest: Manifest, findings: Findings) -> None:
    """Byte-identical images of one split should be labelled alike."""
    first: dict[tuple[str, SplitName | None], ManifestImage] = {}
    for image in manifest.images:
        twin = first.setdefault((image.digest, image.split), image)
        if twin.boxes != image.boxes:
            findings.warning(
                "label.twin-differs",
                image.path,
                twin.path,
                "the same image must have the same labels",
                "correct the labels of one, or remove it",
            )
