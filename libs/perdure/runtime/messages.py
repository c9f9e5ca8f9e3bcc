"""Protobuf messages in and out of bus messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf
from opentelemetry.trace import SpanKind

from perdure.errors import Damaged
from perdure.messaging.port import Delivery, Message
from perdure.telemetry import tracing

P = TypeVar("P", bound=Protobuf)


def wrap(
    message_id: str,
    body: Protobuf,
    *,
    source: str = "perdure",
    subject: str = "",
    time: str = "",
    traceparent: str | None = None,
) -> Message:
    """`body` as a message for the bus: who sends it, what it is about, and since when it holds.

    It carries `traceparent`, by default that of the span that runs.
    """
    trace = tracing.traceparent() if traceparent is None else traceparent
    return Message(
        headers={tracing.HEADER: trace} if trace else {},
        id=message_id,
        type=body.DESCRIPTOR.name,
        body=body.SerializeToString(),
        source=source,
        subject=subject,
        time=time,
    )


@contextmanager
def handling(delivery: Delivery) -> Iterator[None]:
    """The span of a message's handler, within the trace of whoever sent it.

    A message outside any trace gets none: heartbeats would fill the traces.
    """
    message = delivery.message
    parent = message.headers.get(tracing.HEADER, "")
    if not parent:
        yield
        return
    with tracing.span(f"handle {message.type}", parent=parent, kind=SpanKind.CONSUMER):
        yield


def unwrap(message: Message, kind: type[P]) -> P:
    """The body of `message`, which must be a `kind`. Raises Damaged when it is not."""
    body = kind()
    if message.type != body.DESCRIPTOR.name:
        raise Damaged(f"a message of type {message.type!r} came where {kind.__name__} belongs")
    try:
        body.ParseFromString(message.body)
    except DecodeError as error:
        raise Damaged(f"message {message.id} of type {message.type} cannot be read") from error
    return body
