"""perdure relay: status."""

from typing import Final

import typer

from perdure.cli.output import AsJson, duration, print_fields, print_json, say
from perdure.cli.server import connect
from perdure.client import RelayStatus

app = typer.Typer(help="Ask how the log gets to the broker.", no_args_is_help=True)

_ACTIVE: Final = {
    True: "active",
    False: "none is active",
    None: "not known: this server's log elects none",
}


@app.callback()
def _relay() -> None:
    """Ask how the log gets to the broker."""


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show how far the relay is behind, and whether one is active.

    Exit code 1: events wait, and no relay is active to publish them.
    """
    with connect() as client:
        relay = client.relay_status()
    if as_json:
        print_json(relay.json)
    else:
        _print(relay)
    if relay.active is False and relay.lag_events:
        raise typer.Exit(1)


def _print(relay: RelayStatus) -> None:
    print_fields(
        {
            "relay": _ACTIVE[relay.active],
            "lag": f"{_events(relay.lag_events)}, {duration(relay.lag_s)}",
            "published": f"{relay.position} of {relay.head}",
        }
    )
    if relay.active is False:
        say(
            "Start one: perdure service relay. If one runs, its log says why it does not lead; "
            "nothing is lost meanwhile."
        )
    elif relay.lag_events:
        say(
            "It is catching up. If the lag grows, its log says what it waits for; nothing is lost "
            "meanwhile."
        )


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
