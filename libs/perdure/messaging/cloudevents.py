"""Messages on the wire: CloudEvents attributes as AMQP headers, the body in binary protobuf.

After the CloudEvents AMQP protocol binding 1.0, binary content mode.
"""

from collections.abc import Mapping
from typing import Final

from aio_pika.abc import AbstractIncomingMessage
from aiormq import spec

from perdure.messaging import rabbitmq_queues
from perdure.messaging.port import Death, Delivery, Message

CONTENT_TYPE: Final = "application/protobuf"
SPEC_VERSION: Final = "1.0"
PERSISTENT: Final = 2  # AMQP's delivery mode of what must survive a restart of the broker

MAX_COUNT_DIGITS: Final = 9  # no message was ever delivered a milliard times

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
    headers = dict(message.headers)
    headers |= {_CLOUD_EVENTS + name: value for name, value in attributes.items() if value}
    if death is not None:
        headers |= {_DEATH + name: str(value) for name, value in vars(death).items()}
    return spec.Basic.Properties(
        content_type=CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        headers={**headers},
        message_id=message.id,
        message_type=message.type,
    )


def delivery(incoming: AbstractIncomingMessage) -> Delivery:
    """What the broker delivered, as a handler gets it."""
    return Delivery(
        message=_message(incoming),
        routing_key=incoming.routing_key or "",
        attempt=_number(incoming.headers.get("x-delivery-count")) + 1,
        death=_own_death(incoming.headers) or _brokers_death(incoming.headers),
    )


def _message(incoming: AbstractIncomingMessage) -> Message:
    texts = {name: value for name, value in incoming.headers.items() if isinstance(value, str)}
    return Message(
        id=texts.get(_CLOUD_EVENTS + "id") or incoming.message_id or "",
        type=texts.get(_CLOUD_EVENTS + "type") or incoming.type or "",
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
