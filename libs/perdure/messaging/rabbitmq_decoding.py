"""What the broker delivers is decoded whatever its publisher put into it.

AMQP asks for UTF-8 in short strings, and no broker checks it. The library gives up its connection
at the first byte that is none, as it does for a time beyond the year 9999 or tables in tables
without end; the broker then delivers the same message to the next connection. With these
decoders such a message is read as far as it can be read, and can fail alone. See
docs/decisions/0014-decoding-what-is-delivered.md.
"""

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Final

from pamqp import decode
from pamqp.commands import Connection
from pamqp.common import FieldValue

# What the library cannot hold: a time that Python has no date for, a nesting that it has no stack
# for.
_UNREADABLE: Final = (ValueError, struct.error, OverflowError, OSError, RecursionError)
_SHORT_LENGTH: Final = struct.Struct(">B")  # in bytes, in front of a short string
_LENGTH: Final = struct.Struct(">I")  # in bytes, in front of a table and of an array
_TIME_BYTES: Final = 8

_Item = Callable[[bytes], int]


def short_text(value: bytes) -> tuple[int, str]:
    """A short string; what is no UTF-8 in it becomes U+FFFD."""
    start = _SHORT_LENGTH.size
    (length,) = _SHORT_LENGTH.unpack_from(value)
    end = start + int(length)
    return end, value[start:end].decode(errors="replace")


def time(value: bytes) -> tuple[int, datetime | None]:
    """A time; None for one that Python has no date for."""
    try:
        return decode.timestamp(value)
    except _UNREADABLE:
        return _TIME_BYTES, None


def table(value: bytes) -> tuple[int, dict[str, FieldValue]]:
    """A table, up to what cannot be read in it."""
    found: dict[str, FieldValue] = {}

    def entry(rest: bytes) -> int:
        named, name = short_text(rest)
        consumed, found[name] = decode.embedded_value(rest[named:])
        return named + consumed

    return _each(value, entry), found


def array(value: bytes) -> tuple[int, list[FieldValue]]:
    """An array, up to what cannot be read in it."""
    found: list[FieldValue] = []

    def entry(rest: bytes) -> int:
        consumed, one = decode.embedded_value(rest)
        found.append(one)
        return consumed

    return _each(value, entry), found


def _each(value: bytes, read: _Item) -> int:
    """Read one item after the other; give where they end, which their length in front says."""
    start = _LENGTH.size
    (length,) = _LENGTH.unpack_from(value)
    end = start + int(length)
    try:
        while start < end:
            start += read(value[start:end])
    except _UNREADABLE:
        return end  # how long the unreadable item is cannot be told: the rest is left out
    return end


def install() -> None:
    """Put these into the library's tables of decoders, by which it reads every frame.

    And let it take a refusal for an answer: it would not say why a virtual host is not opened.
    """
    decode.METHODS |= {"shortstr": short_text, "timestamp": time, "table": table, "array": array}
    decode.TABLE_MAPPING |= {b"T": time, b"F": table, b"A": array}
    Connection.Open.valid_responses = [Connection.OpenOk.name, Connection.Close.name]
