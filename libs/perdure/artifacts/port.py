"""The object store as the rest of Perdure sees it. Backends: `folder.py`, `s3.py`.

All methods block: call them in a thread. They may be called from several threads at once.
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

    Every method may raise StoreUnavailable, of which StoreDenied says that only a person can help.
    No key that is in use should begin another one's path (`a` and `a/b`): some S3 servers refuse
    that.
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
        """Open an object for reading, unchecked, e.g. to stream it on. It can seek, which costs a
        request over a network. Raises NotFound; reading it raises StoreUnavailable.
        """

    def stat(self, key: str) -> StoredObject | None:
        """What is known of an object, or None."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """All objects whose key starts with `prefix`, in the order of their keys.

        Over a network this takes a request for each, to learn its digest: `sizes` does not.
        """

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys and sizes in bytes of what `list` gives, in the same order."""

    def copy(self, source: str, target: str) -> StoredObject:
        """Copy an object within the store. Raises NotFound."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing happens when there is none."""
