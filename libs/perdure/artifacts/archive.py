"""Zip archives that are not trusted, and how they are unpacked.

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
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from perdure.artifacts.directory import count_entries
from perdure.artifacts.entry_names import (
    LITTER,
    MAX_PATH_BYTES,
    add_folders,
    collision_key,
    is_utf8,
    plain_name,
)
from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.errors import UnsafeArchive

_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
# Flags of APPNOTE 4.4.4: encrypted, strongly encrypted, with an encrypted directory.
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_UTF8: Final = 0x800
_LOCAL_HEADER_BYTES: Final = 30  # APPNOTE 4.3.7, without the name and the extra field
MAX_FAULTS: Final = 1000  # of one archive; more say nothing new


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
            plan = _plan(opened, entries, limits)
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
    """The error for an archive, or what comes in the place of one, with these faults.

    They go into logs and messages: an entry's name, which may have 64 KiB, is cut.
    """
    first = faults[0]
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return UnsafeArchive(
        f"{first.fault}; {first.advice}{more}",
        code=first.code,
        fault=first.fault,
        advice=first.advice,
        faults=tuple(
            fault
            if len(fault.entry) <= MAX_PATH_BYTES
            else replace(fault, entry=fault.entry[: MAX_PATH_BYTES - 1] + "\N{HORIZONTAL ELLIPSIS}")
            for fault in faults[:MAX_FAULTS]
        ),
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


def _plan(
    opened: zipfile.ZipFile, entries: int, limits: ArchiveLimits
) -> dict[PurePosixPath, zipfile.ZipInfo]:
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
        if info.orig_filename.endswith(("/", "\\")):
            folders.append(name)
        else:
            files.append((name, info))
    faults += _distinct_faults([name for name, _ in files], folders, limits)
    if faults:
        raise refusal_of(faults)
    return {
        name: info
        for name, info in files
        if not LITTER.intersection(name.parts) and not name.name.startswith("._")
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


def check_distinct(
    files: Iterable[PurePosixPath], folders: Sequence[PurePosixPath], limits: ArchiveLimits
) -> None:
    """Raise UnsafeArchive for two files of one name, for a name that is a file and a folder, and
    for more folders than there may be entries.
    """
    faults = _distinct_faults(files, folders, limits)
    if faults:
        raise refusal_of(faults)


def _distinct_faults(
    files: Iterable[PurePosixPath], folders: Sequence[PurePosixPath], limits: ArchiveLimits
) -> list[Fault]:
    advice = "keep one of them"
    found: list[Fault] = []
    seen: dict[str, PurePosixPath] = {}
    places = {collision_key(str(folder)) for folder in folders}
    for folder in folders:
        add_folders(folder, places)
    for name in files:
        first = seen.setdefault(collision_key(str(name)), name)
        if first is not name:
            fault = (
                f"two entries are called {str(name)!r}"
                if first == name
                else f"{str(first)!r} and {str(name)!r} differ only in case, in how accents are "
                "encoded, or in dots and spaces at the end"
            )
            found.append(Fault("archive.duplicate-name", fault, advice, str(name)))
        add_folders(name, places)
        if len(places) > limits.max_entries:
            # Each entry may bring 31 of them, and each costs the disk more than an empty file.
            fault = f"the archive's files lie in more than {limits.max_entries} folders"
            return [*found, Fault("archive.too-many-entries", fault, "use fewer folders")]
    for key in places.intersection(seen):
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
    if not is_utf8(raw):
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
