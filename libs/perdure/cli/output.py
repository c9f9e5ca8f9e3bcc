"""What commands print: tables and fields for people, JSON for programs, complaints on standard
error.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from perdure.errors import InvalidConfig, InvalidInput, PerdureError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many, newest first.")]

# Wide enough for a row of any of our tables, so that nothing is cut off in files and pipes.
PIPE_WIDTH_COLUMNS: Final = 240
SHORT_ID: Final = 12
OnProgress = Callable[[int, int], None]
# A name or a message from elsewhere must not steer the terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console(*, stderr: bool = False) -> Console:
    """Standard output (or error), as it is at this moment."""
    plain = Console(stderr=stderr, highlight=False)
    if plain.is_terminal:
        return plain
    return Console(stderr=stderr, highlight=False, width=PIPE_WIDTH_COLUMNS)


def text(value: Any) -> Text:
    """`value` for a table's cell, without markup and control characters."""
    return Text("" if value is None else _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value)))


def say(line: str) -> None:
    """Print a line for people."""
    console().print(text(line), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print `value` as JSON."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_json_text(pieces: Iterable[str]) -> None:
    """Print a JSON text that is made piece by piece."""
    for piece in pieces:
        typer.echo(piece, nl=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print rows under their columns' names, or `empty` when there is none."""
    table = Table(box=box.SIMPLE_HEAD if console().is_terminal else None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(text(value) for value in row))
    if table.row_count:
        _print_trimmed(table)
    else:
        complain_line(empty)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one a line; what is empty is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", ()):
            table.add_row(name, text(value))
    _print_trimmed(table)


def _print_trimmed(table: Table) -> None:
    """Print a table without the blanks that fill its lines up."""
    out = console()
    with out.capture() as drawn:
        out.print(table)
    for line in drawn.get().splitlines():
        typer.echo(line.rstrip())


def complain_line(line: str) -> None:
    """Print a line on standard error."""
    console(stderr=True).print(text(line), soft_wrap=True)


def print_error_json(error: PerdureError) -> None:
    """Print what went wrong as a JSON object, for programs."""
    form = {"code": error.code, "message": error.message, "details": error.details}
    # Details may hold what came in, whatever it was; the answer is valid JSON all the same.
    plain = json.loads(json.dumps(form, default=str), parse_constant=str)
    print_json({"error": plain})


def complain(error: PerdureError) -> None:
    """Say on standard error what went wrong."""
    problems = error.details.get("problems")
    if isinstance(error, InvalidConfig) and problems:
        complain_line("error: the configuration is not valid")
        for problem in problems:
            nearest = problem.get("nearest")
            hint = f" (did you mean {nearest}?)" if nearest else ""
            complain_line(f"  {problem['key']}={problem['value']}: {problem['problem']}{hint}")
        return
    complain_line(f"error: {error.message}")


def given_name(name: str | None) -> str | None:
    """A name as it was given. Raises InvalidInput for an empty one."""
    if name is not None and not name.strip():
        raise InvalidInput("--name is empty: give a name, at least one character")
    return name


def given_source(source: str) -> str:
    """What names a data set. Raises InvalidInput when it is empty: the folder at hand is `.`."""
    if not source.strip():
        raise InvalidInput("the name of the data is empty: is a variable of the shell not set?")
    return source


def number(value: float | None, digits: int = 3) -> str:
    """A measure for people; empty when there is none."""
    return "" if value is None else f"{value:.{digits}f}"


def duration(seconds: float) -> str:
    """A length of time for people, e.g. "1 h 02 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


@contextmanager
def bytes_bar(what: str) -> Iterator[OnProgress]:
    """A progress bar on standard error, when that is a terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not console(stderr=True).is_terminal,
    ) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def steps_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar of phases and steps on standard error, when that is a terminal."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not console(stderr=True).is_terminal,
    ) as progress:
        bar = progress.add_task("", total=None)
        yield lambda phase, done, total: progress.update(
            bar, description=phase, completed=done, total=total
        )
