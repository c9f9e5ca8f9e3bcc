"""The gateway on a port, within a running event loop."""

from fastapi import FastAPI

from perdure.errors import InvalidSetting
from perdure.runtime.http_server import HttpServer
from perdure.runtime.settings import DEFAULT_HOST
from perdure_gateway.context import Gateway
from perdure_gateway.settings import DEFAULT_PORT, is_loopback


class GatewayServer(HttpServer):
    """Serves an app from `build_app`, whose event streams end when it stops."""

    def __init__(
        self,
        app: FastAPI,
        *,
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
        trusted_network: bool = False,
    ) -> None:
        """Port 0 takes a free one. Raises InvalidSetting for a host that is not loopback, unless
        all who can reach it are trusted: there are no users and no passwords yet.
        """
        if not (trusted_network or is_loopback(host)):
            raise InvalidSetting(
                f"the server can only listen on a loopback address such as {DEFAULT_HOST}, "
                f"not on {host!r}: it does not ask who is calling"
            )
        super().__init__(app, host=host, port=port)
        self._gateway: Gateway = app.state.gateway

    async def stop(self) -> None:
        """End event streams, finish the requests that run, and stop the app. Within about 6 s."""
        self._gateway.live.release()
        await super().stop()
