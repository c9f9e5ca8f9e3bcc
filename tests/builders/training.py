"""Data sets of drawn birds as the training sees them, and a channel that listens."""

import os
from pathlib import Path
from typing import Any

from perdure.artifacts import open_store
from perdure.attempts.channel import Channel
from perdure.datasets.cache import LocalDataset, materialise
from perdure.datasets.check import check_folder
from perdure.datasets.snapshot import store_images, store_manifest, store_split
from perdure.datasets.split import make_split
from perdure_embedded.birds import draw_bird_dataset


def local_birds(root: Path, *, images: int, size_px: int) -> LocalDataset:
    """Draw birds into `root`/source, and import them into a store and a cache beside it."""
    source = draw_bird_dataset(root / "source", images=images, size_px=size_px)
    checked = check_folder(source)
    assert checked.manifest is not None, checked.findings
    store = open_store(f"file://{root / 'store'}")
    store_images(store, checked.manifest, checked.files, lambda _done, _total: None)
    store_manifest(store, checked.manifest)
    split = make_split(checked.manifest, seed=0, val_ratio=0.2)
    store_split(store, split)
    return materialise(store, split.version, split.split_id, root / "cache")


class RecordingChannel(Channel):
    """A channel that keeps what is said, and asks to stop when it has been looked at often enough.

    The loop looks before each step and after each batch of validation, so `stop_at_look` names a
    place in a training exactly.
    """

    def __init__(self, stop_at_look: int | None = None) -> None:
        super().__init__(os.open(os.devnull, os.O_WRONLY))
        self.lines: list[dict[str, Any]] = []
        self._looks_left = stop_at_look

    @property
    def stop_requested(self) -> bool:
        if self._looks_left is None:
            return False
        self._looks_left -= 1
        return self._looks_left < 0

    def say(self, kind: str, **fields: Any) -> None:
        self.lines.append({"kind": kind, **fields})

    def said(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]
