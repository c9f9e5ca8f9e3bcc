"""Findings: what is wrong or remarkable in a data set, where, and what to do about it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from perdure.datasets.problems import PROBLEMS

# A value is quoted so that it can be recognised, not reproduced.
_MAX_VALUE_CHARACTERS: Final = 120


class Severity(StrEnum):
    """What a finding means for the import."""

    ERROR = "error"  # the import fails
    WARNING = "warning"  # accepted, but somebody should look
    INFO = "info"  # accepted and normalised


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
            pointer=pointer,
            value=quoted(self.value),
            problem=encodable(self.problem or PROBLEMS[self.code]),
            rule=self.rule,
            advice=self.advice,
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
        return asdict(self)


@dataclass
class Findings:
    """Collects findings. Nothing stops at the first: all faults of all files are listed."""

    collected: list[Finding] = field(default_factory=list)

    def add(self, fault: Fault, file: str, line: int | None = None) -> None:
        """Record a fault at its place."""
        self.collected.append(fault.at(file, line))

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

    def in_order(self) -> tuple[Finding, ...]:
        """All findings: errors first, then by file and line."""
        rank = {severity: place for place, severity in enumerate(Severity)}
        return tuple(
            sorted(
                self.collected,
                key=lambda found: (rank[found.severity], found.file, found.line or 0, found.code),
            )
        )


def count_severities(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings there are of each severity, zeros included."""
    counted = Counter(found.severity for found in findings)
    return {severity: counted[severity] for severity in Severity}


def count_codes(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings there are of each code, the most frequent first."""
    return dict(Counter(found.code for found in findings).most_common())


def encodable(text: str) -> str:
    """`text` with escapes for what UTF-8 cannot hold: names of files may be any bytes."""
    return text.encode(errors="backslashreplace").decode()


def quoted(value: str) -> str:
    """`value` short enough to quote, and fit for UTF-8."""
    value = encodable(value)
    if len(value) <= _MAX_VALUE_CHARACTERS:
        return value
    return value[: _MAX_VALUE_CHARACTERS - 1] + "…"
