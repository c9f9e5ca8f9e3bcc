"""A folder of entries that can be made again: who uses which, and what goes when room is short.

    <root>/NAME/              an entry, whole; those who use it hold a lock on NAME/in-use
    <root>/.NAME.building/    what there is of it so far, in use as well; successors go on
    <root>/.NAME.lock         held by the process that makes or mends NAME
    <root>/.room.lock         held while room is made
    <root>/.<random>.evicted/ on its way out

All locks are flocks: the kernel gives them up when their process ends, however it ends. Any number
of processes may share a folder, on one machine.
"""

import errno
import fcntl
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.artifacts.files import publish_folder
from perdure.artifacts.places import (
    ITSELF,
    clear_for_file,
    clear_for_folder,
    is_folder,
    open_file,
    remove,
)
from perdure.errors import Unavailable

# Of the disk. Trainer-agent and publisher may have a cache each on the same one: a fifth is left.
DEFAULT_SHARE: Final = 0.4
# Files take up whole blocks; so large are those of the usual file systems.
BLOCK_BYTES: Final = 4096

_IN_USE: Final = "in-use"
_RESERVED: Final = "reserved"
_BUILDING: Final = ".building"
_EVICTED: Final = ".evicted"
# Another process may be copying a large data set. Its lock ends with it: this bounds a hang.
_LOCK_TIMEOUT_S: Final = 3600.0
_LOCK_POLL_S: Final = 0.2
# Whoever evicts holds an entry's lock for as long as a rename takes.
_PIN_TIMEOUT_S: Final = 60.0
_PIN_POLL_S: Final = 0.01


class Pin:
    """Keeps an entry from being evicted, until it is released, collected, or its process ends.

    Processes that were forked meanwhile keep the entry as well, for as long as they live.
    """

    def __init__(self, descriptor: int) -> None:
        """`descriptor` holds the lock; it belongs to the pin from now on."""
        self._finalizer = weakref.finalize(self, _let_go, descriptor)

    def release(self) -> None:
        """Let the entry go: it was used until now. Safe to call twice."""
        self._finalizer()


def default_max_bytes(root: Path) -> int:
    """What the entries of `root`, which exists, may take up together when nobody says otherwise."""
    return int(shutil.disk_usage(root).total * DEFAULT_SHARE)


def on_disk(size_bytes: int) -> int:
    """What a file of `size_bytes` takes up, in bytes."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def pin(entry: Path) -> Pin | None:
    """Keep `entry` while it is used, and note that it is; None when there is no such folder.

    Raises Unavailable when another process is stuck while it evicts the entry, and OSError.
    """
    deadline = time.monotonic() + _PIN_TIMEOUT_S
    while (descriptor := _opened(entry)) is not None:
        kept = False
        try:
            if _locked_now(descriptor, fcntl.LOCK_SH) and _lies_at(descriptor, entry / _IN_USE):
                os.utime(descriptor)  # used last: now
                kept = True
                return Pin(descriptor)
        finally:
            if not kept:
                os.close(descriptor)
        if time.monotonic() > deadline:
            raise Unavailable(f"another process has held {entry} for {_PIN_TIMEOUT_S:.0f} s")
        time.sleep(_PIN_POLL_S)
    return None


def pinned_folder(entry: Path) -> Pin:
    """Pin `entry`, which is made when it is not there. Raises as pin does."""
    while True:
        clear_for_folder(entry)
        entry.mkdir(exist_ok=True)
        if (pinned := pin(entry)) is not None:
            return pinned  # else it was evicted in between


def building_folder(target: Path) -> Path:
    """Where `target` is built: an entry like others, that can be evicted when its builder died."""
    return target.with_name(f".{target.name}{_BUILDING}")


@contextmanager
def being_built(target: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Be the only one who makes or mends `target`; `waiting` is called while another one does.

    Raises Unavailable when that takes more than an hour, and what `waiting` raises.
    """
    with _locked(target.with_name(f".{target.name}.lock"), waiting):
        yield


def publish(building: Path, target: Path) -> None:
    """Let what was built be the entry `target`, in one step, once all of it is on disk.

    Call it while `target` is being built. Whoever has pinned the building folder has pinned the
    entry. Raises OSError when there is such an entry.
    """
    remove(building / _RESERVED)
    clear_for_folder(target)
    publish_folder(building, target)


