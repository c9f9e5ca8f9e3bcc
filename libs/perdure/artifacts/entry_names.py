"""What a file from elsewhere may be called: an entry of an archive, an object in a bucket, a file
that is to be packed. One rule for all, so that what one system packs every other one unpacks.
"""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

MAX_DEPTH: Final = 32  # folders in folders; data sets use about five
MAX_NAME_BYTES: Final = 255  # the most that Linux file systems take for one part of a path
MAX_PATH_BYTES: Final = 1024  # leaves room below the 4096 of Linux for the folder it goes into

# What file managers of other systems leave among the files that they pack.
LITTER: Final = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini"})

_SHOWN_CHARACTERS: Final = 200
# Windows opens a device in place of a file of such a name, whatever stands behind the first dot.
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[1-9\u00b9\u00b2\u00b3]) *(\..*)?",
    re.IGNORECASE | re.DOTALL,
)
# Windows drops them.
_TRAILING: Final = re.compile(r"[. ]+(?=/|\Z)")


def plain_name(raw: str) -> PurePosixPath | str:
    """The name as a relative path without detours, or what is wrong with it, in words.

    Backslashes separate folders, as some tools on Windows write them.
    """
    path = raw.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or path[1:2] == ":" or ".." in parts or not parts:
        return f"the name {_shown(raw)} leads out of its folder"
    reason = _unusable(path, parts)
    if reason:
        return f"the name {_shown(raw)} cannot be a file's name: {reason}"
    return PurePosixPath(*parts)


def collision_key(name: str) -> str:
    """Equal for names that some file systems take for one: they differ in case, in how accents are
    encoded, or in dots and spaces at the end of a part.
    """
    key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).lower())
    return _TRAILING.sub("", key)


def add_folders(name: PurePosixPath, keys: set[str]) -> None:
    """Add the collision keys of the folders that a file lies in to those in `keys`."""
    for folder in name.parents:
        key = collision_key(str(folder))
        if key in keys:
            return  # and so are all above it
        keys.add(key)


def is_utf8(name: str) -> bool:
    """Whether a name was bytes of UTF-8; what was not, Python holds as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unusable(path: str, parts: list[str]) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        return "it holds a control character"
    if any(0xD800 <= ord(character) <= 0xDFFF for character in path):
        return "it is not UTF-8"
    if len(path.encode()) > MAX_PATH_BYTES or any(
        len(part.encode()) > MAX_NAME_BYTES for part in parts
    ):
        return f"it is too long ({MAX_NAME_BYTES} bytes for each part, {MAX_PATH_BYTES} in all)"
    if len(parts) > MAX_DEPTH:
        return f"it lies in more than {MAX_DEPTH - 1} folders"
    if not all(part.strip(". ") for part in parts):
        return "a part of it consists of dots and spaces"
    device = next((part for part in parts if _DEVICE.fullmatch(part)), None)
    return "" if device is None else f"{device!r} is a device of Windows"


def _shown(raw: str) -> str:
    return repr(raw[:_SHOWN_CHARACTERS])
