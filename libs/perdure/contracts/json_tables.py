"""Tables, one for each message class, by which messages become canonical JSON and come back.

What they do is what protobuf's JSON form and rfc8785 do, in a tenth of the time: an append spends
it on the event loop. A table exists for a class whose fields they know; codec.py has the other way.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from json.encoder import encode_basestring
from operator import attrgetter
from typing import Any

import rfc8785
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Text = Callable[[Any], str]
Repair = Callable[[Any], Any]
Repairs = tuple[tuple[str, Repair], ...]

_NOT_FINITE = {"inf": '"Infinity"', "-inf": '"-Infinity"', "nan": '"NaN"'}
_INT64 = (
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
)
_INT32 = (
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_UINT32,
    FieldDescriptor.TYPE_SINT32,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
)


@cache
def writer(descriptor: Descriptor) -> Callable[[Message], str] | None:
    """What gives a message of this class as canonical JSON. None: the class has a field of a kind
    that is not known here.

    No message of the contract contains itself.
    """
    if descriptor.full_name.startswith("google.protobuf."):
        return None  # some of them have a JSON form of their own
    fields = sorted(descriptor.fields, key=lambda field: field.name)
    texts: list[Text] = []
    for field in fields:
        text = _field_text(field)
        if text is None:
            return None
        texts.append(text)
    values_of = _getter([field.name for field in fields])
    # A comma after each member: whether one follows depends on which fields are set.
    template = "".join("%s" if field.has_presence else f'"{field.name}":%s,' for field in fields)
    always = [
        _nothing if field.has_presence else text for field, text in zip(fields, texts, strict=True)
    ]
    if_set = [
        (index, field.name, f'"{field.name}":', texts[index])
        for index, field in enumerate(fields)
        if field.has_presence
    ]

    def write(message: Message) -> str:
        values = values_of(message)
        members = [text(value) for text, value in zip(always, values, strict=True)]
        for index, name, label, text in if_set:
            if message.HasField(name):
                members[index] = f"{label}{text(values[index])},"
        return "{" + (template % tuple(members))[:-1] + "}"

    return write


def _getter(names: Sequence[str]) -> Callable[[Message], tuple[Any, ...]]:
    """What gives the values of these fields of a message, in one call."""
    match names:
        case []:
            return lambda _message: ()
        case [name]:
            return lambda message: (getattr(message, name),)
        case _:
            return attrgetter(*names)


def _nothing(_value: Any) -> str:
    return ""


def _field_text(field: FieldDescriptor) -> Text | None:
    """What gives the value of `field` as JSON."""
    entry = _map_entry(field)
    if entry is not None:
        text = _value_text(entry.fields_by_name["value"])
        named = entry.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING
        return partial(_map, text) if named and text is not None else None
    text = _value_text(field)
    return partial(_list, text) if field.is_repeated and text is not None else text


def _value_text(field: FieldDescriptor) -> Text | None:
    """What gives one value of `field` as JSON."""
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return encode_basestring  # the escapes that RFC 8785 asks for, and no others
        case FieldDescriptor.TYPE_DOUBLE:
            return _number
        case FieldDescriptor.TYPE_BOOL:
            return lambda value: "true" if value else "false"
        case FieldDescriptor.TYPE_BYTES:
            return lambda value: f'"{b64encode(value).decode()}"'
        case FieldDescriptor.TYPE_MESSAGE:
            return writer(_message_type(field))
        case kind if kind in _INT32:
            return str
        case kind if kind in _INT64:
            return lambda value: f'"{value}"'
    return None


def _number(value: float) -> str:
    """A double. Python, too, writes the shortest digits that read back as the same number; the
    exponent is where it differs from RFC 8785.
    """
    text = repr(value)
    if "." not in text or "e" in text:
        return _NOT_FINITE.get(text) or rfc8785.dumps(value).decode()
    if text[-2:] != ".0":
        return text
    return text[:-2] if value else "0"  # also for -0.0


def _list(text: Text, values: Iterable[Any]) -> str:
    return "[" + ",".join(map(text, values)) + "]"


def _map(text: Text, entries: Mapping[str, Any]) -> str:
    names = sorted(entries, key=_utf16)
    members = [f"{encode_basestring(name)}:{text(entries[name])}" for name in names]
    return "{" + ",".join(members) + "}"


def _utf16(name: str) -> bytes:
    """RFC 8785 puts names in the order of their UTF-16 code units."""
    return name.encode("utf-16-be")


@cache
def repairs(descriptor: Descriptor) -> Repairs:
    """Of the fields of this class, those whose JSON value is not what its constructor takes, with
    what makes it so.
    """
    every = ((field.name, _field_repair(field)) for field in descriptor.fields)
    return tuple((name, repair) for name, repair in every if repair is not None)


def _field_repair(field: FieldDescriptor) -> Repair | None:
    entry = _map_entry(field)
    repair = _value_repair(field if entry is None else entry.fields_by_name["value"])
    if repair is None:
        return None
    if entry is not None:
        return lambda entries: {name: repair(value) for name, value in dict(entries).items()}
    return (lambda values: list(map(repair, values))) if field.is_repeated else repair


def _value_repair(field: FieldDescriptor) -> Repair | None:
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            return b64decode
        case FieldDescriptor.TYPE_MESSAGE:
            inner = repairs(_message_type(field))
            return partial(repaired, inner) if inner else None
        case kind if kind in _INT64:
            return int
    return None


def repaired(wanted: Repairs, values: dict[str, Any]) -> dict[str, Any]:
    """`values`, changed in place, as the constructor of their message takes them.

    Raises TypeError or ValueError for values that are not of their fields' kinds.
    """
    for name, repair in wanted:
        if name in values:
            values[name] = repair(values[name])
    return values


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The class of the entries of a map; None: `field` is none."""
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return None
    entry = _message_type(field)
    return entry if entry.GetOptions().map_entry else None


def _message_type(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None, field.full_name
    return field.message_type
