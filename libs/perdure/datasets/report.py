"""Findings as lines for people: grouped by code, what is wrong first."""

from collections.abc import Sequence
from typing import Final

from perdure.datasets.findings import Finding, Findings, Group, Severity

# How a finding of the severity is counted for people; the second is the plural.
_COUNTED: Final = {
    Severity.ERROR: ("error", "errors"),
    Severity.WARNING: ("warning", "warnings"),
    Severity.INFO: ("note", "notes"),
}


def describe_findings(findings: Findings, *, shown: int, more: str) -> list[str]:
    """Lines for all findings, errors first; of each code `shown` places, and then `more`.

    What holds for a whole group is said once, and otherwise with each place.
    """
    lines: list[str] = []
    for group in findings.groups(shown):
        lines += _describe_group(group, more)
    return lines


def count_findings(findings: Findings) -> str:
    """The numbers of findings: "1 error, 2 warnings", or "no findings"."""
    counts = ((findings.number_of(severity), severity) for severity in Severity)
    return (
        ", ".join(plural(count, *_COUNTED[severity]) for count, severity in counts if count)
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


def describe_left_out(left_out: int) -> list[str]:
    """What became of the test images, if there are any."""
    if not left_out:
        return []
    was = "was" if left_out == 1 else "were"
    return [f"{plural(left_out, 'test image', 'test images')} {was} left out: use them for a test"]


def plural(count: int, one: str, many: str) -> str:
    """`count` with the word that goes with it."""
    return f"{count} {one if count == 1 else many}"


def _describe_group(group: Group, more: str) -> list[str]:
    first = group.first[0]
    number = f" ({group.count})" if group.count > 1 else ""
    head = f"{group.severity} {group.code}{number}:"
    lines = [f"{head} {first.problem}" if group.same_problem else head]
    if group.same_advice:
        lines.append(f"  {_what_to_do(first)}")
    for found in group.first:
        said = [found.place, found.value]
        if not group.same_problem:
            said.append(f"({found.problem})")
        if not group.same_advice:
            said.append(f"- {_what_to_do(found)}")
        if place := " ".join(part for part in said if part):
            lines.append(f"  {place}")
    if group.count > len(group.first):
        lines.append(f"  and {group.count - len(group.first)} more{more}")
    return lines


def _what_to_do(finding: Finding) -> str:
    return f"{finding.rule}; {finding.advice}"