def make_room(
    root: Path, max_bytes: int, needed_bytes: int = 0, *, building: Path | None = None
) -> bool:
    """Evict what was used least recently, until `needed_bytes` more fit below `max_bytes` and on
    the disk. What a living process uses or builds stays.

    Gives whether they fit now. If so they are reserved for the folder `building`, if one is given:
    others who make room count them in. Raises Unavailable and OSError.
    """
    with _locked(root / ".room.lock", _wait):
        if building is not None:
            remove(building / _RESERVED)
        _clear_evicted(root)
        fits = _evict_until_fits(root, max_bytes, needed_bytes)
        if fits and building is not None:
            (building / _RESERVED).write_text(str(_size(building) + needed_bytes), encoding="ascii")
        return fits


def evict(entry: Path) -> bool:
    """Remove an entry that nobody uses: it is gone in one step, and deleted afterwards.

    Gives whether it is gone. Raises OSError.
    """
    descriptor = _opened(entry)
    if descriptor is None:
        return True
    try:
        if not _locked_now(descriptor, fcntl.LOCK_EX):
            return False
        if not _lies_at(descriptor, entry / _IN_USE):
            return False  # what lies there now is another one
        aside = entry.with_name(f".{uuid.uuid4().hex}{_EVICTED}")
        entry.rename(aside)
    finally:
        os.close(descriptor)
    shutil.rmtree(aside, ignore_errors=True)  # what stays is tried again by _clear_evicted
    return True


@dataclass(frozen=True)
class _Entry:
    path: Path
    size_bytes: int
    coming_bytes: int  # reserved, and not there yet
    used_ns: int


def _evict_until_fits(root: Path, max_bytes: int, needed_bytes: int) -> bool:
    if needed_bytes > max_bytes:
        return False  # and nothing is evicted in vain
    entries = sorted(_entries(root), key=lambda entry: entry.used_ns)
    total_bytes = sum(entry.size_bytes + entry.coming_bytes for entry in entries)
    coming_bytes = sum(entry.coming_bytes for entry in entries)

    def fits() -> bool:
        on_the_disk = needed_bytes + coming_bytes <= shutil.disk_usage(root).free
        return on_the_disk and total_bytes + needed_bytes <= max_bytes

    for entry in entries:
        if fits():
            return True
        if evict(entry.path):
            total_bytes -= entry.size_bytes + entry.coming_bytes
            coming_bytes -= entry.coming_bytes
    return fits()


def _entries(root: Path) -> Iterator[_Entry]:
    for path in root.iterdir():
        hidden = path.name.startswith(".")
        if (hidden and not path.name.endswith(_BUILDING)) or not is_folder(path):
            continue
        with suppress(FileNotFoundError):  # evicted, or built to its end, in this moment
            used_ns = path.stat().st_mtime_ns  # of one that has never been pinned
            with suppress(FileNotFoundError):
                used_ns = (path / _IN_USE).stat().st_mtime_ns
            size_bytes = _size(path)
            yield _Entry(path, size_bytes, max(0, _reserved(path) - size_bytes), used_ns)


def _reserved(folder: Path) -> int:
    try:
        with open_file(folder / _RESERVED) as file:
            return int(file.read())
    except (OSError, ValueError):  # ValueError: the disk was full, or the power gone
        return 0


def _size(folder: Path) -> int:
    """What all files below `folder` take up together, in bytes; 0 when there is no such folder."""
    total = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # replaced or evicted in this moment
                path = os.path.join(parent, name)  # noqa: PTH118  half the time of a Path
                total += on_disk(os.lstat(path).st_size)
    return total


def _clear_evicted(root: Path) -> None:
    """Delete what a process that was killed while it evicted has left."""
    for path in root.glob(f".*{_EVICTED}"):
        with suppress(OSError):  # tried again the next time
            remove(path)


@contextmanager
def _locked(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path` alone. It is removed afterwards."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        clear_for_file(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | ITSELF, 0o644)
        try:
            if _locked_now(descriptor, fcntl.LOCK_EX) and _lies_at(descriptor, path):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise Unavailable(
                f"another process has held {path} for {_LOCK_TIMEOUT_S:.0f} s: "
                "look whether it hangs"
            )
        waiting()
        time.sleep(_LOCK_POLL_S)


def _wait() -> None:
    """Making room takes others seconds: there is nothing to say."""


def _opened(entry: Path) -> int | None:
    if not is_folder(entry):
        return None
    try:
        clear_for_file(entry / _IN_USE)
        return os.open(entry / _IN_USE, os.O_RDWR | os.O_CREAT | ITSELF, 0o644)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _locked_now(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return False
    return True


def _lies_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of that name, and not one that was moved away."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _let_go(descriptor: int) -> None:
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)
