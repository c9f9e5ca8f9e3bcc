"""Messages and events as the API's JSON."""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from perdure.contracts.codec import to_dict
from perdure.contracts.envelope import RecordedEvent


def to_plain(message: Message) -> dict[str, Any]:
    """`message` as JSON values with numbers as numbers: protobuf's JSON writes 64-bit integers as
    text.
    """
    return _numbers(message.DESCRIPTOR.fields, to_dict(message))


def _numbers(fields: Any, form: dict[str, Any]) -> dict[str, Any]:
    result = dict(form)
    for field in fields:
        if field.name not in form:
            continue
        value = form[field.name]
        if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
            result[field.name] = [int(v) for v in value] if isinstance(value, list) else int(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields
            result[field.name] = (
                [_numbers(inner, v) for v in value]
                if isinstance(value, list)
                else _numbers(inner, value)
            )
    return result


def event_json(event: RecordedEvent) -> dict[str, Any]:
    """A recorded event as the API shows it."""
    return {
        "id": event.id,
        "stream": event.stream,
        "version": event.version,
        "position": event.position,
        "type": event.type,
        "time": event.time,
        "correlation_id": event.correlation_id,
        "causation_id": event.causation_id,
        "source": event.source,
        "traceparent": event.traceparent,
        "hash": event.hash,
        "data": to_plain(event.data),
    }
