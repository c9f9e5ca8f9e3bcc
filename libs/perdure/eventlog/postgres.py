"""The event log on PostgreSQL. What an append does: sql/migrations/0003_faster_appends.sql."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from perdure.contracts.envelope import RecordedEvent
from perdure.eventlog import migrations
from perdure.eventlog.chain import EMPTY, damaged, verify_chain, verify_end
from perdure.eventlog.connection import fetch, open_pool
from perdure.eventlog.group import GroupCommit, Result
from perdure.eventlog.leadership import lock_key
from perdure.eventlog.listener import Listener
from perdure.eventlog.port import Head, StreamAppend, Verified
from perdure.eventlog.read_models import PostgresReadModels
from perdure.eventlog.request import Request, request_of
from perdure.eventlog.statements import statement
from perdure.eventlog.stored import StoredEvent, decode
from perdure.eventlog.writer import Writer
from perdure.telemetry.metrics import EVENTS_APPENDED

POLL_S = 1.0  # how late, at most, an event is seen whose notification got lost
VERIFY_PAGE_EVENTS = 1000
CLOSE_TIMEOUT_S = 5.0
NEWEST_VERSION = 2**63 - 1


class PostgresLog:
    """An EventLog on a pool of connections. Made by `open_postgres`."""

    def __init__(self, pool: Any, listener: Listener) -> None:
        self._pool = pool
        self._listener = listener
        self._writer = Writer(pool)
        self._group = GroupCommit(self._write)

    async def append(self, *appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        """Append, all or nothing. See the port.

        After LogUnavailable, or when cancelled, the events may be in the log or not: the same
        append again settles it.
        """
        events = await self._group.submit(request_of(appends))
        for event_type, number in Counter(event.type for event in events).items():
            EVENTS_APPENDED.add(number, {"type": event_type})
        return events

    async def _write(self, requests: Sequence[Request]) -> list[Result]:
        results = await self._writer.write(requests)
        if any(isinstance(result, tuple) and result for result in results):
            self._listener.wake()
        return results

    async def read_stream(
        self, stream: str, *, from_version: int = 1, to_version: int | None = None
    ) -> list[RecordedEvent]:
        """The events of one stream. See the port."""
        newest = NEWEST_VERSION if to_version is None else to_version
        rows = await fetch(self._pool, statement("read_stream"), stream, from_version, newest)
        return [decode(row) for row in rows]

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """Events above position `after`. See the port."""
        rows = await fetch(self._pool, statement("read_all"), after, limit)
        return [decode(row) for row in rows]

    async def read_stored(self, *, after: int, limit: int = 1000) -> list[StoredEvent]:
        """The same as `read_all`, as the rows are: for checks and exports."""
        rows = await fetch(self._pool, statement("read_all"), after, limit)
        return list(map(StoredEvent._make, rows))

    async def head(self) -> Head:
        """Where the log ends."""
        rows = await fetch(self._pool, statement("read_head"))
        if not rows:
            raise damaged(1, "the table log_head has lost its row")
        return Head(rows[0]["position"], rows[0]["hash"])

    async def wait(self, *, after: int, timeout_s: float) -> bool:
        """Wait for an event above `after`. See the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            wake = self._listener.next_wake()  # taken before looking: nothing falls in between
            if (await self.head()).position > after:
                return True
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, POLL_S)):
                    await wake.wait()

    async def verify(self) -> Verified:
        """Recompute the whole chain, a page at a time. See the port."""
        ends = (await fetch(self._pool, statement("read_ends")))[0]
        head, last = Head(ends["position"] or 0, ends["hash"] or ""), ends["last"]
        reached = EMPTY
        while reached.position < last:
            limit = min(VERIFY_PAGE_EVENTS, last - reached.position)
            rows = await self.read_stored(after=reached.position, limit=limit)
            if not rows:
                raise damaged(reached.position + 1, "it is missing, and so is all that follows")
            reached = verify_chain(rows, reached)
        return verify_end(reached, head)

    async def has_leader(self, role: str) -> bool:
        """Whether some process leads as `role`. See the port."""
        return bool(await fetch(self._pool, statement("read_lock_holder"), lock_key(role)))

    async def close(self) -> None:
        """Write what waits, then release all connections, those of the read models too."""
        try:
            await self._group.close()
            await self._writer.close()
        finally:
            await self._listener.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()


async def open_postgres(dsn: str) -> tuple[PostgresLog, PostgresReadModels]:
    """The log and the read models in the database `dsn`, brought to this version's schema first.

    Closing the log closes both. Raises LogUnavailable, InvalidSetting, SchemaMismatch.
    """
    await migrations.migrate(dsn)
    pool = await open_pool(dsn)
    return PostgresLog(pool, Listener(dsn)), PostgresReadModels(pool)
