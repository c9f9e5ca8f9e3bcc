"""Data set versions as the registry shows them."""

from typing import Any

from perdure.contracts.codec import to_dict
from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2


def dataset_stream(version: str) -> str:
    """The stream of a data set version."""
    return f"dataset-{version}"


def rejected_stream(task_id: str) -> str:
    """The stream of an import that was refused: it has no version."""
    return f"dataset-rejected-{task_id}"


def key_of(event: RecordedEvent) -> str | None:
    """The version that `event` is about, or None."""
    return event.data.version if isinstance(event.data, events_pb2.DatasetImported) else None


def apply(body: dict[str, Any] | None, event: RecordedEvent) -> dict[str, Any]:
    """The version's entry after `event`: the fields of DatasetImported, and when and by which
    task.
    """
    assert isinstance(event.data, events_pb2.DatasetImported), event.type
    imported = {"imported_at": event.time, "task_id": event.correlation_id}
    return (body or {}) | to_dict(event.data) | imported
