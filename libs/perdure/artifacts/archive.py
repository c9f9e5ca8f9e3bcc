"""Zip archives: unpacking ones that are not trusted, and packing a data set for an upload.

A refused archive raises UnsafeArchive with `details["code"]`, one of archive.broken, .encrypted,
.link, .path-escape, .name-encoding, .duplicate-name, .too-many-entries, .too-large, .bomb,
.compression.
"""

import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from perdure.artifacts.directory import count_entries
from perdure.artifacts.files import sync_file, sync_folder, temporary_beside
from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.errors import InvalidInput, UnsafeArchive

IMAGE_SUFFIXES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
# Labels, and what names classes and splits, in any of the formats that are read.
_TEXT_SUFFIXES: Final = frozenset({".csv", ".json", ".tsv", ".txt", ".xml", ".yaml", ".yml"})
# What file managers of other systems leave in archives.
_LITTER: Final = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini"})

_MAX_DEPTH: Final = 32  # folders in folders; data sets use about five
_MAX_NAME_BYTES: Final = 255  # the most that Linux file systems take for one part of a path
_MAX_PATH_BYTES: Final = 1024  # leaves room below the 4096 of Linux for the folder it goes into
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_EPOCH: Final = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the earliest time a zip can hold: packing depends on no clock


@dataclass(frozen=True)
class ArchiveLimits:
    """What an archive may unpack to."""

    # Two files for each image: a quarter of a million images. zipfile needs 1 KB for each entry.
    max_entries: int = 500_000
    # The largest detection set in wide use (OpenImages) has about 600 GB; one archive holds a part.
    max_bytes: int = 256 << 30
    # Images hardly shrink and text shrinks about tenfold; deflate can reach 1032 with zeros.
    max_ratio: int = 100
    # Below this size the ratio says nothing: a small set of equal labels shrinks a lot.
    ratio_free_bytes: int = 64 << 20


