"""The gateway on a port, within a running event loop."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from fastapi import FastAPI

from perdure.errors import AlreadyRunning, InvalidSetting
from perdure_gateway.context import Gateway

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 7412
BACKLOG: Final = 512
# Requests that run when the server stops get this long; event streams end at once.
GRACEFUL_STOP_S: Final = 3
STOP_TIMEOUT_S: Final = 6.0


class GatewayServer:
    """Serves an app from `build_app` on loopback. `start`, then `stop`; `url` says where it
    listens.
    """

    def __init__(self, app: FastAPI, *, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> None:
        """Port 0 takes a free one. Raises InvalidSetting for a host that is not loopback: there are
        no users and no passwords yet.
        """
        _check_loopback(host)
        self._app = app
        self._host = host
        self._port = port
        self._serving: asyncio.Task[None] | None = None
        self._server: _Server | None = None
        self._lifespan = contextlib.AsyncExitStack()
        self.url = ""

    async def start(self) -> str:
        """Start the app and listen; gives the URL. Raises AlreadyRunning when the port is taken."""
        listener = _listen(self._host, self._port)
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        try:
            # Not uvicorn's own lifespan: it would log what goes wrong, instead of telling us.
            await self._lifespan.enter_async_context(self._app.router.lifespan_context(self._app))
            self._server = _Server(
                uvicorn.Config(
                    self._app,
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    timeout_graceful_shutdown=GRACEFUL_STOP_S,
                )
            )
            self._serving = asyncio.create_task(
                self._server.serve(sockets=[listener]), name="gateway"
            )
            await self._server.ready.wait()
        except BaseException:
            listener.close()
            await self.stop()
            raise
        return self.url

    async def stop(self) -> None:
        """End event streams, finish the requests that run, and stop the app. Within about 6 s."""
        gateway: Gateway = self._app.state.gateway
        gateway.live.release()
        if self._serving is not None and self._server is not None:
            self._server.should_exit = True
            _done, pending = await asyncio.wait({self._serving}, timeout=STOP_TIMEOUT_S)
            for task in pending:
                task.cancel()
            self._serving = None
        await self._lifespan.aclose()


class _Server(uvicorn.Server):
    """Leaves the process's signals to the process, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _check_loopback(host: str) -> None:
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidSetting(
            f"the server can only listen on a loopback address such as {DEFAULT_HOST}, "
            f"not on {host!r}: it does not ask who is calling"
        )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only for sockets that name
    # it; with it on, each answer waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AlreadyRunning(
            f"cannot listen on {host}:{port}: {error.strerror}. "
            "Stop what listens there, or choose another port"
        ) from error
    listener.setblocking(False)
    return listener
