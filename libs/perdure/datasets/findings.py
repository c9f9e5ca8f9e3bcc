"""Findings: what is wrong or remarkable in a data set, where, and what to do about it."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, overload

from perdure.datasets.problems import PROBLEMS

# A value is quoted so that it can be recognised, not reproduced.
_MAX_VALUE_CHARACTERS: Final = 120


class Severity(StrEnum):
    """What a finding means for the import."""

    ERROR = "error"  # the import fails
    WARNING = "warning"  # accepted, but somebody should look
    INFO = "info"  # accepted and normalised


_SEVERITIES: Final = tuple(Severity)
_RANK: Final = {severity: rank for rank, severity in enumerate(_SEVERITIES)}
_COLUMNS: Final = "severity, file, line, pointer, value, problem, rule, advice, code"
_TABLE: Final = f"CREATE TABLE findings (number INTEGER PRIMARY KEY, {_COLUMNS})"
_ORDERED: Final = "ORDER BY severity, file, ifnull(line, 0), code, number"
_INSERT: Final = f"INSERT INTO findings ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  constants
_ALL: Final = f"SELECT {_COLUMNS} FROM findings {_ORDERED}"  # noqa: S608  constants
_PART: Final = f"{_ALL} LIMIT ? OFFSET ?"
_OF_GROUP: Final = "FROM findings WHERE severity = ? AND code = ?"
_FIRST_OF_GROUP: Final = f"SELECT {_COLUMNS} {_OF_GROUP} {_ORDERED} LIMIT ?"
_ALIKE: Final = (
    "SELECT count(DISTINCT problem), count(DISTINCT rule || char(0) || advice) " + _OF_GROUP
)
# Rows that are written together: one statement each would take most of the time.
_ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class Fault:
    """A rule that a piece of text breaks, before it is known where the text came from."""

    severity: Severity
    code: str
    value: str
    rule: str  # what must hold
    advice: str
    problem: str = ""  # what is wrong, where PROBLEMS has no words that fit

    def at(self, file: str, line: int | None = None, pointer: str | None = None) -> "Finding":
        """The fault with its place: a line (1 for the first) or a JSON pointer in `file`."""
        return Finding(
            code=self.code,
            severity=self.severity,
            file=encodable(file),
            line=line,
            pointer=None if pointer is None else encodable(pointer),
            value=quoted(self.value),
            problem=encodable(self.problem or PROBLEMS[self.code]),
            rule=encodable(self.rule),
            advice=encodable(self.advice),
        )


@dataclass(frozen=True)
class Finding:
    """One finding. `file` is relative to the data set's folder, with forward slashes."""

    code: str
    severity: Severity
    file: str
    line: int | None
    pointer: str | None
    value: str
    problem: str  # what is wrong
    rule: str  # what must hold
    advice: str

    def text(self) -> str:
        """The finding as one line for people."""
        place = f"{self.place}: " if self.place else ""
        value = f" {self.value!r}:" if self.value else ""
        said = f"{self.problem}; {self.rule}; {self.advice}"
        return f"{place}{self.severity}: {self.code}:{value} {said}"

    @property
    def place(self) -> str:
        """Where it is, for people; "" when it concerns the whole data set."""
        return self.file + (f":{self.line}" if self.line else "") + (self.pointer or "")

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return dict(vars(self))


