"""Protobuf messages in and out of bus messages."""

from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from perdure.errors import Damaged
from perdure.messaging.port import Message

P = TypeVar("P", bound=Protobuf)


def wrap(
    message_id: str, body: Protobuf, *, source: str = "perdure", subject: str = "", time: str = ""
) -> Message:
    """`body` as a message for the bus: who sends it, what it is about, and since when it holds."""
    return Message(
        id=message_id,
        type=body.DESCRIPTOR.name,
        body=body.SerializeToString(),
        source=source,
        subject=subject,
        time=time,
    )


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