def unpack(
    archive: Path,
    target: Path,
    *,
    limits: ArchiveLimits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Unpack a zip into the new folder `target` and return the number of files.

    Every entry is judged before the first byte is written, and nothing is ever written outside
    `target`. `progress(done, total)` counts entries. Raises UnsafeArchive; then `target` is gone.
    """
    limits = limits or ArchiveLimits()
    entries = _directory(archive, limits)
    try:
        with zipfile.ZipFile(archive) as opened:
            plan = _plan(opened.infolist(), limits)
            _check_size(plan, archive.stat().st_size, limits)
            target.mkdir(parents=True)
            try:
                for done, (name, info) in enumerate(plan.items()):
                    if progress:
                        progress(done, entries)
                    _write(opened, info, target.joinpath(*name.parts))
            except BaseException:
                shutil.rmtree(target, ignore_errors=True)
                raise
    except UnicodeDecodeError as error:
        raise _refuse("archive.name-encoding", "an entry's name is not UTF-8", _NAMES) from error
    except _ZIP_ERRORS as error:
        raise _refuse("archive.broken", f"the archive cannot be read: {error}", _AGAIN) from error
    return len(plan)


def pack_folder(folder: Path, target: Path) -> Path:
    """Zip what belongs to a data set (images, labels, data.yaml) and return `target`.

    Equal folders give equal archives: entries are sorted and carry no time, owner or mode. Hidden
    files and folders stay out. Raises InvalidInput when there is nothing to pack or a link leads
    out of `folder`.
    """
    files = _dataset_files(folder)
    if not files:
        raise InvalidInput(
            f"{folder} holds no images and no labels: name the data set's top folder"
        )
    temporary = temporary_beside(target)
    try:
        with zipfile.ZipFile(temporary, "x") as archive:
            for name, path in files:
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


# What zipfile raises for bytes that are no zip archive.
_ZIP_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
)
_NAMES: Final = "pack it again with a tool that writes UTF-8 names"
_AGAIN: Final = "pack or upload it again"


def _refuse(code: str, fault: str, advice: str) -> UnsafeArchive:
    return UnsafeArchive(f"{fault}; {advice}", code=code, fault=fault, advice=advice)


def _directory(archive: Path, limits: ArchiveLimits) -> int:
    """The number of entries, counted without building them: a million ZipInfo take a gigabyte."""
    entries = count_entries(archive, at_most=limits.max_entries)
    if entries is None:
        raise _refuse("archive.broken", "this is not a whole zip archive", _AGAIN)
    if entries > limits.max_entries:
        raise _refuse(
            "archive.too-many-entries",
            f"the archive has more than {limits.max_entries} entries",
            "split the data set",
        )
    return entries


def _plan(
    infos: list[zipfile.ZipInfo], limits: ArchiveLimits
) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """The files to write, by their checked names."""
    plan: dict[PurePosixPath, zipfile.ZipInfo] = {}
    folders: set[PurePosixPath] = set()
    for info in infos:
        if info.header_offset < 0:
            raise _refuse("archive.broken", "the archive's beginning is missing", _AGAIN)
        name = _checked_name(info)
        _check_kind(info, name)
        if info.is_dir():
            folders.add(name)
        elif name in plan:
            raise _refuse(
                "archive.duplicate-name",
                f"two entries are called {str(name)!r}",
                "keep one of them",
            )
        else:
            plan[name] = info
        folders.update(name.parents)
    clash = next((name for name in plan if name in folders), None)
    if clash is not None:
        raise _refuse(
            "archive.duplicate-name",
            f"{str(clash)!r} is a file and a folder at once",
            "keep one of them",
        )
    return {
        name: info
        for name, info in plan.items()
        if not _LITTER.intersection(name.parts) and not name.name.startswith("._")
    }


def _checked_name(info: zipfile.ZipInfo) -> PurePosixPath:
    raw = info.orig_filename
    if not info.flag_bits & 0x800 and not raw.isascii():
        # Without the flag the bytes have no declared encoding. macOS writes UTF-8 and sets no flag.
        try:
            raw = raw.encode("cp437").decode()
        except UnicodeDecodeError:
            raise _refuse(
                "archive.name-encoding", f"the name {raw!r} is not UTF-8", _NAMES
            ) from None
    path = raw.replace("\\", "/")  # written by some tools on Windows
    parts = [part for part in path.split("/") if part not in ("", ".")]
    escapes = path.startswith("/") or ".." in parts or path[1:2] == ":" or not parts
    unusable = (
        any(ord(character) < 32 or ord(character) == 127 for character in path)
        or any(len(part.encode(errors="replace")) > _MAX_NAME_BYTES for part in parts)
        or len(path.encode(errors="replace")) > _MAX_PATH_BYTES
        or len(parts) > _MAX_DEPTH
    )
    if escapes or unusable:
        raise _refuse(
            "archive.path-escape",
            f"the name {raw[:200]!r} leads out of the archive's folder"
            if escapes
            else f"the name {raw[:200]!r} cannot be a file's name",
            "pack it again with plain relative names",
        )
    return PurePosixPath(*parts)


def _check_kind(info: zipfile.ZipInfo, name: PurePosixPath) -> None:
    if info.flag_bits & 0x1:
        raise _refuse(
            "archive.encrypted", f"{str(name)!r} is encrypted", "pack it without a password"
        )
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise _refuse(
            "archive.link",
            f"{str(name)!r} is a link or a special file",
            "pack the files themselves, e.g. with `zip` and without -y",
        )
    if info.compress_type not in _METHODS:
        raise _refuse(
            "archive.compression",
            f"{str(name)!r} is compressed with method {info.compress_type}",
            "use deflate or no compression",
        )


def _check_size(
    plan: dict[PurePosixPath, zipfile.ZipInfo], archive_bytes: int, limits: ArchiveLimits
) -> None:
    total_bytes = sum(info.file_size for info in plan.values())
    if total_bytes > limits.max_bytes:
        raise _refuse(
            "archive.too-large",
            f"the archive unpacks to {total_bytes} bytes, more than {limits.max_bytes}",
            "split the data set",
        )
    if total_bytes > max(limits.ratio_free_bytes, limits.max_ratio * archive_bytes):
        raise _refuse(
            "archive.bomb",
            f"{archive_bytes} bytes unpack to {total_bytes}, more than {limits.max_ratio} times",
            "pack the images themselves, nothing else",
        )


def _write(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file, archive.open(info) as entry:
        # An entry cannot give more than the size it declares, which was counted: see ZipExtFile.
        shutil.copyfileobj(entry, file, CHUNK_BYTES)


def _dataset_files(folder: Path) -> list[tuple[str, Path]]:
    """Names and paths of a data set's files, sorted by name."""
    root = folder.resolve()
    wanted = IMAGE_SUFFIXES | _TEXT_SUFFIXES
    found = []
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LITTER]
        for name in folders + names:
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise InvalidInput(
                    f"{path} is a link that leads out of {folder}: copy the file there"
                )
        found += [
            (Path(place, name).relative_to(root).as_posix(), Path(place, name))
            for name in names
            if Path(name).suffix.lower() in wanted and not name.startswith(".")
        ]
    return sorted(entry for entry in found if entry[1].is_file())
