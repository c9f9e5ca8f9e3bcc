"""`perdure service relay`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_relay.bootstrap import assemble
from perdure_relay.settings import RelaySettings


def serve() -> NoReturn:
    """Run the relay until it is told to stop."""
    host.serve("relay", RelaySettings, assemble)
