"""Zip archives that no honest tool writes, byte by byte (PKWARE's APPNOTE.TXT, 4.3)."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

STORED, DEFLATED = 0, 8


@dataclass(frozen=True)
class Entry:
    """An entry as its headers tell of it; what is None is told truthfully."""

    name: bytes
    data: bytes = b""  # as it lies in the archive
    method: int = STORED
    flags: int = 0
    mode: int = 0  # Unix
    crc: int | None = None
    packed_bytes: int | None = None
    size_bytes: int | None = None
    offset: int | None = None
    extra: bytes = b""  # of the central header

    def _fields(self) -> tuple[int, ...]:
        packed = len(self.data) if self.packed_bytes is None else self.packed_bytes
        size = len(self.data) if self.size_bytes is None else self.size_bytes
        crc = zlib.crc32(self.data) if self.crc is None else self.crc
        return (self.flags, self.method, 0, 0x21, crc, packed, size, len(self.name))

    def local(self) -> bytes:
        """The local header, the name and the data."""
        head = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, *self._fields(), 0)
        return head + self.name + self.data

    def central(self, offset: int) -> bytes:
        """The header in the directory, for an entry that lies at `offset`."""
        place = offset if self.offset is None else self.offset
        rest = (len(self.extra), 0, 0, 0, self.mode << 16, place)
        head = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 0x0314, 20, *self._fields(), *rest)
        return head + self.name + self.extra


def archive_of(*entries: Entry) -> bytes:
    """The entries one after the other, and their directory."""
    offsets, body = [], b""
    for entry in entries:
        offsets.append(len(body))
        body += entry.local()
    pairs = zip(entries, offsets, strict=True)
    return with_directory(body, [entry.central(offset) for entry, offset in pairs])


def with_directory(body: bytes, headers: Sequence[bytes]) -> bytes:
    """`body` with a directory of these headers."""
    directory = b"".join(headers)
    counts = (len(headers), len(headers))
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, *counts, len(directory), len(body), 0)
    return body + directory + end


def overlapping(copies: int, kernel: bytes) -> bytes:
    """Fifield's bomb of stored bytes: each entry's data are the next one's header and data."""
    tail, entries, starts = b"", [], []
    for number in reversed(range(copies)):
        entry = Entry(f"{number:04}.txt".encode(), tail or kernel)
        tail = entry.local()
        entries.append(entry)
        starts.append(len(tail))
    places = [len(tail) - start for start in starts]
    pairs = zip(entries, places, strict=True)
    return with_directory(tail, [entry.central(place) for entry, place in reversed(list(pairs))])
