"""Findings of a data set, grouped and counted."""

from itertools import groupby
from pathlib import Path
from typing import Final

from perdure.cli.output import complain_line, print_json, say, steps_bar
from perdure.datasets.check import CheckResult, check
from perdure.datasets.findings import Finding, Severity, count_severities
from perdure.errors import InvalidInput

# Enough to see the pattern; --json lists all of them.
SHOWN_PER_CODE: Final = 10


def checked(path: Path) -> CheckResult:
    """Check a data set on this machine. Raises InvalidInput when there is nothing at `path`."""
    if not path.exists():
        raise InvalidInput(f"there is nothing at {path}: name a folder or a zip archive")
    with steps_bar() as on_step:
        return check(path, progress=on_step)


def print_findings(result: CheckResult, *, as_json: bool = False, to_stderr: bool = False) -> None:
    """Print what a check found: as JSON, or for people, errors first."""
    if as_json:
        print_json(result.to_json())
        return
    write = complain_line if to_stderr else say
    for line in _lines(result.findings):
        write(line)
    if result.ok:
        named = ", ".join(result.classes)
        write(
            f"{result.images} images, {result.boxes} boxes, {len(result.classes)} classes: {named}"
        )
    counts = count_severities(result.findings)
    write(
        ", ".join(f"{count} {severity}s" for severity, count in counts.items() if count)
        or "no findings"
    )


def _lines(findings: tuple[Finding, ...]) -> list[str]:
    rank = list(Severity)
    in_groups = sorted(findings, key=lambda found: (rank.index(found.severity), found.code))
    lines: list[str] = []
    for (severity, code), group in groupby(
        in_groups, key=lambda found: (found.severity, found.code)
    ):
        found = list(group)
        lines.append(f"{severity} {code} ({len(found)}): {found[0].rule}; {found[0].advice}")
        for finding in found[:SHOWN_PER_CODE]:
            place = finding.file + (f":{finding.line}" if finding.line else "")
            lines.append(f"  {place}{finding.pointer or ''} {finding.value}".rstrip())
        if len(found) > SHOWN_PER_CODE:
            lines.append(f"  and {len(found) - SHOWN_PER_CODE} more (all of them: --json)")
    return lines
