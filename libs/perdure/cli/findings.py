"""Findings of a data set, grouped and counted."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NoReturn

import typer

from perdure.cli.output import complain_line, given_source, print_json_text, say, steps_bar
from perdure.datasets.check import DEFAULT_RULES, CheckResult, opened_and_checked, rejected_archive
from perdure.datasets.report import (
    count_findings,
    describe_findings,
    describe_left_out,
    describe_size,
)
from perdure.datasets.rules import ImportRules
from perdure.datasets.sources import opened
from perdure.errors import InvalidInput, UnsafeArchive

# Enough to see the pattern; --json lists all of them.
SHOWN_PER_CODE: Final = 10


@contextmanager
def at_hand(source: str, *, as_json: bool) -> Iterator[Path]:
    """A data set's folder or zip on this machine; one that lies elsewhere is fetched for the block.

    Objects whose keys cannot be names of files end the command with a finding for each.
    """
    with ExitStack() as stack:
        try:
            with steps_bar() as on_step:
                path = stack.enter_context(opened(given_source(source), progress=on_step))
        except UnsafeArchive as error:
            rule = "a key must be the name of a file, and of no other one"
            result = rejected_archive(source, error, format_="s3", rule=rule)
            print_findings(result, as_json=as_json)
            complain_line("nothing was fetched: rename the objects, then try again")
            raise typer.Exit(1) from error
        yield path


def checked(path: Path, rules: ImportRules = DEFAULT_RULES) -> CheckResult:
    """Check a data set on this machine. Raises InvalidInput when there is nothing at `path`."""
    with checking(path, rules) as result:
        return result


@contextmanager
def checking(path: Path, rules: ImportRules = DEFAULT_RULES) -> Iterator[CheckResult]:
    """As checked; the files of a zip are there until the block ends."""
    if not path.exists():
        raise InvalidInput(f"there is nothing at {path}: name a folder or a zip archive")
    with ExitStack() as stack:
        with steps_bar() as on_step:
            result = stack.enter_context(opened_and_checked(path, rules, progress=on_step))
        yield result


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
