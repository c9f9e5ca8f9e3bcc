"""A thin archive: the zip of a data set that does not hold all its images, but names the others.

The bytes of those are in the object store already. In their place lies one file at the top of the
archive:

    perdure-images.json    {"images/1.jpg": {"digest": "<64 hex>", "size_bytes": 12345}, ...}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from perdure.artifacts.archive import MAX_FAULTS, Fault, checked_path, refusal, refusal_of
from perdure.artifacts.hashing import is_digest
from perdure.artifacts.packing import IMAGE_SUFFIXES
from perdure.errors import UnsafeArchive

IMAGES_FILE: Final = "perdure-images.json"
# As many images as an archive may have entries, with names of 150 characters.
MAX_IMAGES_FILE_BYTES: Final = 128 << 20

_BROKEN: Final = "archive.broken"
_AGAIN: Final = "push the data set again"


@dataclass(frozen=True)
class NamedImage:
    """An image that lies elsewhere: the BLAKE3 digest of its bytes, and their number."""

    digest: str
    size_bytes: int


def images_text(images: Mapping[str, NamedImage]) -> str:
    """What IMAGES_FILE holds for these images, by name. Equal images give equal texts."""
    named = {
        name: {"digest": images[name].digest, "size_bytes": images[name].size_bytes}
        for name in sorted(images)
    }
    return json.dumps(named, ensure_ascii=False, separators=(",", ":"))


def read_images(path: Path) -> list[tuple[PurePosixPath, NamedImage]]:
    """The images that the IMAGES_FILE at `path` names, which comes from a stranger.

    Each name is that of an image within the archive's folder; that names are there once, and that
    the sizes are true, is not checked. Raises UnsafeArchive with all faults.
    """
    size_bytes = path.stat().st_size
    if size_bytes > MAX_IMAGES_FILE_BYTES:
        raise refusal(
            "archive.too-large",
            f"{IMAGES_FILE} has {size_bytes} bytes, more than {MAX_IMAGES_FILE_BYTES}",
            "split the data set",
        )
    try:
        # Objects as tuples of pairs: a dict would hide a name that is there twice.
        found: Any = json.loads(path.read_bytes(), object_pairs_hook=tuple)
    except (ValueError, RecursionError) as error:
        raise refusal(_BROKEN, f"{IMAGES_FILE} cannot be read: {error}", _AGAIN) from error
    if not isinstance(found, tuple):
        raise refusal(_BROKEN, f"{IMAGES_FILE} holds no object", _AGAIN)
    images: list[tuple[PurePosixPath, NamedImage]] = []
    faults: list[Fault] = []
    for name, form in found:
        try:
            images.append((_image_path(name), _image(name, form)))
        except UnsafeArchive as error:
            faults += error.details["faults"]
        if len(faults) >= MAX_FAULTS:
            break  # there may be millions
    if faults:
        raise refusal_of(faults)
    return images


def _image_path(name: str) -> PurePosixPath:
    path = checked_path(name)
    if path.suffix.lower() not in IMAGE_SUFFIXES:
        raise refusal(_BROKEN, f"{IMAGES_FILE} names {name[:200]!r}, which is no image", _AGAIN)
    return path


def _image(name: str, form: object) -> NamedImage:
    pairs = dict(form) if isinstance(form, tuple) else {}
    digest, size_bytes = pairs.get("digest"), pairs.get("size_bytes")
    if not (isinstance(digest, str) and is_digest(digest)):
        raise refusal(_BROKEN, f"{IMAGES_FILE} gives {name[:200]!r} no digest", _AGAIN)
    if type(size_bytes) is not int or size_bytes < 0:
        raise refusal(_BROKEN, f"{IMAGES_FILE} gives {name[:200]!r} no size in bytes", _AGAIN)
    return NamedImage(digest, size_bytes)
