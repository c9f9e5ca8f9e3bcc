"""The event log as the rest of Perdure sees it. Backends: `postgres.py`, `memory.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.contracts.envelope import NewEvent, RecordedEvent

GENESIS_HASH = "0" * 64


@dataclass(frozen=True)
class StreamAppend:
    """Events for one stream, which must have `expected_version` events so far (0: must not
    exist).
    """

    stream: str
    expected_version: int
    events: tuple[NewEvent, ...]


@dataclass(frozen=True)
class Head:
    """The last position of the log (0: empty) and its hash, 64 hex digits."""

    position: int
    hash: str


@dataclass(frozen=True)
class Verified:
    """What a walk over the whole hash chain found: events 1..`events` complete, ending in
    `head`.
    """

    events: int
    head: Head


class EventLog(Protocol):
    """Append-only, gapless in position, hash-chained. Every method may raise LogUnavailable."""

    async def append(self, *appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        """Append to one or several streams, all or nothing, and give the events as recorded, in
        order. At most request.MAX_APPEND_EVENTS at a time.

        The same events again (same ids, same content) return what was recorded the first time,
        whatever `expected_version` says. Raises VersionConflict when a stream is not at its
        expected version, and EventIdReused when an id is in the log with other content; then
        nothing was appended.
        """

    async def read_stream(
        self, stream: str, *, from_version: int = 1, to_version: int | None = None
    ) -> list[RecordedEvent]:
        """The events of one stream, in order; `to_version` is included."""

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        """Up to `limit` events of all streams with a position above `after`, in order, without a
        hole.
        """

    async def head(self) -> Head:
        """Where the log ends."""

    async def wait(self, *, after: int, timeout_s: float) -> bool:
        """Wait until there is an event above position `after`; False when `timeout_s` passed
        without one.
        """

    async def verify(self) -> Verified:
        """Walk the whole log and recompute every hash.

        Raises DamagedLog with the first position that is wrong.
        """

    async def has_leader(self, role: str) -> bool | None:
        """Whether some process leads as `role` (leadership.py); None: this log elects nobody."""

    async def close(self) -> None:
        """Release connections. The log cannot be used afterwards."""


@dataclass(frozen=True)
class Document:
    """One row of a read model: `created` is the log position at which its key first appeared."""

    key: str
    created: int
    body: dict[str, Any]


class ReadModels(Protocol):
    """Projections: documents by key, and the position up to which each was built.

    Droppable at any time.
    """

    async def position(self, projection: str) -> int:
        """The position up to which `projection` has been built; 0 when it has not begun."""

    async def commit(
        self, projection: str, *, expected: int, position: int, documents: Sequence[Document] = ()
    ) -> bool:
        """Write `documents` (insert or replace by key) and move the checkpoint, in one transaction.

        False, and nothing written, when the checkpoint was not at `expected`: another projector
        moved it.
        """

    async def get(self, projection: str, key: str) -> Document | None:
        """One document, or None."""

    async def find(
        self,
        projection: str,
        *,
        where: Mapping[str, str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Document]:
        """Documents whose top-level fields equal `where`, newest `created` first, below `before`
        when given.
        """

    async def reset(self, projection: str) -> None:
        """Drop all documents and the checkpoint of `projection`."""
