"""The command `perdure`: its tree of commands, and what errors become.

Exit codes: 0 done; 1 a negative answer (a failed task, a broken data set, a damaged log); 2 misuse,
invalid input or configuration; 3 no server, or something that it needs, answers; 130 interrupted.
"""

import importlib.metadata
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

import perdure
from perdure.cli import audit, dataset, model, task, train
from perdure.cli.output import complain
from perdure.errors import (
    InvalidDataset,
    InvalidInput,
    InvalidSetting,
    PerdureError,
    Unavailable,
)

ENTRY_POINTS: Final = "perdure.commands"
NEGATIVE: Final = 1
MISUSE: Final = 2
UNREACHABLE: Final = 3


# What `perdure --help` says without importing a service; other names come without a line.
_ADDED_HELP: Final = {
    "up": "Run all of Perdure on this machine.",
    "demo": "See the whole way from drawn birds to a checked model, a killed process included.",
}

app = typer.Typer(
    help="Object-detection training that finishes, and whose result can be believed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _add_installed(tree: typer.Typer) -> None:
    """Add the commands of installed services. One is imported only when it is called."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        tree.command(
            entry.name,
            help=_ADDED_HELP.get(entry.name),
            add_help_option=False,
            context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        )(_handing_over(entry))


def _handing_over(entry: importlib.metadata.EntryPoint) -> Callable[[typer.Context], None]:
    def hand_over(context: typer.Context) -> None:
        try:
            found = entry.load()
        except ImportError as error:
            raise InvalidSetting(
                f"perdure {entry.name} needs parts that are not installed ({error}): "
                "install them with: pip install 'perdure[embedded]'"
            ) from error
        if not isinstance(found, typer.Typer):
            function = found
            found = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            found.command(entry.name)(function)
        typer.main.get_command(found)(args=context.args, prog_name=f"perdure {entry.name}")

    return hand_over


_add_installed(app)
app.add_typer(dataset.app, name="dataset")
app.command("train")(train.train)
app.add_typer(task.app, name="task")
app.add_typer(model.app, name="model")
app.add_typer(audit.app, name="audit")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Object-detection training that finishes, and whose result can be believed."""


def exit_code(error: PerdureError) -> int:
    """What the command ends with after this error."""
    match error:
        case Unavailable():
            return UNREACHABLE
        case InvalidDataset():  # misuse is a wrong command; this is an answer about the data
            return NEGATIVE
        case InvalidInput():
            return MISUSE
        case _:
            return NEGATIVE


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="perdure")
    except PerdureError as error:
        complain(error)
        sys.exit(exit_code(error))
