"""The server that a command speaks to."""

import sys

from perdure.cli.output import complain_line, console
from perdure.client import Client


def connect() -> Client:
    """A client that says on standard error when an answer is long in coming.

    Programs (--json, no terminal) hear nothing of it.
    """
    quiet = "--json" in sys.argv[1:] and not console(stderr=True).is_terminal
    return Client(on_wait=None if quiet else _say_waiting)


def _say_waiting(url: str) -> None:
    complain_line(f"still waiting for an answer from {url}")
