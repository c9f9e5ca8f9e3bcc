"""An ASGI app on a port, within a running event loop."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from perdure.errors import AlreadyRunning, InvalidSetting

BACKLOG: Final = 512
# Requests that run when the server stops get this long.
GRACEFUL_STOP_S: Final = 3
STOP_TIMEOUT_S: Final = 6.0
# Taken, or reserved for others; all else is about the address.
_ABOUT_PORT: Final = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EPERM})


class HttpServer:
    """Serves an app. `start`, then `stop`; `url` says where it listens."""

    def __init__(self, app: Starlette, *, host: str, port: int) -> None:
        """`host` is an IP address; port 0 takes a free one."""
        self._app = app
        self._host = host
        self._port = port
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server: _Server | None = None
        self._lifespan = contextlib.AsyncExitStack()
        self.url = ""

    def take_port(self) -> None:
        """Take the port, without answering there yet: who comes early is refused, and a port that
        is taken is found before anything else is begun. Raises AlreadyRunning, and InvalidSetting
        for an address that this machine does not have.
        """
        if self._socket is None:
            self._socket = _bound(self._host, self._port)

    async def start(self) -> str:
        """Start the app and listen; gives the URL. Raises what `take_port` does."""
        self.take_port()
        listener = self._socket
        assert listener is not None
        try:
            with _port_trouble(self._host, self._port):
                listener.listen(BACKLOG)
            listener.setblocking(False)
            host = f"[{self._host}]" if ":" in self._host else self._host
            self.url = f"http://{host}:{listener.getsockname()[1]}"
            # Not uvicorn's own lifespan: it would log what goes wrong, instead of telling us.
            await self._lifespan.enter_async_context(self._app.router.lifespan_context(self._app))
            await self._serve(listener)
        except BaseException:
            await self.stop()
            raise
        return self.url

    async def _serve(self, listener: socket.socket) -> None:
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
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name=self.url)
        ready = asyncio.create_task(self._server.ready.wait())
        await asyncio.wait({self._serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            self._serving.result()

    async def ended(self) -> None:
        """Return, or raise what went wrong, when the server ends without having been stopped."""
        assert self._serving is not None
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Finish the requests that run, and stop the app. Within about 6 s."""
        if self._serving is not None and self._server is not None:
            self._server.should_exit = True
            _done, pending = await asyncio.wait({self._serving}, timeout=STOP_TIMEOUT_S)
            for task in pending:
                task.cancel()
            self._serving = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
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


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as undo, _port_trouble(host, port):
        # The protocol is named because asyncio turns Nagle's algorithm off only for sockets that
        # name it; with it on, each answer waits 40 ms for the client's delayed acknowledgement.
        listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        undo.pop_all()
    return listener


@contextlib.contextmanager
def _port_trouble(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        shown = f"[{host}]" if ":" in host else host
        told = f"cannot listen on {shown}:{port}: {error.strerror}"
        if error.errno in _ABOUT_PORT:
            raise AlreadyRunning(
                f"{told}. Stop what listens there, or choose another port"
            ) from error
        raise InvalidSetting(f"{told}. Choose an address that this machine has") from error
