"""Text of unknown encoding: label files and lists come from many systems."""

import codecs
import re
from pathlib import Path
from typing import Final

from perdure.datasets.findings import Fault, Findings, Severity

# A label file of a crowded picture has some thousand rows; ten thousand polygons take about 10 MB.
MAX_TEXT_BYTES: Final = 32 << 20

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_MARK: Final = "\ufeff"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
# A byte above ASCII between two of ASCII: as a rule one letter of Windows-1252 or its like, as
# Chinese text in GB18030 has such bytes in pairs.
_LONE_BYTE: Final = re.compile(rb"(?<![\x80-\xff])[\x80-\xff](?![\x80-\xff])")


def read_text(
    path: Path, name: str, findings: Findings, *, max_bytes: int = MAX_TEXT_BYTES
) -> str | None:
    """The text of the file `name`; None, with an error in `findings`, where there is none to read.

    Other encodings than UTF-8 are recorded.
    """
    try:
        if path.stat().st_size > max_bytes:
            rule = f"a text file must have at most {max_bytes} bytes"
            findings.error("files.too-large", name, "", rule, "look what wrote it, and shorten it")
            return None
        data = path.read_bytes()
    except OSError as error:
        findings.add(unreadable_file(error), name)
        return None
    text, fault = decode_text(data)
    if fault:
        findings.add(fault, name)
    return text


def unreadable_file(error: OSError) -> Fault:
    """The fault of a file or folder that the system does not let us read."""
    return Fault(
        Severity.ERROR,
        "files.unreadable",
        error.strerror or str(error),
        "files and folders must be readable",
        "correct its owner or permissions, or copy the data set again",
    )


def decode_text(data: bytes) -> tuple[str | None, Fault | None]:
    """`data` as text, and a fault when it is not plain UTF-8: an error when there is no text."""
    for mark, encoding, name in _MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], encoding, name)
    if utf16 := _unmarked_utf16(data):
        return _decode(data, utf16, "UTF-16")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _decode_gb18030(data)
    if _MARK in text:  # files with a mark were joined
        return _decode(data, "utf-8", "UTF-8 with a byte order mark")
    return (None, _unreadable(text)) if "\0" in text else (text, None)


def lines(text: str) -> list[str]:
    """The lines of `text`, whatever system ended them; line 1 comes first."""
    return _LINE_END.split(text)


def _unmarked_utf16(data: bytes) -> str | None:
    """The byte order of ASCII text in UTF-16: every other byte is NUL, and no other one."""
    if len(data) % 2 == 0 and b"\0" in data[:2]:
        low, high = data[0::2], data[1::2]
        if not any(high) and 0 not in low:
            return "utf-16-le"
        if not any(low) and 0 not in high:
            return "utf-16-be"
    return None


def _decode_gb18030(data: bytes) -> tuple[str | None, Fault | None]:
    lone = _LONE_BYTE.search(data)
    if lone is None:
        return _decode(data, "gb18030", "GB18030")
    excerpt = data[max(lone.start() - 16, 0) : lone.start() + 16]
    return None, _unreadable(excerpt.decode("ascii", errors="backslashreplace"))


def _decode(data: bytes, encoding: str, name: str) -> tuple[str | None, Fault | None]:
    try:
        text = data.decode(encoding).replace(_MARK, "")
    except UnicodeDecodeError as error:
        return None, _unreadable(repr(data[error.start : error.start + 16]))
    if "\0" in text:
        return None, _unreadable(text)
    return text, Fault(
        Severity.INFO, "text.encoding", name, "text must be UTF-8", f"it was read as {name}"
    )


def _unreadable(value: str) -> Fault:
    return Fault(
        Severity.ERROR, "text.encoding", value, "text must be UTF-8", "save the file in UTF-8"
    )
