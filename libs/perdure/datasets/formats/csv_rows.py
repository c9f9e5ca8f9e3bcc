"""The rows of a table in text, each with the line it begins at; a bad row does not hide others."""

import csv
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# A quote that is not closed would take the rest of the file for one field. Notes that people put
# into a field have fewer lines, and each bad row costs no more than this to be read again.
MAX_LINES_OF_A_ROW: Final = 32

_LINE_END: Final = re.compile(r"\r?\n|\r")


class TableRow(NamedTuple):
    """A row that is not blank."""

    line: int  # the first of its lines, 1 for the file's first
    fields: list[str]  # without the spaces around them
    error: str = ""  # why it cannot be read; `fields` then has its first line, whole


def table_rows(text: str, delimiter: str) -> Iterator[TableRow]:
    """The rows of `text`; of one that cannot be read only the first line is passed over."""
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        line = lines.begin_row()
        try:
            fields = [field.strip() for field in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            # The reader begins anew with the next line that it is given.
            yield TableRow(line, [lines.pass_over_first()], str(error))
            continue
        if any(fields):
            yield TableRow(line, fields)


class _Lines(Iterator[str]):
    """The lines of a text with their ends, counted, and a way back to the one after a row's first.

    A list of them would take more memory than the text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._count = 0
        self._row_at = 0
        self._row_line = 1

    def begin_row(self) -> int:
        """Note that a row begins with the next line, and give that line's number."""
        self._row_at, self._row_line = self._at, self._count + 1
        return self._row_line

    def pass_over_first(self) -> str:
        """Go back to the second line of the row, and give the first."""
        self._at, self._count = self._row_at, self._row_line - 1
        return next(self).rstrip()

    def __next__(self) -> str:
        if self._at >= len(self._text):
            raise StopIteration
        if self._count - self._row_line + 1 >= MAX_LINES_OF_A_ROW:
            raise csv.Error(f"a quoted field has more than {MAX_LINES_OF_A_ROW} lines")
        end = _LINE_END.search(self._text, self._at)
        begin, self._at = self._at, end.end() if end else len(self._text)
        self._count += 1
        return self._text[begin : self._at]
