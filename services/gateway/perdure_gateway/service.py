"""`perdure service gateway`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_gateway.bootstrap import assemble
from perdure_gateway.settings import GatewayServiceSettings


def serve() -> NoReturn:
    """Run the gateway until it is told to stop."""
    host.serve("gateway", GatewayServiceSettings, assemble)
