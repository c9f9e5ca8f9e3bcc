"""The prepare stage: from an uploaded zip to a data set version and a split in the object store."""

import shutil
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from perdure.artifacts.hashing import digest_file
from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.datasets.annotation import SplitName
from perdure.datasets.check import CheckResult, check_archive
from perdure.datasets.inspection import Progress
from perdure.datasets.manifest import Manifest
from perdure.datasets.near_duplicates import report_crossing
from perdure.datasets.rules import ImportRules
from perdure.datasets.snapshot import load_manifest, store_images, store_manifest, store_split
from perdure.datasets.split import Split, distinct_contents, make_split
from perdure_data_prep import journal
from perdure_data_prep.probing import store_probe
from perdure_data_prep.thin_archive import complete_folder

# What a task's page shows at once; the whole list is one click away.
_FIRST_FINDINGS: Final = 10


@dataclass(frozen=True)
class Prepared:
    """A data set version and a split, both in the store."""

    dataset_version: str
    split_id: str


@dataclass(frozen=True)
class Imported:
    """An import that succeeded; `facts` are the fields of perdure.v1.DatasetImported, and `probed`
    those of DatasetProbed.
    """

    prepared: Prepared
    facts: dict[str, Any]
    probed: dict[str, Any]


@dataclass(frozen=True)
class Rejected:
    """A refused data set; `facts` are the fields of perdure.v1.DatasetRejected."""

    facts: dict[str, Any]
    detail: str


def import_archive(
    store: ObjectStore,
    upload: StoredObject,
    name: str,
    *,
    rules: ImportRules,
    val_ratio: float,
    seed: int,
    work_dir: Path,
    progress: Progress,
) -> Imported | Rejected:
    """Check the data set in an uploaded zip and store its images, manifest, findings, probe and
    split.

    Doing it again stores nothing twice. `work_dir` is used for the unpacked files and left without
    them. Raises NotFound or DamagedObject for the upload and the images that it names, InvalidInput
    for `val_ratio` and `seed`, StoreUnavailable, and OSError for the local disk.
    """
    archive, unpacked = work_dir / "upload.zip", work_dir / "unpacked"
    fetched: set[str] = set()

    def complete(folder: Path) -> None:
        fetched.update(complete_folder(store, folder, archive.stat().st_size, progress))

    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        journal.write_upload(name, upload)
        progress("fetching", 0, 1)
        store.get_file(upload.key, archive, digest=upload.digest)
        checked = check_archive(
            archive, unpacked, name, rules, progress=progress, complete=complete
        )
        split = None
        if checked.manifest is not None:
            split = make_split(checked.manifest, seed=seed, val_ratio=val_ratio)
            _judge(checked, split)
        journal.write_checked(checked)
        findings = _store_findings(store, checked, work_dir)
        journal.write(f"all findings: {findings.key}")
        if checked.manifest is None or split is None:
            return _rejected(name, checked, findings)
        probed = store_probe(store, name, checked, checked.manifest, split, progress)
        new = _store_images(store, checked.manifest, checked, fetched, progress)
        journal.write_stored(new, len(distinct_contents(checked.manifest)))
        return _store(store, name, checked, checked.manifest, findings, split, probed)
    finally:
        archive.unlink(missing_ok=True)
        (work_dir / "findings.json").unlink(missing_ok=True)
        shutil.rmtree(unpacked, ignore_errors=True)


def prepare_version(store: ObjectStore, version: str, *, val_ratio: float, seed: int) -> Prepared:
    """Make, or find, the split of a data set version that was imported before.

    Raises NotFound and DamagedObject for the version, InvalidInput for `val_ratio` and `seed`.
    """
    split = make_split(load_manifest(store, version), seed=seed, val_ratio=val_ratio)
    store_split(store, split)
    journal.write_split(split)
    return Prepared(version, split.split_id)


def _judge(checked: CheckResult, split: Split) -> None:
    """Record which pairs of alike images the made split has parted; the check judges given ones."""
    if split.seed is not None:
        sides: dict[str, SplitName | None] = dict.fromkeys(split.train, "train")
        report_crossing(
            checked.near_duplicates, sides | dict.fromkeys(split.val, "val"), checked.findings
        )


def _store_images(
    store: ObjectStore,
    manifest: Manifest,
    checked: CheckResult,
    fetched: AbstractSet[str],
    progress: Progress,
) -> int:
    def storing(done: int, total: int) -> None:
        progress("storing", done, total)

    return store_images(store, manifest, checked.files, storing, whole=fetched)


def _store(
    store: ObjectStore,
    name: str,
    checked: CheckResult,
    manifest: Manifest,
    findings: StoredObject,
    split: Split,
    probed: dict[str, Any],
) -> Imported:
    store_split(store, split)
    stored = store_manifest(store, manifest)
    journal.write_split(split)
    facts = _imported_facts(name, checked, manifest, split, stored, findings)
    return Imported(Prepared(manifest.version, split.split_id), facts, probed)


def _imported_facts(
    name: str,
    checked: CheckResult,
    manifest: Manifest,
    split: Split,
    stored: StoredObject,
    findings: StoredObject,
) -> dict[str, Any]:
    return {
        "version": manifest.version,
        "name": name,
        "format": checked.format,
        "classes": list(manifest.classes),
        "images": checked.images,
        "boxes": checked.boxes,
        "train_images": len(split.train),
        "val_images": len(split.val),
        "split_id": split.split_id,
        "warnings": checked.warnings,
        "manifest": asdict(stored),
        "findings": asdict(findings),
    }


def _rejected(name: str, checked: CheckResult, findings: StoredObject) -> Rejected:
    first = [finding.text() for finding in checked.findings[:_FIRST_FINDINGS]]
    errors = checked.errors
    return Rejected(
        facts={
            "name": name,
            "errors": errors,
            "warnings": checked.warnings,
            "findings": asdict(findings),
            "first_findings": first,
        },
        detail=f"{errors} {'error' if errors == 1 else 'errors'} in data set {name}; "
        f"first: {first[0]}",
    )


def _store_findings(store: ObjectStore, checked: CheckResult, work_dir: Path) -> StoredObject:
    """Store all findings. There may be millions: they are written piece by piece."""
    path = work_dir / "findings.json"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(checked.json_text())
    key = f"datasets/findings/{digest_file(path)}.json"
    return store.stat(key) or store.put_file(key, path)
