"""What a message of the broker is about, and what it has left in the log."""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError, Message

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import envelope_pb2, events_pb2, work_pb2
from perdure.domain.identifiers import SAFE_ID
from perdure.domain.task import task_stream
from perdure.domain.worker import worker_stream

_WORK: Final[dict[str, type[Message]]] = {
    kind.DESCRIPTOR.name: kind
    for kind in (
        work_pb2.Assignment,
        work_pb2.CancelAttempt,
        work_pb2.Heartbeat,
        work_pb2.Report,
        work_pb2.ReportsRecorded,
    )
}
_EVENTS: Final = frozenset(events_pb2.DESCRIPTOR.message_types_by_name)
# Subjects that are streams, but not of tasks.
_OTHER_STREAMS: Final = ("dataset-", "model-", "worker-", "queue-", "dead-letter-")
_ENDS: Final = frozenset({"AttemptFailed", "AttemptSucceeded"})
_STARTS: Final = _ENDS | {"AttemptStarted"}


def decoded(message_type: str, body: bytes) -> Message | None:
    """The message in `body`: one of work.proto, or an event's envelope. None when it is neither, or
    cannot be read.
    """
    message: Message
    if message_type in _EVENTS:
        message = envelope_pb2.Envelope()
    elif message_type in _WORK:
        message = _WORK[message_type]()
    else:
        return None
    try:
        message.ParseFromString(body)
    except DecodeError:
        return None
    return message


def task_of(message: Message | None, subject: str) -> str:
    """The task that a message is about, from its body or else from its subject; "" for none."""
    found = ""
    match message:
        case (
            work_pb2.Assignment()
            | work_pb2.CancelAttempt()
            | work_pb2.Report()
            | work_pb2.ReportsRecorded()
        ):
            found = message.task_id
        case work_pb2.Heartbeat():
            tasks = {attempt.task_id for attempt in message.attempts}
            return tasks.pop() if len(tasks) == 1 else ""
        case envelope_pb2.Envelope():
            return _task_in(message.stream)
    return found if SAFE_ID.fullmatch(found) else _task_in(subject)


def _task_in(subject: str) -> str:
    """The task in a subject, which is a stream or a task's id."""
    if subject.startswith(_OTHER_STREAMS):
        return ""
    task_id = subject.removeprefix(task_stream(""))
    return task_id if SAFE_ID.fullmatch(task_id) else ""


def effect_stream(message: Message | None) -> str:
    """The stream in which the message's effect would stand; "" for one that leaves none."""
    match message:
        case work_pb2.Assignment() | work_pb2.CancelAttempt() | work_pb2.Report():
            stream = task_stream(message.task_id)
        case work_pb2.Heartbeat():
            stream = worker_stream(message.worker.worker_id)
        case envelope_pb2.Envelope():
            stream = message.stream
        case _:
            return ""
    return "" if "\0" in stream else stream  # no stream is called that, and databases refuse it


def effect(message: Message | None, events: Iterable[RecordedEvent]) -> list[RecordedEvent]:
    """Those of `events`, of the message's `effect_stream`, that are its effect.

    Of a report: what it caused, since the log is the inbox. Of an assignment or a cancel: that the
    attempt began, or ended. Of a heartbeat: that its worker is registered. Of an event: itself.
    """
    match message:
        case work_pb2.Report():
            return [event for event in events if event.causation_id == message.id]
        case work_pb2.Assignment():
            return [event for event in events if _of_fence(event, message.fence, _STARTS)]
        case work_pb2.CancelAttempt():
            return [event for event in events if _of_fence(event, message.fence, _ENDS)]
        case work_pb2.Heartbeat():
            incarnation = message.worker.incarnation
            return [event for event in events if _registers(event, incarnation)]
        case envelope_pb2.Envelope():
            return [event for event in events if event.id == message.id]
        case _:
            return []


def _of_fence(event: RecordedEvent, fence: int, types: frozenset[str]) -> bool:
    return event.type in types and getattr(event.data, "fence", None) == fence


def _registers(event: RecordedEvent, incarnation: str) -> bool:
    data = event.data
    return isinstance(data, events_pb2.WorkerRegistered) and data.incarnation == incarnation
