"""Checking a data set: read it, decode every image, list all findings, and give its manifest.

The command line, the SDK and data-prep all use this, so that a data set that passes at home passes
on the server.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perdure.artifacts.archive import unpack
from perdure.datasets.appearance import Appearance
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.findings_document import document
from perdure.datasets.inspection import Progress, inspect_images
from perdure.datasets.leakage import check_groups, check_splits, check_twins
from perdure.datasets.manifest import Manifest, manifest_of
from perdure.datasets.near_duplicates import NearDuplicate, near_duplicates, report_crossing
from perdure.datasets.reading import read_annotations
from perdure.datasets.rules import ImportRules
from perdure.datasets.split import names_splits
from perdure.datasets.tree import read_tree
from perdure.errors import InvalidInput, NotFound, Unavailable, UnsafeArchive

DEFAULT_RULES: Final = ImportRules()
_ARCHIVE_RULE: Final = "an archive must be a whole zip that is safe to unpack"


@dataclass(frozen=True)
class CheckResult:
    """What a check found. `manifest` is None when there are errors.

    `files` says where the bytes of the manifest's images lie; what a zip was unpacked to is gone
    once the check has returned.
    """

    format: str
    classes: tuple[str, ...]
    images: int
    boxes: int
    background: int  # images without a box
    skipped: int  # images that could not be decoded
    left_out: int  # test images, which are for a test of the user's own
    findings: Findings
    manifest: Manifest | None
    near_duplicates: tuple[NearDuplicate, ...] = ()
    appearances: Mapping[str, Appearance] = field(default_factory=dict, repr=False)
    files: Mapping[str, Path] = field(default_factory=dict, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the data set would be imported."""
        return self.errors == 0

    @property
    def errors(self) -> int:
        """The number of findings that are errors."""
        return self.findings.number_of(Severity.ERROR)

    @property
    def warnings(self) -> int:
        """The number of findings that are warnings."""
        return self.findings.number_of(Severity.WARNING)

    def json_text(self) -> Iterator[str]:
        """The result as pieces of one JSON text: format, counts, classes, and every finding."""
        head = {
            "format": self.format,
            "counts": {
                "errors": self.errors,
                "warnings": self.warnings,
                "infos": self.findings.number_of(Severity.INFO),
                "by_code": self.findings.codes(),
                "images": self.images,
                "boxes": self.boxes,
                "background": self.background,
                "skipped": self.skipped,
                "left_out": self.left_out,
            },
            "classes": list(self.classes),
            "version": self.manifest.version if self.manifest else None,
        }
        return document(head, self.findings)


def check(
    path: Path, rules: ImportRules = DEFAULT_RULES, *, progress: Progress | None = None
) -> CheckResult:
    """Check a folder, its data.yaml, or a zip, which is unpacked to a temporary folder.

    Raises NotFound when there is nothing at `path`, InvalidInput when it is something else or
    cannot be read, and Unavailable when there is no room to unpack it.
    """
    with opened_and_checked(path, rules, progress=progress) as result:
        return result


@contextmanager
def opened_and_checked(
    path: Path, rules: ImportRules = DEFAULT_RULES, *, progress: Progress | None = None
) -> Iterator[CheckResult]:
    """As check; what a zip was unpacked to is there until the block ends."""
    with ExitStack() as stack:
        yield _checked(path, rules, progress, stack)


def _checked(
    path: Path, rules: ImportRules, progress: Progress | None, stack: ExitStack
) -> CheckResult:
    if not path.exists():
        raise NotFound(f"there is no {path}: give the data set's folder or zip")
    if path.is_dir():
        return check_folder(path, rules, progress=progress)
    if path.suffix.lower() in (".yaml", ".yml"):
        return check_folder(path.parent, rules, progress=progress, given=path.name)
    if path.suffix.lower() != ".zip":
        raise InvalidInput(f"{path} is neither a folder nor a .zip: give the data set's folder")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}): correct its owner or permissions"
        ) from error
    temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="perdure-check-"))
    try:
        unpacked = Path(temporary, "unpacked")
        return check_archive(path, unpacked, path.name, rules, progress=progress)
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be unpacked to {temporary} ({error.strerror}): "
            "make room there, or name another folder in TMPDIR"
        ) from error


def check_archive(
    archive: Path,
    target: Path,
    name: str,
    rules: ImportRules = DEFAULT_RULES,
    *,
    progress: Progress | None = None,
    complete: Callable[[Path], None] | None = None,
) -> CheckResult:
    """Unpack a zip into the new folder `target` and check it; an unsafe one is a finding too.

    `complete` is called with `target` between the two, to add what travelled apart from the
    archive. It may raise UnsafeArchive as well.
    """

    def unpacking(step: int, steps: int) -> None:
        if progress:
            progress("unpacking", step, steps)

    try:
        unpack(archive, target, progress=unpacking)
        if complete:
            complete(target)
    except UnsafeArchive as error:
        return rejected_archive(name, error)
    return check_folder(target, rules, progress=progress)


def rejected_archive(
    name: str, error: UnsafeArchive, *, format_: str = "zip", rule: str = _ARCHIVE_RULE
) -> CheckResult:
    """The result of a check that ended at the archive itself: a finding for each bad entry."""
    findings = Findings()
    for fault in error.details["faults"]:
        found = Fault(Severity.ERROR, fault.code, "", rule, fault.advice, problem=fault.fault)
        findings.add(found, fault.entry or name)
    return CheckResult(
        format=format_,
        classes=(),
        images=0,
        boxes=0,
        background=0,
        skipped=0,
        left_out=0,
        findings=findings,
        manifest=None,
    )


def check_folder(
    folder: Path,
    rules: ImportRules = DEFAULT_RULES,
    *,
    progress: Progress | None = None,
    given: str | None = None,
) -> CheckResult:
    """Check the data set in a folder, which must not change meanwhile.

    `given` is the name of the data.yaml in it, where that was given in place of the folder.
    """
    findings = Findings()
    annotations = read_annotations(read_tree(folder, findings, given), rules, findings)
    inspection = inspect_images(annotations.images, rules, findings, progress)
    images = inspection.images
    manifest = manifest_of(annotations.classes, images)
    check_splits(manifest, {image.split for image in annotations.images}, rules, findings)
    check_twins(manifest, findings)
    check_groups(manifest, findings)
    digests = {image.path: image.digest for image in images}
    alike = near_duplicates(inspection.appearances, digests)
    if names_splits(manifest):  # a split that is made later is judged when it is made
        report_crossing(alike, {image.path: image.split for image in images}, findings)
    rejected = findings.number_of(Severity.ERROR) > 0
    return CheckResult(
        format=annotations.format,
        classes=annotations.classes,
        images=len(images),
        boxes=sum(len(image.boxes) for image in images),
        background=sum(not image.boxes for image in images),
        skipped=len(annotations.images) - len(images),
        left_out=annotations.left_out,
        findings=findings,
        manifest=None if rejected else manifest,
        near_duplicates=alike,
        appearances=inspection.appearances,
        files={image.path: image.file for image in annotations.images},
    )
