"""The central directory of a zip archive, read just far enough to count its entries.

Formats after PKWARE's APPNOTE.TXT 6.3.10: 4.3.12 (central directory), 4.3.14 to 4.3.16 (its end).
"""

import os
import struct
from pathlib import Path
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct("<4s24x3H12x")  # signature; lengths of name, extra field, comment
_END: Final = struct.Struct("<4s8xL6x")  # signature; size of the directory
_END_64: Final = struct.Struct("<4s36xQ8x")  # the same with 64 bits
_LOCATOR_64_BYTES: Final = 20
_MAX_COMMENT_BYTES: Final = 1 << 16
# zipfile reads the directory into memory whole. An entry with a long name takes about 250 bytes.
_MAX_DIRECTORY_BYTES: Final = 256 << 20


def count_entries(archive: Path, *, at_most: int) -> int | None:
    """How many entries there are (counting stops above `at_most`), or None for what is no zip.

    The headers are counted themselves: the number in the archive's end record can be a lie.
    """
    with archive.open("rb") as file:
        region = _region(file)
        if region is None:
            return None
        start, size_bytes = region
        if size_bytes > _MAX_DIRECTORY_BYTES:
            return at_most + 1
        file.seek(start)
        count = 0
        while size_bytes > 0 and count <= at_most:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None
            signature, name, extra, comment = _HEADER.unpack(header)
            if signature != b"PK\x01\x02":
                return None
            file.seek(name + extra + comment, os.SEEK_CUR)
            size_bytes -= _HEADER.size + name + extra + comment
            count += 1
    return count


def _region(file: BinaryIO) -> tuple[int, int] | None:
    """Where the central directory starts, and its size in bytes."""
    file_bytes = file.seek(0, os.SEEK_END)
    tail_start = max(0, file_bytes - _END.size - _MAX_COMMENT_BYTES)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        return None
    _, size_bytes = _END.unpack_from(tail, at)
    end = tail_start + at
    file.seek(max(0, end - _LOCATOR_64_BYTES))
    # Like zipfile, we believe the 64-bit record wherever there is one: both must see one directory.
    if file.read(4) == b"PK\x06\x07":
        end -= _LOCATOR_64_BYTES + _END_64.size
        file.seek(max(0, end))
        record = file.read(_END_64.size)
        if len(record) < _END_64.size or not record.startswith(b"PK\x06\x06"):
            return None
        _, size_bytes = _END_64.unpack(record)
    start = end - size_bytes
    return (start, size_bytes) if start >= 0 else None
