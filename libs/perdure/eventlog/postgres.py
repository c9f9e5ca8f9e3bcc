"""The event log on PostgreSQL. What an append does: sql/migrations/0001_event_log.sql."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog import migrations
from perdure.eventlog.chain import EMPTY, damaged, verify_chain, verify_end
from perdure.eventlog.connection import fetch, open_pool
from perdure.eventlog.group import GroupCommit, Result
from perdure.eventlog.listener import Listener
from perdure.eventlog.port import Head, StreamAppend, Verified
from perdure.eventlog.read_models import PostgresReadModels
from perdure.eventlog.request import Request, conflict, recorded, request_of, reused
from perdure.eventlog.statements import statement
from perdure.eventlog.stored import StoredEvent, decode

POLL_S = 1.0  # how late, at most, an event is seen whose notification got lost
VERIFY_PAGE_EVENTS = 1000
CLOSE_TIMEOUT_S = 5.0
NEWEST_VERSION = 2**63 - 1


class PostgresLog:
    """An EventLog on a pool of connections. Made by `open_postgres`."""

    def __init__(self, pool: Any, listener: Listener) -> None:
        self._pool = pool
        self._listener = listener
        self._group = GroupCommit(self._write)

    async def append(self, *appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        """Append, all or nothing. See the port.

        After LogUnavailable, or when cancelled, the events may be in the log or not: the same
        append again settles it.
        """
        return await self._group.submit(request_of(appends))

    async def _write(self, requests: Sequence[Request]) -> list[Result]:
        rows = await fetch(self._pool, statement("append_events"), *_columns(requests))
        outcomes = {row["request"]: row for row in rows}
        if any(row["outcome"] == "appended" for row in rows):
            self._listener.wake()
        return [
            _result(request, outcomes.get(number)) for number, request in enumerate(requests, 1)
        ]

    async def read_stream(
        self, stream: str, *, from_version: int = 1, to_version: int | None = None
    ) -> list[RecordedEvent]:
        """The events of one stream. See the port."""
        newest = NEWEST_VERSION if to_version is None else to_version
        rows = await fetch(self._pool, statement("read_stream"), stream, from_version, newest)
        return [decode(StoredEvent(*row)) for row in rows]

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """Events above position `after`. See the port."""
        rows = await fetch(self._pool, statement("read_all"), after, limit)
        return [decode(StoredEvent(*row)) for row in rows]

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
            rows = await fetch(self._pool, statement("read_all"), reached.position, limit)
            if not rows:
                raise damaged(reached.position + 1, "it is missing, and so is all that follows")
            reached = verify_chain((StoredEvent(*row) for row in rows), reached)
        return verify_end(reached, head)

    async def close(self) -> None:
        """Write what waits, then release all connections, those of the read models too."""
        try:
            await self._group.close()
        finally:
            await self._listener.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._pool.close()
            except TimeoutError:
                self._pool.terminate()


def _columns(requests: Sequence[Request]) -> list[list[Any]]:
    """The arguments of perdure.append_events: one list a column."""
    numbered = list(enumerate(requests, 1))
    appends = [(number, append) for number, request in numbered for append in request.appends]
    entries = [(number, entry) for number, request in numbered for entry in request.entries]
    return [
        [number for number, _ in appends],
        [append.stream for _, append in appends],
        [append.expected_version for _, append in appends],
        [number for number, _ in entries],
        [entry.stream for _, entry in entries],
        [entry.version for _, entry in entries],
        [entry.event.type for _, entry in entries],
        [entry.event.id for _, entry in entries],
        [entry.data for _, entry in entries],
        [entry.metadata for _, entry in entries],
    ]


def _result(request: Request, row: Any | None) -> Result:
    """What the database's outcome means to the one who asked. No outcome: there was nothing to
    append.
    """
    if row is None:
        if request.entries:
            return LogUnavailable("the event log's database gave no outcome for an append")
        return ()
    match row["outcome"]:
        case "appended" | "duplicate":
            return recorded(request, row["positions"], row["versions"], row["hashes"])
        case "conflict":
            return conflict(request, row["stream"], row["actual"])
        case "reused":
            return reused(row["event_id"])
        case other:
            raise AssertionError(f"perdure.append_events gave the unknown outcome {other!r}")


async def open_postgres(dsn: str) -> tuple[PostgresLog, PostgresReadModels]:
    """The log and the read models in the database `dsn`, brought to this version's schema first.

    Closing the log closes both. Raises LogUnavailable, InvalidSetting, SchemaMismatch.
    """
    await migrations.migrate(dsn)
    pool = await open_pool(dsn)
    return PostgresLog(pool, Listener(dsn)), PostgresReadModels(pool)
