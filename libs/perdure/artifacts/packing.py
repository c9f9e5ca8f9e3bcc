"""What of a folder belongs to a data set, and packing that for an upload."""

import os
import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perdure.artifacts.entry_names import LITTER, is_utf8
from perdure.artifacts.files import sync_file, sync_folder, temporary_beside
from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.errors import InvalidInput

IMAGE_SUFFIXES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
# Labels, and what names classes and splits, in any of the formats that are read.
_TEXT_SUFFIXES: Final = frozenset({".csv", ".json", ".tsv", ".txt", ".xml", ".yaml", ".yml"})
_PACKED: Final = IMAGE_SUFFIXES | _TEXT_SUFFIXES
# The earliest time that a zip can hold: packing depends on no clock.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def pack_files(files: Sequence[tuple[str, Path]], target: Path) -> Path:
    """Zip files by their names in the archive, and return `target`.

    Equal files give equal archives: entries are sorted and carry no time, owner or mode. Raises
    OSError.
    """
    temporary = temporary_beside(target)
    try:
        with zipfile.ZipFile(temporary, "x") as archive:
            for name, path in sorted(files):
                info = zipfile.ZipInfo(name, _EPOCH)
                info.create_system = 3  # Unix, whatever system packs
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                # Images are compressed already: deflating them costs time and saves nothing.
                is_image = path.suffix.lower() in IMAGE_SUFFIXES
                info.compress_type = zipfile.ZIP_STORED if is_image else zipfile.ZIP_DEFLATED
                info.file_size = path.stat().st_size
                with path.open("rb") as source, archive.open(info, "w") as entry:
                    shutil.copyfileobj(source, entry, CHUNK_BYTES)
        sync_file(temporary)
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def belongs(name: str) -> bool:
    """Whether a file of this name is packed: an image, labels, or a list of names."""
    return Path(name).suffix.lower() in _PACKED


def dataset_files(folder: Path) -> list[tuple[str, Path]]:
    """Names and paths of what belongs to a data set (images, labels, data.yaml), sorted by name.

    Hidden files and folders stay out. Raises InvalidInput when there is nothing, when a link leads
    out of `folder`, and for a name that is not UTF-8.
    """
    root = folder.resolve()
    found = []
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in LITTER]
        for name in folders + names:
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise InvalidInput(
                    f"{path} is a link that leads out of {folder}: copy the file there"
                )
        found += [
            (Path(place, name).relative_to(root).as_posix(), Path(place, name))
            for name in names
            if belongs(name) and not name.startswith(".")
        ]
    files = sorted(entry for entry in found if entry[1].is_file())
    if not files:
        raise InvalidInput(
            f"{folder} holds no images and no labels: name the data set's top folder"
        )
    for name, _path in files:
        if not name.isascii() and not is_utf8(name):
            raise InvalidInput(f"the name {name!r} in {folder} is not UTF-8: rename the file")
    return files
