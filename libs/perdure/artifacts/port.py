"""The object store as the rest of Perdure sees it. Backends: `folder.py`.

All methods block: call them in a thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True)
class StoredObject:
    """An object: its key, the BLAKE3 digest of its bytes (64 hex digits) and its size."""

    key: str
    digest: str
    size_bytes: int


class ObjectStore(Protocol):
    """Files by key. Keys are relative POSIX paths of [A-Za-z0-9._-] parts.

    Every method may raise StoreUnavailable.
    """

    def put_file(self, key: str, path: Path) -> StoredObject:
        """Store a file.

        The object appears whole or not at all; an object of that key is replaced.
        """

    def put_bytes(self, key: str, data: bytes) -> StoredObject:
        """Store bytes, as put_file does."""

    def put_stream(self, key: str, stream: BinaryIO, *, max_bytes: int) -> StoredObject:
        """Store what `stream` gives. Raises InvalidInput, and stores nothing, past `max_bytes`."""

    def get_bytes(self, key: str, *, digest: str | None = None) -> bytes:
        """Read an object whole. Raises NotFound, and DamagedObject when its bytes do not match
        `digest` or, without one, the digest recorded when it was put.
        """

    def get_file(self, key: str, path: Path, *, digest: str | None = None) -> StoredObject:
        """Copy an object to `path`, which appears whole and checked or not at all.

        Raises as get_bytes does.
        """

    def open(self, key: str) -> BinaryIO:
        """Open an object for reading, unchecked, e.g. to stream it on. Raises NotFound."""

    def stat(self, key: str) -> StoredObject | None:
        """What is known of an object, or None."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """All objects whose key starts with `prefix`, in the order of their keys."""

    def copy(self, source: str, target: str) -> StoredObject:
        """Copy an object within the store. Raises NotFound."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when there is none."""
