"""Writes groups of append requests: one call of perdure.append_events each, one round trip."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from perdure.eventlog.connection import ACQUIRE_TIMEOUT_S, answering, fetch_over
from perdure.eventlog.group import Result
from perdure.eventlog.request import Request, conflict, recorded, reused
from perdure.eventlog.statements import statement


class Writer:
    """Keeps one connection of the pool for appends, from the first one on: taking it anew would
    cost each append a third of its time in this process.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._connection: Any = None

    async def write(self, requests: Sequence[Request]) -> list[Result]:
        """What became of each request. Raises LogUnavailable, or asyncpg.PostgresError when the
        database refuses the whole call.
        """
        with answering():
            connection = await self._open_connection()
            try:
                rows = await fetch_over(connection, statement("append_events"), *_columns(requests))
            except BaseException:
                await self.close()  # the pool looks whether it can be used again
                raise
        return _results(requests, rows)

    async def close(self) -> None:
        """Give the connection back to the pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)

    async def _open_connection(self) -> Any:
        if self._connection is not None and not _usable(self._connection):
            self._connection = None
        if self._connection is None:
            self._connection = await self._pool.acquire(timeout=ACQUIRE_TIMEOUT_S)
        return self._connection


def _usable(connection: Any) -> bool:
    """Whether a connection that lay idle can be used; if not, the pool has it back already."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


def _columns(requests: Sequence[Request]) -> list[Any]:
    """The arguments of perdure.append_events: a list of numbers or lines of text a column."""
    appends, entries = [], []
    for number, request in enumerate(requests, 1):
        appends += [(number, append.stream, append.expected_version) for append in request.appends]
        entries += [(number, *entry[1:]) for entry in request.entries]
    numbers, streams, expected = _transposed(appends, 3)
    of_requests, of_streams, versions, *texts = _transposed(entries, 7)
    return [
        numbers,
        "\n".join(streams),
        expected,
        of_requests,
        "\n".join(of_streams),
        versions,
        *map("\n".join, texts),
    ]


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _results(requests: Sequence[Request], rows: Sequence[Any]) -> list[Result]:
    """What the rows of perdure.append_events mean to those who asked."""
    placed, *others = rows
    refusals = {row["request"]: row for row in others}
    results: list[Result] = []
    start = 0
    for number, request in enumerate(requests, 1):
        end = start + len(request.entries)
        if number in refusals:
            results.append(_refusal(request, refusals[number]))
        else:
            versions = [entry.version for entry in request.entries]
            positions, hashes = placed["positions"][start:end], placed["hashes"][start:end]
            results.append(recorded(request, positions, versions, hashes))
        start = end
    return results


def _refusal(request: Request, row: Any) -> Result:
    match row["outcome"]:
        case "duplicate":
            return recorded(request, row["positions"], row["versions"], row["hashes"])
        case "conflict":
            return conflict(request, row["stream"], row["actual"])
        case "reused":
            return reused(row["event_id"])
        case other:
            raise AssertionError(f"perdure.append_events gave the unknown outcome {other!r}")
