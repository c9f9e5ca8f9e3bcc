"""Probing what is imported: probe and report go to the object store, beside the findings."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from perdure.artifacts.hashing import digest_bytes
from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.datasets.annotation import SplitName
from perdure.datasets.check import CheckResult
from perdure.datasets.inspection import Progress
from perdure.datasets.manifest import Manifest
from perdure.datasets.probe_report import report
from perdure.datasets.probes import probe
from perdure.datasets.split import Split
from perdure_data_prep import journal


def store_probe(
    store: ObjectStore,
    name: str,
    checked: CheckResult,
    manifest: Manifest,
    split: Split,
    progress: Progress,
) -> dict[str, Any]:
    """Probe a data set that was checked, while its files are there.

    Gives the fields of perdure.v1.DatasetProbed. Raises StoreUnavailable.
    """
    found = probe(checked, _sides(split))
    journal.write_probe(found)
    page = report(
        found,
        name,
        manifest,
        checked.files,
        progress=lambda done, total: progress("probing", done, total),
    )
    return {
        "version": manifest.version,
        "probe": asdict(_stored(store, "json", found.text)),
        "report": asdict(_stored(store, "html", page)),
        "warnings": [oddity.code for oddity in found.warnings],
    }


def _sides(split: Split) -> Mapping[str, SplitName]:
    train: dict[str, SplitName] = dict.fromkeys(split.train, "train")
    return train | dict.fromkeys(split.val, "val")


def _stored(store: ObjectStore, suffix: str, text: str) -> StoredObject:
    data = text.encode()
    key = f"datasets/probes/{digest_bytes(data)}.{suffix}"
    return store.stat(key) or store.put_bytes(key, data)
