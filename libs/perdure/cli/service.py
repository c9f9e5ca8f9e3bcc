"""perdure service: run one service as a process of its own."""

import importlib.metadata
from typing import Annotated, Final

import typer

from perdure.errors import InvalidInput, InvalidSetting
from perdure.runtime.init_process import be_init_if_first

ENTRY_POINTS: Final = "perdure.services"

_EPILOG: Final = """\b
Settings are environment variables; the README of each service lists its own:
  PERDURE_BUS_URL    amqp://user:password@host:port/vhost (all)
  PERDURE_LOG_URL    postgresql://user:password@host:port/database
                     (gateway, scheduler, relay)
  PERDURE_STORE_URL  file:///folder or s3+http://host:port/bucket
                     (gateway, data-prep, trainer-agent, publisher)
VARIABLE_FILE names a file that holds the value of VARIABLE.

\b
Exit codes: 0 stopped by SIGTERM or SIGINT; 1 it failed: start it again;
2 a setting is missing or wrong.
"""


def service(
    name: Annotated[
        str,
        typer.Argument(help="gateway, scheduler, relay, data-prep, trainer-agent or publisher."),
    ],
) -> None:
    """Run one service, until SIGTERM, with its log on standard error."""
    found = importlib.metadata.entry_points(group=ENTRY_POINTS)
    if name not in found.names:
        raise InvalidInput(
            f"there is no service {name!r}: it is one of {', '.join(sorted(found.names))}"
        )
    be_init_if_first()
    try:
        found[name].load()()
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"the service {name} needs {error.name}, which is not installed: "
            f"install it with: pip install 'perdure[{name}]'"
        ) from error


def add_to(tree: typer.Typer) -> None:
    """Add the command to `tree`."""
    tree.command("service", epilog=_EPILOG)(service)
