"""Findings as lines for people: grouped by code, what is wrong first."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from perdure.datasets.findings import Finding, Severity, count_severities

# How a finding of the severity is counted for people; the second is the plural.
_COUNTED: Final = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
}


def describe_findings(findings: Iterable[Finding], *, shown: int, more: str) -> list[str]:
    """Lines for all findings, errors first; of each code `shown` places, and then `more`.

    What holds for a whole group is said once, and otherwise with each place.
    """
    rank = list(Severity)
    in_groups = sorted(findings, key=lambda found: (rank.index(found.severity), found.code))
    lines: list[str] = []
    for _, group in groupby(in_groups, key=lambda found: (found.severity, found.code)):
        lines += _describe_group(list(group), shown, more)
    return lines


def count_findings(findings: Iterable[Finding]) -> str:
    """The numbers of findings: "1 error, 2 warnings", or "no findings"."""
    counts = count_severities(findings)
    return (
        ", ".join(plural(count, *_COUNTED[severity]) for severity, count in counts.items() if count)
        or "no findings"
    )


def describe_size(images: int, boxes: int, classes: Sequence[str]) -> str:
    """The numbers of images, boxes and classes, and the names of these."""
    counts = (
        plural(images, "image", "images"),
        plural(boxes, "box", "boxes"),
        plural(len(classes), "class", "classes"),
    )
    return ", ".join(counts) + (f": {', '.join(classes)}" if classes else "")


def plural(count: int, one: str, many: str) -> str:
    """`count` with the word that goes with it."""
    return f"{count} {one if count == 1 else many}"


def _describe_group(group: Sequence[Finding], shown: int, more: str) -> list[str]:
    first = group[0]
    number = f" ({len(group)})" if len(group) > 1 else ""
    same_problem = len({found.problem for found in group}) == 1
    same_advice = len({(found.rule, found.advice) for found in group}) == 1
    head = f"{first.severity} {first.code}{number}:"
    lines = [f"{head} {first.problem}" if same_problem else head]
    if same_advice:
        lines.append(f"  {_what_to_do(first)}")
    for found in group[:shown]:
        said = [found.place, found.value]
        if not same_problem:
            said.append(f"({found.problem})")
        if not same_advice:
            said.append(f"- {_what_to_do(found)}")
        if place := " ".join(part for part in said if part):
            lines.append(f"  {place}")
    if len(group) > shown:
        lines.append(f"  and {len(group) - shown} more{more}")
    return lines


def _what_to_do(finding: Finding) -> str:
    return f"{finding.rule}; {finding.advice}"
