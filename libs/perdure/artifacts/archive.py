"""Zip archives: unpacking ones that are not trusted, and packing a data set for an upload.

A refused archive raises UnsafeArchive: `details["faults"]` are `Fault`s, all those of its entries,
and `details["code"]` is the first one's: archive.broken, .encrypted, .link, .path-escape,
.name-encoding, .duplicate-name, .too-many-entries, .too-large, .bomb, .overlap, .prepended or
.compression. Archives within an archive are files like others: they are not unpacked.
"""

import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from perdure.artifacts.directory import count_entries
from perdure.artifacts.entry_names import collision_key, plain_name
from perdure.artifacts.files import sync_file, sync_folder, temporary_beside
from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.errors import InvalidInput, UnsafeArchive

IMAGE_SUFFIXES: Final = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
# Labels, and what names classes and splits, in any of the formats that are read.
_TEXT_SUFFIXES: Final = frozenset({".csv", ".json", ".tsv", ".txt", ".xml", ".yaml", ".yml"})
_PACKED: Final = IMAGE_SUFFIXES | _TEXT_SUFFIXES
# What file managers of other systems leave in archives.
_LITTER: Final = frozenset({"__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini"})

_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# Flags of APPNOTE 4.4.4: encrypted, strongly encrypted, with an encrypted directory.
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_UTF8: Final = 0x800
_LOCAL_HEADER_BYTES: Final = 30  # APPNOTE 4.3.7, without the name and the extra field
_MAX_FAULTS: Final = 1000  # of one archive; more say nothing new
_EPOCH: Final = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # the earliest time a zip can hold: packing depends on no clock


@dataclass(frozen=True)
class Fault:
    """Why an archive is refused, and the name of the entry that is to blame, if it is one."""

    code: str
    fault: str
    advice: str
    entry: str = ""


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
            plan = _plan(opened, entries)
            unpacked_bytes = sum(info.file_size for info in plan.values())
            check_size(unpacked_bytes, archive.stat().st_size, limits)
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
        raise refusal("archive.name-encoding", "an entry's name is not UTF-8", _NAMES) from error
    except _ZIP_ERRORS as error:
        raise refusal("archive.broken", f"the archive cannot be read: {error}", _AGAIN) from error
    return len(plan)


def pack_folder(folder: Path, target: Path) -> Path:
    """Zip what belongs to a data set (images, labels, data.yaml) and return `target`.

    Equal folders give equal archives: entries are sorted and carry no time, owner or mode. Hidden
    files and folders stay out. Raises InvalidInput when there is nothing to pack or a link leads
    out of `folder`.
    """
    return pack_files(dataset_files(folder), target)


def pack_files(files: Sequence[tuple[str, Path]], target: Path) -> Path:
    """Zip files by their names in the archive, as pack_folder does, and return `target`."""
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
_PLAIN: Final = "pack it again with plain relative names"
_AGAIN: Final = "pack or upload it again"


def refusal(code: str, fault: str, advice: str) -> UnsafeArchive:
    """The error for an archive that is refused as a whole."""
    return refusal_of([Fault(code, fault, advice)])


def refusal_of(faults: Sequence[Fault]) -> UnsafeArchive:
    """The error for an archive, or what comes in the place of one, with these faults."""
    first = faults[0]
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return UnsafeArchive(
        f"{first.fault}; {first.advice}{more}",
        code=first.code,
        fault=first.fault,
        advice=first.advice,
        faults=tuple(faults[:_MAX_FAULTS]),
    )


def _directory(archive: Path, limits: ArchiveLimits) -> int:
    """The number of entries, counted without building them: a million ZipInfo take a gigabyte."""
    entries = count_entries(archive, at_most=limits.max_entries)
    if entries is None:
        raise refusal("archive.broken", "this is not a whole zip archive", _AGAIN)
    if entries > limits.max_entries:
        raise refusal(
            "archive.too-many-entries",
            f"the archive has more than {limits.max_entries} entries",
            "split the data set",
        )
    return entries


def _plan(opened: zipfile.ZipFile, entries: int) -> dict[PurePosixPath, zipfile.ZipInfo]:
    """The files to write, by their checked names."""
    infos = opened.infolist()
    if len(infos) != entries:  # versions of zipfile look for the directory in different ways
        raise refusal("archive.broken", "the archive has two directories that differ", _AGAIN)
    files: list[tuple[PurePosixPath, zipfile.ZipInfo]] = []
    folders: list[PurePosixPath] = []
    faults = _place_faults(infos, opened.start_dir)
    for info in infos:
        name = _plain(_name(info))
        if isinstance(name, Fault):
            faults.append(name)
            continue
        faults += _kind_faults(info, name)
        if info.is_dir():
            folders.append(name)
        else:
            files.append((name, info))
    faults += _distinct_faults([name for name, _ in files], folders)
    if faults:
        raise refusal_of(faults)
    return {
        name: info
        for name, info in files
        if not _LITTER.intersection(name.parts) and not name.name.startswith("._")
    }


