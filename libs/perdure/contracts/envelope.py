"""An event before and after it was recorded."""

import uuid
from dataclasses import dataclass
from typing import NamedTuple

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


class RecordedEvent(NamedTuple):
    """A fact as it stands in the log. A tuple: a replay makes as many of them as there are events,
    and a frozen dataclass would take it seven times as long.
    """

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
