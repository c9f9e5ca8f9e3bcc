"""Events for tests of the log and of what is built on it."""

import itertools
from typing import Any

from google.protobuf.message import Message

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.eventlog.port import StreamAppend

_numbers = itertools.count(1)


def event(data: Message | None = None, **fields: Any) -> NewEvent:
    """A new event with an id of its own, unless told otherwise."""
    values: dict[str, Any] = {
        "id": f"event-{next(_numbers)}",
        "data": data if data is not None else events_pb2.TaskCancelRequested(requested_by="ann"),
        "time": "2026-01-02T03:04:05.000006+00:00",
        "correlation_id": "task-1",
        "causation_id": "report-1",
        "source": "tests",
    }
    return NewEvent(**(values | fields))


def to(stream: str, expected_version: int, *events: NewEvent) -> StreamAppend:
    return StreamAppend(stream, expected_version, events)


def epoch(number: int, **fields: Any) -> NewEvent:
    return event(events_pb2.EpochCompleted(fence=1, epoch=number, epochs=9, box_loss=0.5), **fields)
