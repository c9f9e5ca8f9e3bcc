"""One call of `append`: checked, encoded, and what can become of it. Shared by the backends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perdure.contracts.envelope import NewEvent, RecordedEvent
from perdure.errors import EventIdReused, VersionConflict
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.stored import encode

MAX_VERSION = 2**62
MAX_APPEND_EVENTS = 1000  # encoding them holds up the event loop: for about 10 ms at this many
MAX_NAME_CHARS = 500  # stream names and ids are in indexes, whose entries have 2,700 bytes at most


class Entry(NamedTuple):
    """An event that is to be appended, as the row that it will be but for position and hash."""

    event: NewEvent
    stream: str
    version: int
    type: str
    id: str
    data: str
    metadata: str


@dataclass(frozen=True, slots=True)
class Request:
    """What one call of `append` asks for: all of it, or nothing."""

    appends: tuple[StreamAppend, ...]
    entries: tuple[Entry, ...]
    streams: frozenset[str]
    ids: frozenset[str]


def request_of(appends: Sequence[StreamAppend]) -> Request:
    """The request for `appends`. Raises ValueError for one that makes no sense whatever the log
    holds.
    """
    count = sum(len(append.events) for append in appends)
    if count > MAX_APPEND_EVENTS:
        raise ValueError(
            f"{count} events in one append: {MAX_APPEND_EVENTS} are the most, append them in parts"
        )
    entries: list[Entry] = []
    for append in appends:
        _check_name("stream", append.stream)
        if not 0 <= append.expected_version <= MAX_VERSION:
            raise ValueError(
                f"stream {append.stream!r}: no stream is ever at version {append.expected_version}"
            )
        for version, event in enumerate(append.events, append.expected_version + 1):
            _check_name("event id", event.id)
            data, metadata = encode(event)
            entries.append(
                Entry(event, append.stream, version, event.type, event.id, data, metadata)
            )
    streams = frozenset(append.stream for append in appends)
    if len(streams) != len(appends):
        raise ValueError("a stream is named twice in one append: put its events together")
    ids = frozenset([entry.id for entry in entries])
    if len(ids) != len(entries):
        raise ValueError("an event id occurs twice in one append: every event has an id of its own")
    return Request(tuple(appends), tuple(entries), streams, ids)


def recorded(
    request: Request, positions: Sequence[int], versions: Sequence[int], hashes: Sequence[str]
) -> tuple[RecordedEvent, ...]:
    """The events of `request` as they stand in the log, given where they went, in order."""
    rows = zip(request.entries, positions, versions, hashes, strict=True)
    return tuple(
        [
            RecordedEvent(
                event_id,
                stream,
                version,
                position,
                event_type,
                event.data,
                event.time,
                event.correlation_id,
                event.causation_id,
                event.source,
                digest,
                event.traceparent,
            )
            for (event, stream, _, event_type, event_id, _, _), position, version, digest in rows
        ]
    )


def conflict(request: Request, stream: str, actual: int) -> VersionConflict:
    """The error for a stream that is not at the version that `request` expects."""
    expected = next(a.expected_version for a in request.appends if a.stream == stream)
    return VersionConflict(
        f"stream {stream!r} is at version {actual}, not at the expected {expected}: "
        "read it again and decide anew",
        stream=stream,
        expected_version=expected,
        actual_version=actual,
    )


def reused(event_id: str) -> EventIdReused:
    """The error for an id whose event is recorded otherwise than it is now given."""
    return EventIdReused(
        f"event id {event_id!r} does not agree with the log: it is there with another stream, "
        "type, data or metadata, or it is new among events that are there. Use new ids for new "
        "events, and repeat an append exactly as it was",
        event_id=event_id,
    )


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > MAX_NAME_CHARS or "\x00" in name or not name.isprintable():
        raise ValueError(
            f"{what} {name[:80]!r} must have 1 to {MAX_NAME_CHARS} printable characters"
        )
