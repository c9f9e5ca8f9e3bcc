"""The tables write and read what protobuf's JSON form and RFC 8785 say, for every event."""

import json
import struct
from typing import Any

import pytest
import rfc8785
from google.protobuf import json_format, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from perdure.contracts import json_tables
from perdure.contracts.codec import event_class, from_json, to_json
from perdure.contracts.v1 import events_pb2

EVENTS = sorted(events_pb2.DESCRIPTOR.message_types_by_name)

# RFC 8785, appendix B: bits of a double, and its text.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


def by_protobuf(message: Message) -> str:
    values = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return rfc8785.dumps(values).decode()


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=20)
        case FieldDescriptor.CPPTYPE_STRING:
            return st.text(max_size=20)
        case FieldDescriptor.CPPTYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return st.one_of(st.floats(), st.integers(-(2**60), 2**60).map(float))
        case FieldDescriptor.CPPTYPE_UINT32:
            return st.integers(0, 2**32 - 1)
        case FieldDescriptor.CPPTYPE_INT32:
            return st.integers(-(2**31), 2**31 - 1)
        case FieldDescriptor.CPPTYPE_UINT64:
            return st.integers(0, 2**64 - 1)
        case FieldDescriptor.CPPTYPE_INT64:
            return st.integers(-(2**63), 2**63 - 1)
    raise AssertionError(f"no values are made up for {field.full_name}")


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is None:
        one = scalars(field)
    elif field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(values(key), values(value), max_size=4)
    else:
        one = messages(field.message_type)
    return st.lists(one, max_size=3) if field.is_repeated else one


def messages(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Messages with any of their fields set; of a oneof, the one that is set last stays."""
    kind: type[Message] = getattr(events_pb2, descriptor.name)
    fields = {field.name: values(field) for field in descriptor.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


@given(st.data())
@pytest.mark.parametrize("name", EVENTS)
def test_every_event_is_written_and_read_as_by_protobuf(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(events_pb2.DESCRIPTOR.message_types_by_name[name]))

    text = to_json(message)

    assert text == by_protobuf(message)
    read = from_json(name, text)
    expected = json_format.Parse(text, event_class(name)())
    # As bytes: NaN is not equal to itself.
    assert read.SerializeToString(deterministic=True) == expected.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_a_table(name: str) -> None:
    assert json_tables.writer(event_class(name).DESCRIPTOR) is not None


@pytest.mark.parametrize(
    "message",
    [
        events_pb2.CheckpointSaved(step=40, blob=events_pb2.Blob(key="k", size_bytes=2**40)),
        events_pb2.MessageDeadLettered(body=b"\x00\xff", headers={"a": "1"}),
        events_pb2.ModelEvaluated(map50=0.5, map50_by_class={"gull": 1.0}),
    ],
)
def test_what_the_tables_write_is_not_left_to_protobuf_to_read(
    message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = to_json(message)
    monkeypatch.delattr(json_format, "Parse")

    assert from_json(message.DESCRIPTOR.name, text) == message


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_rfc_8785_shows(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))

    written = to_json(events_pb2.HeartbeatTimedOut(silent_s=number))

    assert written == f'{{"fence":0,"silent_s":{text},"worker_id":""}}'


def test_names_are_in_the_order_of_their_utf_16_code_units() -> None:
    # RFC 8785, section 3.2.3: the emoji's surrogates come before U+FB33.
    order = ["\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33"]
    evaluated = events_pb2.ModelEvaluated(map50_by_class=dict.fromkeys(reversed(order), 0.5))

    assert list(json.loads(to_json(evaluated))["map50_by_class"]) == order


def test_strings_have_the_escapes_of_rfc_8785_and_no_others() -> None:
    text = '\x00\x08\t\n\x0b\x0c\r\x1f"\\/\x7f\u20ac\u2028'

    written = to_json(events_pb2.TaskCancelled(detail=text))

    escaped = r"\u0000\b\t\n\u000b\f\r\u001f\"\\/"
    assert written == f'{{"detail":"{escaped}\x7f\u20ac\u2028"}}'


def test_a_message_with_a_json_form_of_its_own_is_left_to_protobuf() -> None:
    assert to_json(timestamp_pb2.Timestamp(seconds=1)) == '"1970-01-01T00:00:01Z"'


def test_fields_of_a_newer_version_are_passed_over_wherever_they_are() -> None:
    text = '{"blob":{"key":"k","newer":1,"size_bytes":"7"},"newer":{},"step":"40"}'

    read = from_json("CheckpointSaved", text)

    assert read == events_pb2.CheckpointSaved(step=40, blob=events_pb2.Blob(key="k", size_bytes=7))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        '{"fence":1} x',
        '{"fence":-1}',
        '{"fence":"one"}',
        '{"step":"four"}',
        '{"step":[]}',
        '{"blob":7}',
        '{"blob":{"size_bytes":{}}}',
    ],
)
def test_what_is_no_such_event_is_refused(text: str) -> None:
    with pytest.raises(json_format.ParseError):
        from_json("CheckpointSaved", text)
