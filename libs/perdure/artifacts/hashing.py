"""BLAKE3 digests of bytes and files: 64 lower-case hex digits."""

import re
from pathlib import Path
from typing import Final

from blake3 import blake3

# Large enough that the loop costs nothing beside the hashing, small enough for a small node.
CHUNK_BYTES: Final = 1 << 20

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def digest_bytes(data: bytes) -> str:
    """The digest of `data`."""
    return blake3(data).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file's bytes, read in chunks. Raises OSError when it cannot be read."""
    hasher = blake3()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()


def is_digest(text: str) -> bool:
    """Whether `text` has the form of a digest."""
    return _DIGEST.fullmatch(text) is not None
