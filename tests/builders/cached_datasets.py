"""A data set in a store and a cache for it, and other processes that use them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from perdure.artifacts import ObjectStore, open_store
from perdure.datasets.cache import LocalDataset, materialise
from perdure.datasets.check import check
from perdure.datasets.snapshot import store_images, store_manifest, store_split
from perdure.datasets.split import make_split
from tests.builders.datasets import picture, write_files, yolo_files

IMAGES = 6


class CountingStore:
    """A store that notes which objects are copied out of it; `fail` may raise before one is."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.copied: list[str] = []
        self.fail: Callable[[int], None] = lambda _copied: None

    def get_file(self, key, path, *, digest=None):
        self.fail(len(self.copied))
        self.copied.append(key)
        return self._store.get_file(key, path, digest=digest)

    def __getattr__(self, name):
        return getattr(self._store, name)


class World:
    """A data set of six images in a store; images 0 and 5 are byte-identical."""

    def __init__(self, folder: Path, root: Path | None = None, images: int = IMAGES) -> None:
        files = yolo_files(images) | {"images/5.jpg": picture(0), "labels/1.txt": ""}
        self.source = folder / "set"
        checked = check(write_files(self.source, files))
        assert checked.manifest is not None
        self.url = (folder / "store").as_uri()
        self.store = CountingStore(open_store(self.url))
        self.manifest = checked.manifest
        self.split = make_split(self.manifest, seed=1, val_ratio=0.4)
        self.progress: list[tuple[int, int]] = []
        store_images(
            self.store, self.manifest, checked.files, lambda *step: self.progress.append(step)
        )
        store_manifest(self.store, self.manifest)
        store_split(self.store, self.split)
        self.root = root or folder / "cache"
        self.target = self.root / f"{self.manifest.version}-{self.split.split_id[:16]}"
        self.building = self.root / f".{self.target.name}.building"

    def materialise(self, progress=None, **limits) -> LocalDataset:
        return materialise(
            self.store, self.manifest.version, self.split.split_id, self.root, progress, **limits
        )

    def start(self, code: str, **environment: str) -> subprocess.Popen:
        """Another process, which knows the store, the version, the split, the root, the target."""
        before = (
            "import os, sys, time; from pathlib import Path; "
            "from perdure.artifacts import open_store; "
            "from perdure.datasets.cache import load_local, materialise; "
            f"store, version, split_id = open_store({self.url!r}), {self.manifest.version!r}, "
            f"{self.split.split_id!r}; root, target = Path({str(self.root)!r}), "
            f"Path({str(self.target)!r})\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", before + code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
        )


def whole(world: World, local: LocalDataset) -> bool:
    """Whether all images have the bytes that were imported, and nothing else lies there."""
    images = (*local.train, *local.val)
    names = {path.relative_to(local.root).as_posix() for path in local.root.rglob("*.*")}
    expected = {image.path.relative_to(local.root).as_posix() for image in images}
    return names == expected | {"manifest.json", "split.json"} and all(
        image.path.read_bytes() == (world.source / image.sample_id).read_bytes() for image in images
    )
