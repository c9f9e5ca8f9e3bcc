"""Events to and from canonical JSON (in the log) and binary protobuf (on the wire)."""

from functools import cache
from typing import Any

import rfc8785
from google.protobuf import json_format
from google.protobuf.message import Message
from pydantic_core import from_json as json_values

from perdure.contracts import json_tables
from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import envelope_pb2, events_pb2
from perdure.errors import DamagedLog


def canonical_json(value: Any) -> str:
    """`value` as JSON text after RFC 8785: one value has one text, so that it can be hashed."""
    return rfc8785.dumps(value).decode()


def to_dict(message: Message) -> dict[str, Any]:
    """`message` as plain JSON values under its proto field names, fields at their default
    included.
    """
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def to_json(message: Message) -> str:
    """`message` as canonical JSON: `canonical_json(to_dict(message))`, in less time."""
    write = json_tables.writer(message.DESCRIPTOR)
    return canonical_json(to_dict(message)) if write is None else write(message)


def event_class(event_type: str) -> type[Message]:
    """The class of an event. Raises DamagedLog for a name that the contract does not know."""
    found = getattr(events_pb2, event_type, None)
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise DamagedLog(
            f"event type {event_type!r} is unknown to this version of Perdure: "
            "run a version at least as new as the one that wrote it"
        )
    return found


def from_json(event_type: str, text: str) -> Message:
    """The event that `to_json` wrote. Fields that this version does not know are passed over."""
    kind, repairs = _reading(event_type)
    try:
        # What the constructor takes is read in a fifth of the time that protobuf's reader needs.
        values = json_values(text)
        return kind(**(json_tables.repaired(repairs, values) if repairs else values))
    except (TypeError, ValueError):
        # A field that is not known, NaN, or no such event: protobuf's reader tells them apart.
        return json_format.Parse(text, kind(), ignore_unknown_fields=True)


@cache
def _reading(event_type: str) -> tuple[type[Message], json_tables.Repairs]:
    kind = event_class(event_type)
    return kind, json_tables.repairs(kind.DESCRIPTOR)


def to_envelope(event: RecordedEvent) -> envelope_pb2.Envelope:
    """`event` in its form for the wire."""
    return envelope_pb2.Envelope(
        id=event.id,
        stream=event.stream,
        version=event.version,
        position=event.position,
        type=event.type,
        time=event.time,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        source=event.source,
        traceparent=event.traceparent,
        data=event.data.SerializeToString(),
    )
