"""An event before and after it was recorded."""

import uuid
from dataclasses import dataclass

from google.protobuf.message import Message


@dataclass(frozen=True)
class NewEvent:
    """A fact that is to be recorded. Appending the same `id` again has no second effect."""

    id: str
    data: Message
    time: str  # RFC 3339, UTC
    correlation_id: str
    causation_id: str
    source: str
    traceparent: str = ""  # W3C trace context; empty: none

    @property
    def type(self) -> str:
        """The message's name, e.g. "TaskSubmitted"."""
        return self.data.DESCRIPTOR.name


@dataclass(frozen=True)
class RecordedEvent:
    """A fact as it stands in the log."""

    id: str
    stream: str
    version: int
    position: int
    type: str
    data: Message
    time: str
    correlation_id: str
    causation_id: str
    source: str
    hash: str  # 64 hex digits
    traceparent: str = ""  # W3C trace context; empty: none


def derived_id(cause: str, index: int) -> str:
    """The id of the `index`-th event that follows from `cause`.

    The same cause handled twice gives the same ids, so that the log takes the events once.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{cause}/{index}"))
