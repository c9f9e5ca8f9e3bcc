"""Findings of a data set, grouped and counted."""

from pathlib import Path
from typing import Final, NoReturn

import typer

from perdure.cli.output import complain_line, print_json_text, say, steps_bar
from perdure.datasets.check import DEFAULT_RULES, CheckResult, check
from perdure.datasets.report import (
    count_findings,
    describe_findings,
    describe_left_out,
    describe_size,
)
from perdure.datasets.rules import ImportRules
from perdure.errors import InvalidInput

# Enough to see the pattern; --json lists all of them.
SHOWN_PER_CODE: Final = 10


def checked(path: Path, rules: ImportRules = DEFAULT_RULES) -> CheckResult:
    """Check a data set on this machine. Raises InvalidInput when there is nothing at `path`."""
    if not path.exists():
        raise InvalidInput(f"there is nothing at {path}: name a folder or a zip archive")
    with steps_bar() as on_step:
        return check(path, rules, progress=on_step)


def print_findings(result: CheckResult, *, as_json: bool = False, to_stderr: bool = False) -> None:
    """Print what a check found: as JSON, or for people, errors first."""
    if as_json:
        print_json_text(result.json_text())
        return
    write = complain_line if to_stderr else say
    more = " (all of them: --json)"
    for line in describe_findings(result.findings, shown=SHOWN_PER_CODE, more=more):
        write(line)
    if result.images:
        write(describe_size(result.images, result.boxes, result.classes))
    for line in describe_left_out(result.left_out):
        write(line)
    write(count_findings(result.findings))


def refuse(
    result: CheckResult,
    *,
    as_json: bool,
    end: str = "nothing was sent: correct the errors, then try again",
) -> NoReturn:
    """Say why a data set with errors is not sent, and exit with 1."""
    if as_json:
        print_json_text(result.json_text())  # as `perdure dataset check --json` does
    else:
        print_findings(result, to_stderr=True)
    complain_line(end)
    raise typer.Exit(1)
