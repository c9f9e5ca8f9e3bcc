"""The object store as a folder.

    data/<2 hex>/<digest>.<token>   the bytes of one object; never changed once they are there
    keys/<key>@                     a relative link to them; moving it into place stores the object
    tmp/                            files that are being written

The digest is part of the link, so object and digest change in one step. '@' is in no key: an
object `a` and an object `a/b` do not clash.
"""

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from blake3 import blake3

from perdure.artifacts.files import make_folder, new_file, sync_folder
from perdure.artifacts.hashing import CHUNK_BYTES, digest_bytes
from perdure.artifacts.keys import checked_key, checked_prefix
from perdure.artifacts.port import StoredObject
from perdure.artifacts.verification import check_digest
from perdure.errors import DamagedObject, InvalidInput, NotFound, StoreUnavailable

_MARK: Final = "@"
# An object that is replaced while it is opened is looked up again; not more than a few times.
_LOOKUPS: Final = 20
# No upload is written to for a day; an older temporary file belongs to a process that is gone.
_STALE_S: Final = 86_400


class FolderStore:
    """Objects in a folder; any number of processes may share it. Use `open_store`."""

    def __init__(self, root: Path) -> None:
        """`root` is created when it is missing. Raises StoreUnavailable when that fails."""
        self._root = root
        self._data = root / "data"
        self._keys = root / "keys"
        self._temporary = root / "tmp"
        with self._disk("opening it"):
            for folder in (self._data, self._keys, self._temporary):
                make_folder(folder)
            self._sweep()

    def put_file(self, key: str, path: Path) -> StoredObject:
        """See ObjectStore. Raises OSError when `path` cannot be read."""
        checked_key(key)
        with path.open("rb") as stream:
            return self._put(key, stream, max_bytes=None)

    def put_bytes(self, key: str, data: bytes) -> StoredObject:
        """See ObjectStore."""
        checked_key(key)
        with self._disk(f"storing {key}"), self._new_file() as (temporary, file):
            file.write(data)
            return self._publish(key, temporary, file, digest_bytes(data), len(data))

    def put_stream(self, key: str, stream: BinaryIO, *, max_bytes: int) -> StoredObject:
        """See ObjectStore."""
        return self._put(checked_key(key), stream, max_bytes=max_bytes)

    def get_bytes(self, key: str, *, digest: str | None = None) -> bytes:
        """See ObjectStore."""
        found, file = self._open(key)
        with file, self._disk(f"reading {key}"):
            data = file.read()
        check_digest(key, digest_bytes(data), recorded=found.digest, expected=digest)
        return data

    def get_file(self, key: str, path: Path, *, digest: str | None = None) -> StoredObject:
        """See ObjectStore. Raises OSError when `path` cannot be written."""
        found, source = self._open(key)
        with source, new_file(path) as target:
            hasher = blake3()
            while chunk := source.read(CHUNK_BYTES):
                hasher.update(chunk)
                target.write(chunk)
            check_digest(key, hasher.hexdigest(), recorded=found.digest, expected=digest)
        return found

    def open(self, key: str) -> BinaryIO:
        """See ObjectStore."""
        return self._open(key)[1]

    def stat(self, key: str) -> StoredObject | None:
        """See ObjectStore."""
        checked_key(key)
        for _ in range(_LOOKUPS):
            with self._disk(f"looking up {key}"):
                data = self._target(key)
                if data is None:
                    return None
                try:
                    return _stored(key, data)
                except FileNotFoundError:
                    continue  # replaced in this moment
        raise self._dangling(key)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See ObjectStore."""
        checked_prefix(prefix)
        start = self._keys.joinpath(*prefix.split("/")[:-1])
        with self._disk(f"listing {prefix}"):
            found = sorted(
                Path(folder, name).relative_to(self._keys).as_posix().removesuffix(_MARK)
                for folder, _folders, names in os.walk(start)
                for name in names
                if name.endswith(_MARK)
            )
        for key in found:
            # An object that was deleted since the names were read is not an object any more.
            if key.startswith(prefix) and (stored := self.stat(key)):
                yield stored

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """See ObjectStore."""
        return ((stored.key, stored.size_bytes) for stored in self.list(prefix))

    def copy(self, source: str, target: str) -> StoredObject:
        """See ObjectStore. The bytes are shared, not copied: they never change."""
        checked_key(source)
        checked_key(target)
        for _ in range(_LOOKUPS):
            with self._disk(f"copying {source}"):
                data = self._target(source)
                if data is None:
                    raise self._missing(source)
                fresh = data.with_name(_data_name(_digest(data)))
                try:
                    os.link(data, fresh)
                except FileNotFoundError:
                    continue  # replaced in this moment
                copied = _stored(target, fresh)
                sync_folder(fresh.parent)
                self._point(target, fresh)
                return copied
        raise self._dangling(source)

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        checked_key(key)
        with self._disk(f"deleting {key}"), self._lock():
            data = self._target(key)
            if data is not None:
                link = self._link(key)
                link.unlink()
                sync_folder(link.parent)
                data.unlink(missing_ok=True)

    def _put(self, key: str, stream: BinaryIO, *, max_bytes: int | None) -> StoredObject:
        with self._disk(f"storing {key}"), self._new_file() as (temporary, file):
            hasher = blake3()
            size_bytes = 0
            while chunk := stream.read(CHUNK_BYTES):
                size_bytes += len(chunk)
                if max_bytes is not None and size_bytes > max_bytes:
                    raise InvalidInput(
                        f"{key} has more than {max_bytes} bytes, the most that is accepted"
                    )
                hasher.update(chunk)
                file.write(chunk)
            return self._publish(key, temporary, file, hasher.hexdigest(), size_bytes)

    @contextmanager
    def _new_file(self) -> Iterator[tuple[Path, BinaryIO]]:
        temporary = self._temporary / uuid.uuid4().hex
        try:
            with temporary.open("xb") as file:
                yield temporary, file
        finally:
            temporary.unlink(missing_ok=True)

    def _publish(
        self, key: str, temporary: Path, file: BinaryIO, digest: str, size_bytes: int
    ) -> StoredObject:
        file.flush()
        os.fsync(file.fileno())
        data = self._data / digest[:2] / _data_name(digest)
        make_folder(data.parent)
        temporary.rename(data)
        sync_folder(data.parent)
        self._point(key, data)
        return StoredObject(key, digest, size_bytes)

    def _point(self, key: str, data: Path) -> None:
        """Let `key` mean `data`, and drop the bytes that it meant before."""
        link = self._link(key)
        make_folder(link.parent)
        fresh = self._temporary / uuid.uuid4().hex
        try:
            fresh.symlink_to(os.path.relpath(data, link.parent))
            with self._lock():
                before = self._target(key)
                fresh.rename(link)
                sync_folder(link.parent)
                if before is not None:
                    before.unlink(missing_ok=True)
        finally:
            fresh.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Held for the few system calls that swing a link: one thread of one process at a time."""
        with (self._root / ".lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _sweep(self) -> None:
        """Remove what killed processes left half written."""
        for path in self._temporary.iterdir():
            try:
                if time.time() - path.lstat().st_mtime > _STALE_S:
                    path.unlink()
            except FileNotFoundError:
                continue  # another process is done with it, or sweeps too

    def _link(self, key: str) -> Path:
        return self._keys / f"{key}{_MARK}"

    def _target(self, key: str) -> Path | None:
        """Where the bytes of `key` should lie, or None when there is no such object."""
        try:
            link = self._link(key).readlink()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return self._data / link.parent.name / link.name

    def _open(self, key: str) -> tuple[StoredObject, BinaryIO]:
        checked_key(key)
        for _ in range(_LOOKUPS):
            with self._disk(f"opening {key}"):
                data = self._target(key)
                if data is None:
                    raise self._missing(key)
                try:
                    return _stored(key, data), data.open("rb")
                except FileNotFoundError:
                    continue  # replaced in this moment
        raise self._dangling(key)

    def _missing(self, key: str) -> NotFound:
        return NotFound(f"the object store has no object {key}")

    def _dangling(self, key: str) -> DamagedObject:
        return DamagedObject(
            f"the bytes of object {key} are gone from {self._data}: restore the folder from a "
            "backup, or store the object again"
        )

    @contextmanager
    def _disk(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = (
                "free some space"
                if error.errno in (errno.ENOSPC, errno.EDQUOT)
                else "see that the folder is mounted and writable"
            )
            raise StoreUnavailable(
                f"the object store in {self._root} failed while {doing}: "
                f"{error.strerror or error}; {advice}, then try again"
            ) from error


def _data_name(digest: str) -> str:
    # The token lets two objects with the same bytes live and die apart.
    return f"{digest}.{uuid.uuid4().hex[:16]}"


def _digest(data: Path) -> str:
    return data.name.partition(".")[0]


def _stored(key: str, data: Path) -> StoredObject:
    return StoredObject(key, _digest(data), data.stat().st_size)
