"""A data set version with its split as a local folder, ready for training.

    <root>/<version>-<first 16 of split_id>/
        images/train/...  images/val/...      the images' original bytes
        manifest.json     split.json          canonical texts; the folder is named by their digests

A folder of this name is whole when it appears, and each file in it is only ever replaced in one
step. `materialise` compares all of them with their digests; `cache_room` says what is kept.
"""

import logging
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Final, TypeVar

from perdure import crash_points
from perdure.artifacts.files import make_folder, write_text
from perdure.artifacts.hashing import digest_bytes, digest_file
from perdure.artifacts.places import (
    clear_for_file,
    clear_for_folder,
    is_file,
    is_folder,
    open_file,
    remove,
)
from perdure.artifacts.port import ObjectStore
from perdure.datasets.annotation import Box
from perdure.datasets.cache_room import (
    Pin,
    being_built,
    building_folder,
    default_max_bytes,
    evict,
    make_room,
    on_disk,
    pin,
    pinned_folder,
    publish,
)
from perdure.datasets.manifest import Manifest, ManifestImage, parse_manifest
from perdure.datasets.snapshot import TRANSFER_THREADS, fetch_image, load_manifest, load_split
from perdure.datasets.split import Split, parse_split
from perdure.domain.failures import Failure, is_disk_full
from perdure.errors import AttemptError, DamagedObject, NotFound

_MANIFEST: Final = "manifest.json"
_SPLIT: Final = "split.json"
_FOLDERS: Final = (".", "images", "images/train", "images/val")
_SPLIT_DIGITS: Final = 16
_NAMED_FILES: Final = 5  # in a line of the log; the rest is a number

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

# Called with the images that are done and their number; (0, n) while another process does the work.
# Files that have to be fetched again are counted from the beginning.
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
    """A data set version with its split, on this machine. While it lives, its files stay."""

    root: Path
    version: str
    split_id: str
    classes: tuple[str, ...]
    train: tuple[LocalImage, ...]
    val: tuple[LocalImage, ...]
    pin: Pin | None = field(default=None, compare=False, repr=False)


def materialise(
    store: ObjectStore,
    version: str,
    split_id: str,
    root: Path,
    progress: Progress | None = None,
    *,
    max_bytes: int | None = None,
) -> LocalDataset:
    """The data set in a folder under `root`, whole: what is missing or damaged is fetched.

    All data sets under `root` take up no more than `max_bytes` (a share of the disk by default):
    those that were used least recently go, and none that is in use.

    Any number of processes may call this at once; one of them does the work. Raises AttemptError:
    disk_full when there is no room, store_damaged when the store has lost or changed something;
    StoreUnavailable; and OSError for the local disk.
    """
    target = root / f"{version}-{split_id[:_SPLIT_DIGITS]}"
    report = progress or _silent
    if found := _load_whole(target, report):
        return found
    make_folder(root)
    limit_bytes = default_max_bytes(root) if max_bytes is None else max_bytes
    try:
        manifest, split = load_manifest(store, version), load_split(store, split_id)
        if split.version != version:
            raise DamagedObject(f"split {split_id} belongs to version {split.version}")
        filling = _Filling(store, manifest, split, root, limit_bytes, report)
        with being_built(target, lambda: report(0, len(manifest.images))):
            if pinned := pin(target):
                filling.mend(target)
            else:
                pinned = filling.build(target)
    except (NotFound, DamagedObject) as error:
        raise AttemptError(
            Failure.STORE_DAMAGED,
            f"data set {version[:12]} cannot be had from the object store: {error.message}",
        ) from error
    return _local_dataset(target, manifest, split, pinned)


def load_local(folder: Path) -> LocalDataset:
    """Read a folder that `materialise` has just checked in this process or its parent.

    The manifest and the split are compared with the folder's name, every file with its size. Raises
    DamagedObject when something is missing or differs, and names it.
    """
    pinned, manifest, split = _opened(folder)
    for path, image in _files(folder, manifest, split):
        if not _has_size(path, image):
            raise _damaged(path)
    return _local_dataset(folder, manifest, split, pinned)