def _place_faults(infos: Sequence[zipfile.ZipInfo], directory: int) -> list[Fault]:
    """What is wrong with where the entries lie: a small file can hold the same bytes a thousand
    times when its entries overlap (D. Fifield, "A better zip bomb", 2019).
    """
    if not infos:
        return []
    ordered = sorted(infos, key=lambda info: info.header_offset)
    if ordered[0].header_offset < 0:
        return [Fault("archive.broken", "the archive's beginning is missing", _AGAIN)]
    if ordered[0].header_offset > 0:
        fault = f"{ordered[0].header_offset} bytes that are no entry stand before the first one"
        return [Fault("archive.prepended", fault, "pack the files again, into one archive")]
    found: list[Fault] = []
    stops = [*(info.header_offset for info in ordered[1:]), directory]
    for info, stop in zip(ordered, stops, strict=True):
        # At least this long: the extra field before its bytes is not counted.
        size_bytes = _LOCAL_HEADER_BYTES + len(_raw_name(info)) + info.compress_size
        if info.header_offset + size_bytes > stop:
            fault = f"{info.orig_filename[:200]!r} overlaps what follows it in the archive"
            found.append(Fault("archive.overlap", fault, _AGAIN, info.orig_filename))
    return found


def check_distinct(files: Iterable[PurePosixPath], folders: Sequence[PurePosixPath] = ()) -> None:
    """Raise UnsafeArchive for two files of one name, and a name that is a file and a folder."""
    faults = _distinct_faults(files, folders)
    if faults:
        raise refusal_of(faults)


def _distinct_faults(
    files: Iterable[PurePosixPath], folders: Sequence[PurePosixPath]
) -> list[Fault]:
    advice = "keep one of them"
    found: list[Fault] = []
    seen: dict[str, PurePosixPath] = {}
    places = set(folders)
    for folder in folders:
        places.update(folder.parents)
    for name in files:
        first = seen.setdefault(collision_key(str(name)), name)
        if first is not name:
            fault = (
                f"two entries are called {str(name)!r}"
                if first == name
                else f"{str(first)!r} and {str(name)!r} differ only in case or in how accents are "
                "encoded"
            )
            found.append(Fault("archive.duplicate-name", fault, advice, str(name)))
        places.update(name.parents)
    for key in {collision_key(str(place)) for place in places}.intersection(seen):
        fault = f"{str(seen[key])!r} is a file and a folder at once"
        found.append(Fault("archive.duplicate-name", fault, advice, str(seen[key])))
    return found


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _name(info: zipfile.ZipInfo) -> str | Fault:
    raw = info.orig_filename
    if not info.flag_bits & _UTF8 and not raw.isascii():
        # Without the flag the bytes have no declared encoding. macOS writes UTF-8 and sets no flag.
        try:
            raw = _raw_name(info).decode()
        except UnicodeDecodeError:
            return _not_utf8(raw)
    return raw


def _not_utf8(raw: str) -> Fault:
    return Fault("archive.name-encoding", f"the name {raw[:200]!r} is not UTF-8", _NAMES, raw)


def checked_path(raw: str) -> PurePosixPath:
    """The name of a file in an archive, as a path in the archive's folder.

    Raises UnsafeArchive for one that leads elsewhere, or that no disk takes.
    """
    name = _plain(raw)
    if isinstance(name, Fault):
        raise refusal_of([name])
    return name


def _plain(raw: str | Fault) -> PurePosixPath | Fault:
    if isinstance(raw, Fault):
        return raw
    if not _is_utf8(raw):
        return _not_utf8(raw)
    name = plain_name(raw)
    return Fault("archive.path-escape", name, _PLAIN, raw) if isinstance(name, str) else name


def _kind_faults(info: zipfile.ZipInfo, name: PurePosixPath) -> Iterator[Fault]:
    entry = str(name)
    if info.flag_bits & _ENCRYPTED:
        advice = "pack it without a password"
        yield Fault("archive.encrypted", f"{entry!r} is encrypted", advice, entry)
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        fault = f"{entry!r} is a link or a special file"
        advice = "pack the files themselves, e.g. with `zip` and without -y"
        yield Fault("archive.link", fault, advice, entry)
    if info.compress_type not in _METHODS:
        fault = f"{entry!r} is compressed with method {info.compress_type}"
        yield Fault("archive.compression", fault, "use deflate or no compression", entry)


def check_size(total_bytes: int, archive_bytes: int, limits: ArchiveLimits) -> None:
    """Raise UnsafeArchive when `archive_bytes` may not unpack to `total_bytes`."""
    if total_bytes > limits.max_bytes:
        raise refusal(
            "archive.too-large",
            f"the archive unpacks to {total_bytes} bytes, more than {limits.max_bytes}",
            "split the data set",
        )
    if total_bytes > max(limits.ratio_free_bytes, limits.max_ratio * archive_bytes):
        raise refusal(
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
            if belongs(name) and not name.startswith(".")
        ]
    files = sorted(entry for entry in found if entry[1].is_file())
    if not files:
        raise InvalidInput(
            f"{folder} holds no images and no labels: name the data set's top folder"
        )
    for name, _path in files:
        if not name.isascii() and not _is_utf8(name):
            raise InvalidInput(f"the name {name!r} in {folder} is not UTF-8: rename the file")
    return files


def _is_utf8(name: str) -> bool:
    """Whether a name was bytes of UTF-8; what was not, Python holds as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
