"""The command `perdure`: its tree of commands, and what errors become."""

import errno
import importlib.metadata
import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

import perdure
from perdure.cli import audit, dataset, model, relay, service, task, train
from perdure.cli.exit_codes import ExitCode, exit_code, listed
from perdure.cli.output import complain, print_error_json
from perdure.client.address import DATA_DIR_VARIABLE, DEFAULT_URL, URL_VARIABLE
from perdure.errors import InvalidInput, InvalidSetting, PerdureError

ENTRY_POINTS: Final = "perdure.commands"
# These come from writing, so without a path; they are about the machine all the same.
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# Files here are ours: when one is missing, no path that a user named is wrong.
_OWN_FOLDERS: Final = (
    Path(perdure.__file__).parent,
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)

_EPILOG: Final = f"""\b
Environment variables:
  {URL_VARIABLE}       Where the server is. Default: what the local server
                    says, else {DEFAULT_URL}
  {DATA_DIR_VARIABLE}  The folder of the local server.
                    Default: ~/.local/share/perdure

\b
Exit codes:
{listed()}
"""

# What `perdure --help` says without importing a service; other names come without a line.
_ADDED_HELP: Final = {
    "up": "Run all of Perdure on this machine.",
    "demo": "See the whole way from drawn birds to a checked model, a killed process included.",
}

app = typer.Typer(
    help="Object-detection training that finishes, and whose result can be believed.",
    epilog=_EPILOG,
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
            found = typer.Typer(
                add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
            )
            found.command(entry.name)(function)
        typer.main.get_command(found)(args=context.args, prog_name=f"perdure {entry.name}")

    return hand_over


_add_installed(app)
app.add_typer(dataset.app, name="dataset")
app.command("train")(train.train)
app.add_typer(task.app, name="task")
app.add_typer(model.app, name="model")
app.add_typer(audit.app, name="audit")
app.add_typer(relay.app, name="relay")
service.add_to(app)


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


def main() -> None:
    """Run the command line and exit."""
    try:
        app(prog_name="perdure")
    except PerdureError as error:
        _fail(error, exit_code(error))
    except OSError as error:
        if not _is_about_a_path(error):
            _fail(_bug(error), ExitCode.BUG)
        named = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        _fail(InvalidInput(f"{named}{error.strerror}", errno=error.errno), ExitCode.MISUSE)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: recorded in a file, told in a line
        _fail(_bug(error), ExitCode.BUG)


def _fail(error: PerdureError, code: ExitCode) -> NoReturn:
    # From the arguments themselves: the command that would have read the option has failed.
    if "--json" in sys.argv[1:]:
        print_error_json(error)
    complain(error)
    sys.exit(code)


def _is_about_a_path(error: OSError) -> bool:
    """Whether it is about a path of the user's, or a full disk, and not about a file of ours."""
    if error.errno in _FULL:
        return True
    if not isinstance(error.filename, str | bytes) or not error.strerror:
        return False
    path = Path(os.path.abspath(os.fsdecode(error.filename)))  # noqa: PTH100 - follows no links
    return not any(path.is_relative_to(folder) for folder in _OWN_FOLDERS)


def _bug(error: Exception) -> PerdureError:
    """An error that nobody foresaw, in one line; its traceback goes into a file."""
    told = "".join(traceback.format_exception(error))
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="perdure-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(told)
    except OSError:  # nowhere to write: then here
        sys.stderr.write(told)
        return PerdureError(f"unexpected: {what}; this is a bug in Perdure")
    return PerdureError(
        f"unexpected: {what}; this is a bug in Perdure; the traceback is in {file.name}",
        traceback=file.name,
    )