def _load_whole(folder: Path, report: Progress) -> LocalDataset | None:
    """The folder, every file of it read and compared; None when it is not there or damaged."""
    try:
        pinned, manifest, split = _opened(folder)
    except (DamagedObject, OSError):  # a folder in place of a file is damage too
        return None
    files = _files(folder, manifest, split)
    with closing(_in_threads(_is_whole, files)) as results:
        for done, whole in enumerate(results, start=1):
            report(done, len(files))
            if not whole:
                return None
    return _local_dataset(folder, manifest, split, pinned)


@dataclass(frozen=True)
class _Filling:
    """Gets a folder to hold all that belongs to a data set. The caller holds its lock."""

    store: ObjectStore
    manifest: Manifest
    split: Split
    root: Path
    max_bytes: int
    report: Progress

    def mend(self, target: Path) -> None:
        """Fetch what is damaged or missing in an entry, and nothing else."""
        fetched = self._filled(target)
        if fetched:
            named = ", ".join(fetched[:_NAMED_FILES])
            log.warning(
                "data set %s: %d of %d files in the cache were damaged or missing and have been "
                "fetched again (%s%s); look for a disk that fails under %s",
                self.manifest.version[:12],
                len(fetched),
                len(_files(target, self.manifest, self.split)) + len((_MANIFEST, _SPLIT)),
                named,
                ", ..." if len(fetched) > _NAMED_FILES else "",
                self.root,
            )

    def build(self, target: Path) -> Pin:
        """Make the entry, from what an earlier builder has left if there is any; gives its pin."""
        building = building_folder(target)
        pinned = pinned_folder(building)
        try:
            self._filled(building, reserved_for=building)
            crash_points.reached("cache.built")
            publish(building, target)
        except BaseException as error:
            pinned.release()
            if isinstance(error, AttemptError):  # no room: what nobody can finish takes up none
                evict(building)
            raise
        return pinned

    def _filled(self, folder: Path, *, reserved_for: Path | None = None) -> list[str]:
        """Fetch what is not whole, once there is room; gives the names of it."""
        for name in _FOLDERS:
            clear_for_folder(folder / name)
            (folder / name).mkdir(exist_ok=True)
            for stray in (folder / name).glob(".*.tmp"):  # half written by a killed process
                remove(stray)
        needed_bytes = self._needed_bytes(folder)
        if needed_bytes and not make_room(
            self.root, self.max_bytes, needed_bytes, building=reserved_for
        ):
            raise self._no_room(needed_bytes)
        try:
            return self._complete(folder)
        except OSError as error:
            if not is_disk_full(error):
                raise
        # Others write to this disk as well. What is needed now is worth more than what may be.
        make_room(self.root, 0)
        try:
            return self._complete(folder)
        except OSError as error:
            if not is_disk_full(error):
                raise
            raise self._no_room(self._needed_bytes(folder), full=True) from error

    def _complete(self, folder: Path) -> list[str]:
        files = _files(folder, self.manifest, self.split)
        fetched: list[str] = []
        with closing(_in_threads(self._fetched, files)) as results:
            for done, ((_, image), was_fetched) in enumerate(zip(files, results, strict=True), 1):
                if was_fetched:
                    crash_points.reached("cache.copied")
                    fetched.append(image.path)
                self.report(done, len(files))
        for name, text in ((_MANIFEST, self.manifest.text), (_SPLIT, self.split.text)):
            path = folder / name
            if _text_at(path) != text:
                clear_for_file(path)
                write_text(path, text)
                fetched.append(name)
        return fetched

    def _fetched(self, file: tuple[Path, ManifestImage]) -> bool:
        """Whether a file had to be fetched; it is whole now, and on disk."""
        if _is_whole(file):
            return False
        path, image = file
        clear_for_file(path)
        fetch_image(self.store, image.digest, path)
        return True

    def _needed_bytes(self, folder: Path) -> int:
        sizes = [
            image.size_bytes
            for path, image in _files(folder, self.manifest, self.split)
            if not _has_size(path, image)
        ]
        for name, text in ((_MANIFEST, self.manifest.text), (_SPLIT, self.split.text)):
            if not is_file(folder / name):
                sizes.append(len(text.encode()))
        return sum(map(on_disk, sizes))

    def _no_room(self, needed_bytes: int, *, full: bool = False) -> AttemptError:
        free_bytes = shutil.disk_usage(self.root).free
        if full or needed_bytes > free_bytes:
            why = f"the disk has {_megabytes(free_bytes)} free. Free some space there"
        else:
            why = (
                f"the cache may hold {_megabytes(self.max_bytes)}, with what other attempts use. "
                "Raise PERDURE_CACHE_MAX_BYTES, or wait for them to end"
            )
        return AttemptError(
            Failure.DISK_FULL,
            f"data set {self.manifest.version[:12]} needs {_megabytes(needed_bytes)} more in "
            f"{self.root}, and {why}",
        )


