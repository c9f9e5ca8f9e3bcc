"""Text of unknown encoding: label files and lists come from many systems."""

import codecs
import re
from typing import Final

from perdure.datasets.findings import Fault, Severity

# A label file of a crowded picture has some thousand rows; ten thousand polygons take about 10 MB.
MAX_TEXT_BYTES: Final = 32 << 20

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


def decode_text(data: bytes) -> tuple[str | None, Fault | None]:
    """`data` as text, and a fault when it is not plain UTF-8: an error when there is no text."""
    for mark, encoding, name in _MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], encoding, name)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _decode(data, "gb18030", "GB18030")
    return (None, _unreadable(text)) if "\0" in text else (text, None)


def lines(text: str) -> list[str]:
    """The lines of `text`, whatever system ended them; line 1 comes first."""
    return _LINE_END.split(text)


def _decode(data: bytes, encoding: str, name: str) -> tuple[str | None, Fault | None]:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        return None, _unreadable(repr(data[error.start : error.start + 16]))
    if "\0" in text:
        return None, _unreadable(text)
    return text, Fault(
        Severity.INFO, "text.encoding", name, "text is UTF-8", f"it was read as {name}"
    )


def _unreadable(value: str) -> Fault:
    return Fault(Severity.ERROR, "text.encoding", value, "text is UTF-8", "save the file in UTF-8")