class Findings(Sequence[Finding]):
    """Collects findings. Nothing stops at the first: all faults of all files are listed.

    As a sequence they are in order: errors first, then by file and line. A million of them need no
    more memory than a thousand: SQLite moves what does not fit into its cache to a temporary file,
    which has no name and ends with this object.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[Severity, str]] = Counter()
        self._waiting: list[tuple[Any, ...]] = []
        # Those who collect and those who read take turns, on whatever thread.
        self._table = sqlite3.connect("", check_same_thread=False)
        self._table.execute(_TABLE)

    def add(
        self, fault: Fault, file: str, line: int | None = None, pointer: str | None = None
    ) -> None:
        """Record a fault at its place."""
        self._append(fault.at(file, line, pointer))

    def error(
        self, code: str, file: str, value: str, rule: str, advice: str, *, problem: str = ""
    ) -> None:
        """Record an error that concerns a whole file."""
        self.add(Fault(Severity.ERROR, code, value, rule, advice, problem), file)

    def warning(self, code: str, file: str, value: str, rule: str, advice: str) -> None:
        """Record a warning that concerns a whole file."""
        self.add(Fault(Severity.WARNING, code, value, rule, advice), file)

    def info(self, code: str, file: str, value: str, rule: str, advice: str) -> None:
        """Record a normalisation that concerns a whole file."""
        self.add(Fault(Severity.INFO, code, value, rule, advice), file)

    def take(self, finding: Finding) -> None:
        """Record a finding that was made elsewhere."""
        self._append(finding)

    def take_over(self, others: "Findings") -> None:
        """Record what was collected apart."""
        for finding in others:
            self._append(finding)

    def number_of(self, severity: Severity) -> int:
        """How many findings there are of a severity."""
        return sum(count for (other, _), count in self._counts.items() if other is severity)

    def codes(self, severity: Severity | None = None) -> dict[str, int]:
        """How many findings there are of each code (and severity), the most frequent first."""
        counted: Counter[str] = Counter()
        for (other, code), count in self._counts.items():
            if severity in (None, other):
                counted[code] += count
        return dict(counted.most_common())

    def groups(self, shown: int) -> Iterator["Group"]:
        """The findings by severity and code, errors first, with the first `shown` of each."""
        for severity, code in sorted(self._counts, key=lambda key: (_RANK[key[0]], key[1])):
            which = (_RANK[severity], code)
            problems, advices = self._rows(_ALIKE, which)[0]
            first = self._rows(_FIRST_OF_GROUP, (*which, shown))
            yield Group(
                severity=severity,
                code=code,
                count=self._counts[severity, code],
                same_problem=problems == 1,
                same_advice=advices == 1,
                first=tuple(_finding(row) for row in first),
            )

    def __len__(self) -> int:
        return self._counts.total()

    def __iter__(self) -> Iterator[Finding]:
        self._settle()
        yield from map(_finding, self._table.execute(_ALL))

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("findings are read forwards")
            found = self._rows(_PART, (max(stop - start, 0), start))
            return tuple(_finding(row) for row in found)
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} findings, and none has the number {index}")
        return _finding(self._rows(_PART, (1, index))[0])

    def _append(self, finding: Finding) -> None:
        self._counts[finding.severity, finding.code] += 1
        self._waiting.append(
            (
                _RANK[finding.severity],
                finding.file,
                finding.line,
                finding.pointer,
                finding.value,
                finding.problem,
                finding.rule,
                finding.advice,
                finding.code,
            )
        )
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        self._table.executemany(_INSERT, self._waiting)
        self._waiting.clear()

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self._settle()
        return self._table.execute(query, values).fetchall()


@dataclass(frozen=True)
class Group:
    """The findings of one severity and code: their number, and the first of them in order."""

    severity: Severity
    code: str
    count: int
    same_problem: bool  # whether one `problem` holds for all of them
    same_advice: bool  # whether one `rule` and `advice` do
    first: tuple[Finding, ...]


def _finding(row: tuple[Any, ...]) -> Finding:
    rank, *rest, code = row
    return Finding(code, _SEVERITIES[rank], *rest)


def encodable(text: str) -> str:
    """`text` with escapes for what UTF-8 cannot hold: names of files may be any bytes."""
    return text.encode(errors="backslashreplace").decode()


def quoted(value: str) -> str:
    """`value` short enough to quote, and fit for UTF-8."""
    value = encodable(value)
    if len(value) <= _MAX_VALUE_CHARACTERS:
        return value
    return value[: _MAX_VALUE_CHARACTERS - 1] + "…"
