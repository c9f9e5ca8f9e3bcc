"""A data set version with its split as a local folder, ready for training.

    <root>/<version>-<first 16 of split_id>/
        images/train/...  images/val/...      the images' original bytes
        labels/train/...  labels/val/...      YOLO rows, one file for each image
        manifest.json     split.json          canonical texts; the folder is named by their digests

A folder of this name is whole: it is filled under another name and renamed. One that was damaged
later is noticed and built again.
"""

import fcntl
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from perdure.artifacts.files import make_folder, publish_folder
from perdure.artifacts.hashing import digest_bytes
from perdure.artifacts.port import ObjectStore
from perdure.datasets.annotation import Box
from perdure.datasets.manifest import Manifest, ManifestImage, parse_manifest
from perdure.datasets.snapshot import TRANSFER_THREADS, blob_key, load_manifest, load_split
from perdure.datasets.split import Split, parse_split
from perdure.errors import DamagedObject, Unavailable

_MANIFEST: Final = "manifest.json"
_SPLIT: Final = "split.json"
_SPLIT_DIGITS: Final = 16
# Another process may be copying a large data set. Its lock ends with it: this bounds a hang.
_LOCK_TIMEOUT_S: Final = 3600.0
_LOCK_POLL_S: Final = 0.2

# Called with the images that are done and their number; (0, n) while another process does the work.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LocalImage:
    """An image of the cache. Width and height, in pixels, are those of the upright image."""

    path: Path
    sample_id: str  # its path in the manifest
    width: int
    height: int
    boxes: tuple[Box, ...]  # class index; centre x, centre y, width, height as shares of the image


@dataclass(frozen=True)
class LocalDataset:
    """A data set version with its split, on this machine."""

    root: Path
    version: str
    split_id: str
    classes: tuple[str, ...]
    train: tuple[LocalImage, ...]
    val: tuple[LocalImage, ...]


def materialise(
    store: ObjectStore,
    version: str,
    split_id: str,
    root: Path,
    progress: Progress | None = None,
) -> LocalDataset:
    """The data set in a folder under `root`, copied and checked when it is not there yet.

    Any number of processes may call this at once; one of them does the work. Raises NotFound,
    DamagedObject or StoreUnavailable for the store, and OSError for the local disk.
    """
    target = root / f"{version}-{split_id[:_SPLIT_DIGITS]}"
    if found := _load_whole(target):
        return found
    manifest, split = load_manifest(store, version), load_split(store, split_id)
    if split.version != version:
        raise DamagedObject(
            f"split {split_id} belongs to data set version {split.version}, not to {version}"
        )
    report = progress or _silent
    make_folder(root)
    with _locked(root / f".{target.name}.lock", lambda: report(0, len(manifest.images))):
        if found := _load_whole(target):
            return found  # another process was faster
        _remove(target)
        building = root / f".{target.name}.building"
        shutil.rmtree(building, ignore_errors=True)  # left by a process that was killed
        try:
            _build(store, manifest, split, building, report)
            publish_folder(building, target)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return load_local(target)


def load_local(folder: Path) -> LocalDataset:
    """Read a folder that `materialise` made.

    The manifest and the split are compared with the folder's name, every file with its size. Raises
    DamagedObject when something is missing or differs, and names it.
    """
    version, _, split_digits = folder.name.partition("-")
    manifest = parse_manifest(_read(folder / _MANIFEST), version)
    split_text = _read(folder / _SPLIT)
    split_id = digest_bytes(split_text.encode())
    split = parse_split(split_text, split_id)
    if split.version != version or split_id[:_SPLIT_DIGITS] != split_digits:
        raise _damaged(folder / _SPLIT)
    by_path = {image.path: image for image in manifest.images}
    return LocalDataset(
        root=folder,
        version=version,
        split_id=split_id,
        classes=manifest.classes,
        train=tuple(_local_image(folder, by_path[path], "train") for path in split.train),
        val=tuple(_local_image(folder, by_path[path], "val") for path in split.val),
    )


def _load_whole(folder: Path) -> LocalDataset | None:
    """The folder, or None when it is not there or damaged and has to be built."""
    try:
        return load_local(folder)
    except (DamagedObject, OSError):  # a folder in place of a file is damage too
        return None


def _local_image(folder: Path, image: ManifestImage, split: str) -> LocalImage:
    path = _image_path(folder, image, split)
    _expect_size(path, image.size_bytes)
    _expect_size(_label_path(folder, image, split), len(_rows(image)))
    return LocalImage(path, image.path, image.width, image.height, image.boxes)


def _build(
    store: ObjectStore, manifest: Manifest, split: Split, target: Path, report: Progress
) -> None:
    by_path = {image.path: image for image in manifest.images}
    work = [(by_path[path], "train") for path in split.train]
    work += [(by_path[path], "val") for path in split.val]
    for kind in ("images", "labels"):
        for side in ("train", "val"):
            (target / kind / side).mkdir(parents=True)

    def copy(item: tuple[ManifestImage, str]) -> None:
        image, side = item
        path = _image_path(target, image, side)
        store.get_file(blob_key(image.digest), path, digest=image.digest)
        _label_path(target, image, side).write_bytes(_rows(image))

    with ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="copy") as pool:
        try:
            for done, _ in enumerate(pool.map(copy, work), start=1):
                report(done, len(work))
        finally:
            pool.shutdown(cancel_futures=True)
    (target / _MANIFEST).write_text(manifest.text, encoding="utf-8")
    (target / _SPLIT).write_text(split.text, encoding="utf-8")


def _image_path(folder: Path, image: ManifestImage, side: str) -> Path:
    # Names in the data set may clash once their folders are gone, or be longer than the disk takes.
    suffix = PurePosixPath(image.path).suffix.lower()
    return folder / "images" / side / f"{_stem(image)}{suffix}"


def _label_path(folder: Path, image: ManifestImage, side: str) -> Path:
    return folder / "labels" / side / f"{_stem(image)}.txt"


def _stem(image: ManifestImage) -> str:
    return digest_bytes(image.path.encode())[:24]


def _rows(image: ManifestImage) -> bytes:
    """The boxes as YOLO rows; Python's shortest form of a number reads back as the same number."""
    return "".join(f"{' '.join(map(repr, box))}\n" for box in image.boxes).encode()


def _expect_size(path: Path, size_bytes: int) -> None:
    try:
        whole = path.stat().st_size == size_bytes
    except FileNotFoundError:
        whole = False
    if not whole:
        raise _damaged(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> DamagedObject:
    return DamagedObject(
        f"{path} is missing or has changed since it was copied from the object store: "
        "remove its data set's folder from the cache, and it is copied again"
    )


def _remove(folder: Path) -> None:
    """Take a damaged folder, if there is one, out of the way in one step, then delete it."""
    if not folder.exists():
        return
    aside = folder.with_name(f".{uuid.uuid4().hex}.damaged")
    folder.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink()


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock that the kernel releases when this process ends, however it ends."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    with path.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another process has held {path} for {_LOCK_TIMEOUT_S:.0f} s: "
                        "look whether it hangs"
                    ) from error
            waiting()
            time.sleep(_LOCK_POLL_S)
        yield


def _silent(_done: int, _total: int) -> None:
    """Report nothing."""
