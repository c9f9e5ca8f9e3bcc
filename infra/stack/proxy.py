"""A TCP proxy on 127.0.0.1 that makes a link fail as networks do.

It runs in a thread with an event loop of its own; every method returns when its effect is there,
within milliseconds, and may be called from synchronous code and from a test's event loop alike.
"""

import asyncio
import enum
import logging
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from infra.stack.ports import free_port
from perdure.runtime.started import Started

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 65_536
# Bytes under way when a latency is set: above the product of a second and 10 Gbit/s nothing gains.
MAX_CHUNKS_UNDER_WAY: Final = 1024
CONNECT_TIMEOUT_S: Final = 10.0
CALL_TIMEOUT_S: Final = 10.0  # calls take milliseconds; a machine may be busy

Result = TypeVar("Result")
_Chunks: TypeAlias = "asyncio.Queue[tuple[float, bytes]]"  # each with the time when it is due


class Direction(enum.Enum):
    """A way through the proxy."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class Proxy(Started):
    """Carries connections from its own port to `target`, a port of 127.0.0.1.

    The target may be set, or changed, later: connections that come before are reset. Faults add up
    until `restore`: a black hole may be cut, a slow link may be refused.
    """

    def __init__(self, target: int | None = None, port: int | None = None) -> None:
        self.target = target
        self.port = port or free_port()
        self._faults = _Faults()
        self._links: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    @property
    def connections(self) -> int:
        """How many connections go through now."""
        return len(self._links)

    def start(self) -> None:
        """Listen on `port`. Raises OSError when something else does.

        The port is not one that the system gives to outgoing connections, so it is free again when
        it is needed after `refuse`.
        """
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True
        )
        self._thread.start()
        self._call(self._restore())

    def stop(self) -> None:
        """Reset what goes through, and listen no more. The proxy cannot be started again."""
        if self._thread is None:
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()
        self._thread = None

    def delay(self, latency_s: float) -> None:
        """Hold each byte back for `latency_s` in each direction, in order; 0 ends that.

        The throughput stays.
        """
        self._faults.latency_s = latency_s

    def cut(self) -> None:
        """Reset all connections that go through now; new ones are carried."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Refuse new connections; those that go through now stay."""
        self._call(self._refuse())

    def black_hole(self) -> None:
        """Let nothing pass any more, bytes and ends of connections alike, and say nothing of it.

        New connections are accepted, and get no further. After `restore` what waited goes on its
        way, as after a break in a network that TCP outlived.
        """
        self._call(self._block(*Direction))

    def half_open(self, direction: Direction) -> None:
        """Let nothing pass in one direction; the other one works on, for connections that are
        there: new ones get no further.
        """
        self._call(self._block(direction))

    def restore(self) -> None:
        """End all faults."""
        self._call(self._restore())

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    async def _end(self) -> None:
        await self._refuse()
        await self._cut()

    async def _block(self, *directions: Direction) -> None:
        for direction in directions:
            self._faults.gates[direction].clear()

    async def _refuse(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    async def _restore(self) -> None:
        self._faults.latency_s = 0.0
        for gate in self._faults.gates.values():
            gate.set()
        if self._listening is None:
            self._listening = socket.create_server((HOST, self.port))
            self._listening.setblocking(False)
            self._loop.add_reader(self._listening, self._accept, self._listening)

    async def _cut(self) -> None:
        await asyncio.sleep(0)  # each link has begun, and will clean up
        links = set(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):  # gone before we got to it
            return
        connection.setblocking(False)
        link = self._loop.create_task(self._carry(connection))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _carry(self, connection: socket.socket) -> None:
        """Carry one connection until both ends have said their last, or one breaks: then the other
        one learns of it by a reset.
        """
        ends = []
        try:
            ends.append(client := await _end(connection))
            for direction in Direction:  # a handshake needs both
                await self._faults.passed(direction)
            if self.target is not None:
                ends.append(server := await _end(await self._dialled(self.target)))
                await _exchange(client, server, self._faults)
                client.close()
                server.close()
        except OSError as error:
            log.debug("a connection through the proxy broke: %s", error)
        finally:
            for end in ends:
                end.reset()

    async def _dialled(self, port: int) -> socket.socket:
        made = socket.socket()
        try:
            made.setblocking(False)
            await asyncio.wait_for(self._loop.sock_connect(made, (HOST, port)), CONNECT_TIMEOUT_S)
        except BaseException:
            made.close()
            raise
        return made


@dataclass
class _Faults:
    """What is wrong with the link now."""

    latency_s: float = 0.0
    gates: dict[Direction, asyncio.Event] = field(
        default_factory=lambda: {direction: asyncio.Event() for direction in Direction}
    )

    async def passed(self, direction: Direction) -> None:
        """Return when something may pass in this direction."""
        await self.gates[direction].wait()


@dataclass(frozen=True)
class _End:
    """One end of a connection through the proxy, as the proxy sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """End the connection in order, when what was written has gone out."""
        _reset_on_close(self.writer.get_extra_info("socket"), False)
        self.writer.close()

    def reset(self) -> None:
        """Have the peer learn at once that the connection is broken, unless it has ended."""
        if not self.writer.is_closing():
            self.writer.transport.abort()


async def _end(connection: socket.socket) -> _End:
    """A connection of ours, which is reset when it is not closed in order."""
    _reset_on_close(connection, True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _End(*await asyncio.open_connection(sock=connection, limit=CHUNK_BYTES))


def _reset_on_close(connection: socket.socket, wanted: bool) -> None:
    """With a linger of 0 s, close() sends RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", wanted, 0))


async def _exchange(client: _End, server: _End, faults: _Faults) -> None:
    """Carry bytes both ways until both have come to their end. Raises OSError when one breaks."""
    tasks = []
    for source, sink, direction, back in (
        (client, server, Direction.TO_SERVER, Direction.TO_CLIENT),
        (server, client, Direction.TO_CLIENT, Direction.TO_SERVER),
    ):
        under_way: _Chunks = asyncio.Queue(MAX_CHUNKS_UNDER_WAY)
        tasks += [
            asyncio.ensure_future(_take(source.reader, under_way, direction, faults)),
            asyncio.ensure_future(_deliver(under_way, sink.writer, direction, back, faults)),
        ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _take(
    source: asyncio.StreamReader, under_way: _Chunks, direction: Direction, faults: _Faults
) -> None:
    """Read what is to go in one direction, its end (as no bytes) included."""
    data = None
    while data != b"":
        await faults.passed(direction)  # what is not read stops the sender, in time
        try:
            data = await source.read(CHUNK_BYTES)
        except OSError:
            await faults.passed(direction)  # news of a reset travels as bytes do
            raise
        await under_way.put((asyncio.get_running_loop().time() + faults.latency_s, data))


async def _deliver(
    under_way: _Chunks,
    sink: asyncio.StreamWriter,
    direction: Direction,
    back: Direction,
    faults: _Faults,
) -> None:
    """Write each chunk when it is due, and the end after the last."""
    data = None
    while data != b"":
        due, data = await under_way.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        await faults.passed(direction)
        try:
            sink.write(data) if data else sink.write_eof()
            await sink.drain()
        except OSError:
            await faults.passed(back)
            raise
