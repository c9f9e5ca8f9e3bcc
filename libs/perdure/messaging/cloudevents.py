"""Messages on the wire: CloudEvents attributes as AMQP headers, the body in binary protobuf.

After the CloudEvents AMQP protocol binding 1.0, binary content mode.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from aiormq import spec
from aiormq.abc import DeliveredMessage

from perdure.messaging import rabbitmq_queues
from perdure.messaging.port import Death, Delivery, Message

CONTENT_TYPE: Final = "application/protobuf"
SPEC_VERSION: Final = "1.0"
PERSISTENT: Final = 2  # AMQP's delivery mode of what must survive a restart of the broker

MAX_COUNT_DIGITS: Final = 9  # no message was ever delivered a milliard times

# AMQP takes no more in a property or in the name of a header.
MAX_SHORT_BYTES: Final = 255
# All headers travel in one frame of at most 131,072 bytes. A dead letter came with as much as its
# publisher wanted, and its death comes on top. The log keeps 4,000 characters of each text.
MAX_HEADER_BYTES: Final = 16_384
MAX_HEADERS_BYTES: Final = 98_304
_ENTRY_BYTES: Final = 6  # a header's two lengths and the letter of its type

_CLOUD_EVENTS: Final = "cloudEvents_"
_DEATH: Final = "perdure-death-"
_BROKERS_OWN: Final = "x-"  # what the broker adds: how often it delivered a message, how it died


def properties(message: Message, death: Death | None = None) -> spec.Basic.Properties:
    """The AMQP properties under which `message` travels; as a dead letter, with its `death`."""
    attributes = {
        "id": message.id,
        "type": message.type,
        "source": message.source,
        "subject": message.subject,
        "time": message.time,
        "specversion": SPEC_VERSION,
    }
    headers = {_CLOUD_EVENTS + name: value for name, value in attributes.items() if value}
    if death is not None:
        headers |= {_DEATH + name: str(value) for name, value in vars(death).items()}
    return spec.Basic.Properties(
        content_type=CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        headers={**_fitting({**message.headers, **headers}, first=headers)},
        message_id=_cut(message.id, MAX_SHORT_BYTES),
        message_type=_cut(message.type, MAX_SHORT_BYTES),
    )


def _fitting(headers: Mapping[str, str], first: Iterable[str]) -> dict[str, str]:
    """What of `headers` fits into a frame; those named in `first` go before others."""
    left, found = MAX_HEADERS_BYTES, {}
    for name in dict.fromkeys([*first, *headers]):
        value = _cut(headers[name], MAX_HEADER_BYTES)
        name_bytes = len(name.encode(errors="replace"))
        size = _ENTRY_BYTES + name_bytes + len(value.encode())
        if name_bytes <= MAX_SHORT_BYTES and size <= left:
            left -= size
            found[name] = value
    return found


def _cut(text: str, most_bytes: int) -> str:
    """As much of `text` as fits; what UTF-8 cannot hold becomes a question mark."""
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


def delivery(incoming: DeliveredMessage) -> Delivery:
    """What the broker delivered, as a handler gets it."""
    headers = incoming.header.properties.headers or {}
    return Delivery(
        message=_message(incoming, headers),
        routing_key=incoming.routing_key or "",
        attempt=_number(headers.get("x-delivery-count")) + 1,
        death=_own_death(headers) or _brokers_death(headers),
    )


def _message(incoming: DeliveredMessage, headers: Mapping[str, object]) -> Message:
    properties = incoming.header.properties
    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    return Message(
        id=texts.get(_CLOUD_EVENTS + "id") or properties.message_id or "",
        type=texts.get(_CLOUD_EVENTS + "type") or properties.message_type or "",
        body=incoming.body,
        headers={
            name: value
            for name, value in texts.items()
            if not name.startswith((_CLOUD_EVENTS, _DEATH, _BROKERS_OWN))
        },
        source=texts.get(_CLOUD_EVENTS + "source", ""),
        subject=texts.get(_CLOUD_EVENTS + "subject", ""),
        time=texts.get(_CLOUD_EVENTS + "time", ""),
    )


def _own_death(headers: Mapping[str, object]) -> Death | None:
    """The death of a message that one of our consumers gave up."""
    if _DEATH + "queue" not in headers:
        return None

    def told(name: str) -> str:
        return str(headers.get(_DEATH + name, ""))

    return Death(
        queue=told("queue"),
        exchange=told("exchange"),
        routing_key=told("routing_key"),
        reason=told("reason"),
        error=told("error"),
        deliveries=_number(told("deliveries")),
    )


def _brokers_death(headers: Mapping[str, object]) -> Death | None:
    """The death of a message that the broker gave up; the newest of its deaths comes first."""
    deaths = headers.get("x-death")
    if not isinstance(deaths, list) or not deaths:
        return None
    newest = deaths[0] if isinstance(deaths[0], dict) else {}
    keys = newest.get("routing-keys")
    # Not every version says how often it tried, but all try as often as we asked for.
    said = _number(headers.get("x-delivery-count"))
    return Death(
        queue=_text(newest.get("queue")),
        exchange=_text(newest.get("exchange")),
        routing_key=_text(keys[0]) if isinstance(keys, list) and keys else "",
        reason=_text(newest.get("reason")),
        error="",
        deliveries=said or rabbitmq_queues.BROKER_DELIVERY_LIMIT + 1,
    )


def _number(value: object) -> int:
    """`value` as a count: 0 when it is none. Headers come from whoever may publish."""
    text = str(value) if isinstance(value, int | str) else ""
    return int(text) if len(text) <= MAX_COUNT_DIGITS and text.isdecimal() else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