def _in_threads(
    call: Callable[[Item], Result], items: Sequence[Item]
) -> Generator[Result, None, None]:
    """What `call` gives for each item, in order. Close it: what has not begun is given up."""
    with ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="cache") as pool:
        try:
            yield from pool.map(call, items)
        finally:
            pool.shutdown(cancel_futures=True)


def _local_dataset(folder: Path, manifest: Manifest, split: Split, pinned: Pin) -> LocalDataset:
    images = [
        LocalImage(path, image.path, image.width, image.height, image.boxes)
        for path, image in _files(folder, manifest, split)
    ]
    return LocalDataset(
        root=folder,
        version=manifest.version,
        split_id=split.split_id,
        classes=manifest.classes,
        train=tuple(images[: len(split.train)]),
        val=tuple(images[len(split.train) :]),
        pin=pinned,
    )


def _opened(folder: Path) -> tuple[Pin, Manifest, Split]:
    """An entry, pinned, with its texts. Raises DamagedObject."""
    pinned = pin(folder)
    if pinned is None:
        raise _damaged(folder)
    for name in _FOLDERS:
        if not is_folder(folder / name):
            raise _damaged(folder / name)
    version, _, split_digits = folder.name.partition("-")
    manifest = parse_manifest(_read(folder / _MANIFEST), version)
    split_text = _read(folder / _SPLIT)
    split_id = digest_bytes(split_text.encode())
    if split_id[:_SPLIT_DIGITS] != split_digits:
        raise _damaged(folder / _SPLIT)
    split = parse_split(split_text, split_id)
    if split.version != version:
        raise _damaged(folder / _SPLIT)
    return pinned, manifest, split


def _files(folder: Path, manifest: Manifest, split: Split) -> list[tuple[Path, ManifestImage]]:
    """Where each image lies: those to train with, then those to validate with."""
    by_path = {image.path: image for image in manifest.images}
    sides = ((split.train, "train"), (split.val, "val"))
    return [
        (_image_path(folder, by_path[path], side), by_path[path])
        for paths, side in sides
        for path in paths
    ]


def _image_path(folder: Path, image: ManifestImage, side: str) -> Path:
    # Names in the data set may clash once their folders are gone, or be longer than the disk takes.
    stem = digest_bytes(image.path.encode())[:24]
    return folder / "images" / side / f"{stem}{PurePosixPath(image.path).suffix.lower()}"


def _has_size(path: Path, image: ManifestImage) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return S_ISREG(found.st_mode) and found.st_size == image.size_bytes


def _is_whole(file: tuple[Path, ManifestImage]) -> bool:
    path, image = file
    try:
        return _has_size(path, image) and digest_file(path) == image.digest
    except OSError:  # a sector that cannot be read: what is fetched is written elsewhere
        return False


def _text_at(path: Path) -> str | None:
    try:
        with open_file(path) as file:
            return file.read().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _read(path: Path) -> str:
    text = _text_at(path)
    if text is None:
        raise _damaged(path)
    return text


def _damaged(path: Path) -> DamagedObject:
    return DamagedObject(
        f"{path} is missing or has changed since it was checked: submit the task again, and it is "
        "fetched from the object store"
    )


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"


def _silent(_done: int, _total: int) -> None:
    """Report nothing."""
