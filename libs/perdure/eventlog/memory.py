"""The event log and the read models in memory: for tests and simulation, under the same contract as
Postgres.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog.chain import EMPTY, event_hash, verify_chain, verify_end
from perdure.eventlog.port import Document, Head, StreamAppend, Verified
from perdure.eventlog.request import Request, conflict, recorded, request_of, reused
from perdure.eventlog.stored import StoredEvent, decode


class MemoryLog:
    """An EventLog that lives as long as its process. `rows` are its events as stored."""

    def __init__(self) -> None:
        self.rows: list[StoredEvent] = []
        self._by_stream: dict[str, list[StoredEvent]] = {}
        self._by_id: dict[str, StoredEvent] = {}
        self._head = EMPTY
        self._appended = asyncio.Event()
        self._closed = False

    async def append(self, *appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        """Append, all or nothing. See the port."""
        self._check_open()
        request = request_of(appends)
        rows = self._repeated(request)
        if rows is None:
            for append in request.appends:
                actual = len(self._by_stream.get(append.stream, ()))
                if actual != append.expected_version:
                    raise conflict(request, append.stream, actual)
            rows = self._write(request)
        return recorded(
            request,
            [row.position for row in rows],
            [row.version for row in rows],
            [row.hash for row in rows],
        )

    def _repeated(self, request: Request) -> list[StoredEvent] | None:
        """The rows that `request` made when it was first made; None when all its ids are new."""
        if self._by_id.keys().isdisjoint(request.ids):
            return None
        rows = []
        for entry in request.entries:
            row = self._by_id.get(entry.event.id)
            content = (entry.stream, entry.event.type, entry.data, entry.metadata)
            if row is None or (row.stream, row.type, row.data, row.metadata) != content:
                raise reused(entry.event.id)
            rows.append(row)
        return rows

    def _write(self, request: Request) -> list[StoredEvent]:
        rows = []
        for entry in request.entries:
            unhashed = StoredEvent(
                position=self._head.position + 1,
                stream=entry.stream,
                version=entry.version,
                type=entry.event.type,
                event_id=entry.event.id,
                data=entry.data,
                metadata=entry.metadata,
                hash="",
            )
            self._head = Head(unhashed.position, event_hash(self._head.hash, unhashed))
            row = StoredEvent(
                unhashed.position,
                unhashed.stream,
                unhashed.version,
                unhashed.type,
                unhashed.event_id,
                unhashed.data,
                unhashed.metadata,
                self._head.hash,
            )
            self.rows.append(row)
            self._by_stream.setdefault(row.stream, []).append(row)
            self._by_id[row.event_id] = row
            rows.append(row)
        if rows:
            self._appended.set()
            self._appended = asyncio.Event()
        return rows

    async def read_stream(
        self, stream: str, *, from_version: int = 1, to_version: int | None = None
    ) -> list[RecordedEvent]:
        """The events of one stream. See the port."""
        self._check_open()
        rows = self._by_stream.get(stream, [])
        return [decode(row) for row in rows[max(from_version, 1) - 1 : to_version]]

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """Events above position `after`. See the port."""
        self._check_open()
        return [decode(row) for row in self.rows[after : after + limit]]

    async def head(self) -> Head:
        """Where the log ends."""
        self._check_open()
        return self._head

    async def wait(self, *, after: int, timeout_s: float) -> bool:
        """Wait for an event above `after`. See the port."""
        self._check_open()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._head.position <= after:
                    await self._appended.wait()
        return self._head.position > after

    async def verify(self) -> Verified:
        """Recompute the whole chain. See the port."""
        self._check_open()
        return verify_end(verify_chain(self.rows), self._head)

    async def has_leader(self, role: str) -> bool | None:
        """None: whoever has this log is alone with it. See the port."""
        self._check_open()
        return None

    async def close(self) -> None:
        """End the log."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("the event log is closed")


class MemoryReadModels:
    """ReadModels that live as long as their process. Bodies are kept as JSON text: nobody shares
    them.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._documents: dict[str, dict[str, tuple[int, str]]] = {}

    async def position(self, projection: str) -> int:
        """The checkpoint. See the port."""
        return self._positions.get(projection, 0)

    async def commit(
        self, projection: str, *, expected: int, position: int, documents: Sequence[Document] = ()
    ) -> bool:
        """Write documents and move the checkpoint, or neither. See the port."""
        if self._positions.get(projection, 0) != expected:
            return False
        rows = {
            document.key: (document.created, json.dumps(document.body)) for document in documents
        }
        self._documents.setdefault(projection, {}).update(rows)
        self._positions[projection] = position
        return True

    async def get(self, projection: str, key: str) -> Document | None:
        """One document. See the port."""
        row = self._documents.get(projection, {}).get(key)
        return None if row is None else Document(key, row[0], json.loads(row[1]))

    async def find(
        self,
        projection: str,
        *,
        where: Mapping[str, str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Document]:
        """Documents by their fields, newest first. See the port."""
        rows = self._documents.get(projection, {})
        every = [Document(key, created, json.loads(body)) for key, (created, body) in rows.items()]
        every.sort(key=lambda document: (-document.created, document.key))
        chosen = (
            document
            for document in every
            if (before is None or document.created < before)
            and _matches(document.body, where or {})
        )
        return [document for document, _ in zip(chosen, range(limit), strict=False)]

    async def reset(self, projection: str) -> None:
        """Drop a projection. See the port."""
        self._documents.pop(projection, None)
        self._positions.pop(projection, None)


def _matches(body: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    return all(key in body and body[key] == value for key, value in where.items())
