"""Messages with bytes that AMQP does not allow, or that no library can hold: each fails alone.

A broker passes them on as they are. RabbitMQ 3.10 takes every one of these.
"""

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from perdure.messaging import open_bus
from perdure.messaging.port import Bus, Delivery, Queue
from perdure.messaging.topology import DEAD_LETTERS
from tests.builders.amqp import long, raw_publisher, short, table
from tests.builders.bus import DEADLINE_S, Inbox, message

QUEUE = Queue("q", "x", ("#",), delivery_limit=2)
BAD = b"\xff\xfe\x80"
READ_AS = "\ufffd" * 3
LEVELS = 20_000  # of tables in tables: they fit into a frame
YEAR_10000 = struct.pack(">Q", 253_402_300_800)


def nested(kind: bytes) -> bytes:
    """A value with tables (F) or arrays (A) in each other."""
    value = b"V"
    for _ in range(LEVELS):
        inside = short(b"") + value if kind == b"F" else value
        value = kind + struct.pack(">I", len(inside)) + inside
    return value


# Properties as they go over the wire.
ODD: dict[str, dict[str, bytes]] = {
    "content type": {"content_type": short(BAD)},
    "content encoding": {"content_encoding": short(BAD)},
    "correlation id": {"correlation_id": short(BAD)},
    "reply to": {"reply_to": short(BAD)},
    "message id": {"message_id": short(BAD)},
    "longest message id": {"message_id": short(b"\xff" * 255)},
    "type": {"message_type": short(BAD)},
    "app id": {"app_id": short(BAD)},
    "header name": {"headers": table((BAD, long(b"text")))},
    "header value": {"headers": table((b"name", long(BAD)))},
    "nested name": {"headers": table((b"name", b"F" + table((BAD, long(b"text")))))},
    "deep tables": {"headers": table((b"name", nested(b"F")))},
    "deep arrays": {"headers": table((b"name", nested(b"A")))},
    "id as number": {"headers": table((b"cloudEvents_id", b"I" + struct.pack(">i", 7)))},
    "id too long": {"headers": table((b"cloudEvents_id", long(b"i" * 9000)))},
    "time in a header": {"headers": table((b"name", b"T" + YEAR_10000))},
    "time": {"timestamp": YEAR_10000},
    "largest time": {"timestamp": b"\xff" * 8},
    "one huge header": {"headers": table((b"name", long(b"h" * 130_900)))},
    "many headers": {
        "headers": table(*((f"name-{n}".encode(), long(b"h" * 10)) for n in range(5200)))
    },
    "deaths": {"headers": table((b"x-death", b"A" + struct.pack(">I", 1) + b"V"))},
}


@pytest.fixture
async def bus(vhost: str) -> AsyncIterator[Bus]:
    opened = await open_bus(vhost)
    yield opened
    await opened.close()


class Refusing(Inbox):
    """Takes only what the tests' builder makes."""

    async def __call__(self, delivery: Delivery) -> None:
        await super().__call__(delivery)
        if delivery.message.type != "Thing":
            raise ValueError("nobody knows this type")


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_message_dies_alone_and_is_handed_to_the_keeper(
    bus: Bus, vhost: str, odd: str
) -> None:
    handled, dead = Refusing(), Inbox()
    await bus.declare(QUEUE)
    async with raw_publisher(vhost) as publisher:
        await publisher.publish("x", b"k", b"odd", **ODD[odd])
    await bus.publish("x", "k", message(1))
    await bus.consume(QUEUE, handled)
    await handled.has(3)
    await bus.consume(DEAD_LETTERS, dead)
    await dead.has(1)
    assert [one.message.body for one in handled.deliveries] == [b"odd", b"odd", b"1"]
    (letter,) = dead.deliveries
    assert letter.message.body == b"odd"
    assert letter.death is not None
    assert (letter.death.queue, letter.death.exchange) == ("q", "x")
    assert (letter.death.reason, letter.death.deliveries) == ("failed", 2)


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_message_that_the_broker_gave_up_is_handed_to_the_keeper(
    bus: Bus, vhost: str, odd: str
) -> None:
    """As the deaths of a consumer end it: the broker itself moves it, as it was published."""
    dead = Inbox()
    async with raw_publisher(vhost) as publisher:
        await publisher.publish("perdure.dead-letters", b"q", b"odd", **ODD[odd])
    await bus.publish("perdure.dead-letters", "q", message(1))
    await bus.consume(DEAD_LETTERS, dead)
    await dead.has(2)
    assert [one.message.body for one in dead.deliveries] == [b"odd", b"1"]


async def test_what_can_be_read_of_an_odd_message_is_read(bus: Bus, vhost: str) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    headers = table(
        (b"cloudEvents_source", long(b"somebody")),
        (BAD, long(b"text")),
        (b"name", long(BAD)),
        (b"since", b"T" + YEAR_10000),
        (b"note", long(b"behind it")),
    )
    async with raw_publisher(vhost) as publisher:
        await publisher.publish(
            "x", b"key-" + BAD, b"odd", message_id=short(b"m-" + BAD), headers=headers
        )
    await inbox.has(1)
    (got,) = inbox.deliveries
    assert got.routing_key == "key-" + READ_AS
    assert (got.message.id, got.message.source) == ("m-" + READ_AS, "somebody")
    assert got.message.headers == {READ_AS: "text", "note": "behind it"}


async def test_a_consumer_keeps_its_connection_when_an_odd_message_comes(
    bus: Bus, vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    async with raw_publisher(vhost) as publisher, asyncio.timeout(DEADLINE_S):
        for odd, properties in ODD.items():
            await publisher.publish("x", BAD, odd.encode(), **properties)
    await inbox.has(len(ODD))
    assert [one.message.body.decode() for one in inbox.deliveries] == list(ODD)
    assert "lost the broker" not in caplog.text
