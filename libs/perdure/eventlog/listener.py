"""Wakes who waits for new events, on Postgres' NOTIFY. Notifications may get lost: waiters poll
besides.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from perdure.errors import LogUnavailable
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.connection import answering, connect, hang_up

CHANNEL = "perdure_log"
KEEPALIVE_S = 15.0  # finds out that a connection is dead though nobody said so

_logger = logging.getLogger(__name__)


class Listener:
    """Keeps one connection that LISTENs, and makes a new one whenever it is lost.

    From the first time on that somebody waits: whoever only appends is not told of its own appends.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._next = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def next_wake(self) -> asyncio.Event:
        """An event that is set when something may have been appended from now on."""
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="event log listener")
        return self._next

    def wake(self) -> None:
        """Wake all that wait now."""
        self._next.set()
        self._next = asyncio.Event()

    async def close(self) -> None:
        """End the connection."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self.wake()

    async def _run(self) -> None:
        delays = retry_delays()
        while True:
            try:
                with answering():
                    connection = await connect(self._dsn)
                    try:
                        lost = await self._listen(connection)
                        delays = retry_delays()
                        self.wake()  # what was appended while nobody listened
                        await _outlive(connection, lost)
                    finally:
                        await hang_up(connection)
                _logger.warning("lost the connection that listens for new events: connecting again")
            except LogUnavailable as error:
                _logger.warning(
                    "cannot listen for new events, polling meanwhile: %s", error.message
                )
            await asyncio.sleep(next(delays))

    async def _listen(self, connection: Any) -> asyncio.Event:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        await connection.add_listener(
            CHANNEL, lambda _connection, _pid, _channel, _payload: self.wake()
        )
        return lost


async def _outlive(connection: Any, lost: asyncio.Event) -> None:
    """Return when `connection` is lost; raise when it does not answer."""
    while not lost.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPALIVE_S):
                await lost.wait()
        if not lost.is_set():
            await connection.execute("SELECT 1")
