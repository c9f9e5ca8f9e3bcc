"""What an object's key may look like. One rule for all backends."""

import re
from typing import Final

from perdure.errors import InvalidInput

# S3 allows keys of 1,024 bytes. A file name has at most 255 bytes; a backend needs some of them.
MAX_KEY_CHARACTERS: Final = 1024
MAX_PART_CHARACTERS: Final = 200

_PART: Final = re.compile(r"[A-Za-z0-9._-]+")
_PREFIX: Final = re.compile(r"([A-Za-z0-9._-]+/)*[A-Za-z0-9._-]*")


def is_key(text: str) -> bool:
    """Whether `text` is a relative POSIX path of plain parts."""
    parts = text.split("/")
    plain = all(
        _PART.fullmatch(part) and part not in (".", "..") and len(part) <= MAX_PART_CHARACTERS
        for part in parts
    )
    return plain and len(text) <= MAX_KEY_CHARACTERS


def checked_key(key: str) -> str:
    """`key`, when it is one. Raises InvalidInput otherwise."""
    if not is_key(key):
        raise InvalidInput(
            f"object key {key[:200]!r} is refused: use a relative path of at most "
            f"{MAX_KEY_CHARACTERS} characters whose parts consist of letters, digits, '.', '_' and "
            "'-', without '.' and '..'"
        )
    return key


def checked_prefix(prefix: str) -> str:
    """`prefix`, when it can begin a key (as the empty one can). Raises InvalidInput otherwise."""
    folders = prefix.split("/")[:-1]
    if not _PREFIX.fullmatch(prefix) or any(part in (".", "..") for part in folders):
        raise InvalidInput(f"object key prefix {prefix[:200]!r} is refused: it can begin no key")
    return prefix
