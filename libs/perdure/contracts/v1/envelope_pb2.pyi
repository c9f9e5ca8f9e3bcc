from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Envelope(_message.Message):
    __slots__ = ("id", "stream", "version", "position", "type", "time", "correlation_id", "causation_id", "data", "source", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSATION_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    stream: str
    version: int
    position: int
    type: str
    time: str
    correlation_id: str
    causation_id: str
    data: bytes
    source: str
    traceparent: str
    def __init__(self, id: _Optional[str] = ..., stream: _Optional[str] = ..., version: _Optional[int] = ..., position: _Optional[int] = ..., type: _Optional[str] = ..., time: _Optional[str] = ..., correlation_id: _Optional[str] = ..., causation_id: _Optional[str] = ..., data: _Optional[bytes] = ..., source: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...
