"""Ids in COCO files: whole numbers by the book, and text or 7.0 where tools handled them freely."""

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.json_file import json_text, pointer, whole_number

Id = int | str
# Keys and positions that lead to a value in a file.
Way = tuple[str | int, ...]


def canonical_id(value: object) -> Id | None:
    """The id as a number where it is one, or as text; None where it is neither."""
    number = whole_number(value)
    if number is not None:
        return number
    return value if isinstance(value, str) and value else None


def invalid_id(value: object) -> Fault:
    """The fault of an id that is none."""
    return Fault(
        Severity.ERROR,
        "coco.id-invalid",
        json_text(value),
        "an id must be a whole number, or text",
        "correct the id: see what wrote the file",
    )


class IdTypes:
    """The types in which a file writes the ids of one kind of thing. They should be one."""

    def __init__(self) -> None:
        self._first: dict[type, tuple[object, Way]] = {}

    def see(self, value: object, *way: str | int) -> None:
        """Take an id as it is written, and its place."""
        self._first.setdefault(type(value), (value, way))

    def report(self, file: str, findings: Findings) -> None:
        """Record an id that is no whole number, where others are of another type."""
        if len(self._first) < 2:
            return
        value, way = next(first for kind, first in self._first.items() if kind is not int)
        rule = "the ids of one thing must be all whole numbers, or all text"
        advice = "those that are whole numbers were read as such"
        fault = Fault(Severity.INFO, "coco.id-type", json_text(value), rule, advice)
        findings.add(fault, file, pointer=pointer(*way))


def id_order(value: Id) -> tuple[bool, int, str]:
    """A key to sort ids by: numbers by size, then text."""
    return (True, 0, value) if isinstance(value, str) else (False, value, "")
