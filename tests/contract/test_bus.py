"""The contract of the bus, for each backend."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.errors import BusUnavailable
from perdure.messaging.local import LocalBus, matches
from perdure.messaging.port import TO_QUEUE, Delivery, Message, Queue
from perdure.messaging.topology import DEAD_LETTERS

DEADLINE_S = 5.0


@pytest.fixture(params=["local"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[LocalBus]:
    backend = LocalBus()
    yield backend
    await backend.close()


def message(number: int) -> Message:
    return Message(id=f"m{number}", type="Thing", body=str(number).encode())


class Inbox:
    """Takes deliveries in, and fails those it is told to."""

    def __init__(self, fail: dict[str, int] | None = None) -> None:
        self.deliveries: list[Delivery] = []
        self._fail = fail or {}
        self._arrived = asyncio.Condition()

    async def __call__(self, delivery: Delivery) -> None:
        async with self._arrived:
            self.deliveries.append(delivery)
            self._arrived.notify_all()
        if delivery.attempt <= self._fail.get(delivery.message.id, 0):
            raise RuntimeError("not this time")

    async def has(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.deliveries) >= number)

    @property
    def ids(self) -> list[str]:
        return [d.message.id for d in self.deliveries]


async def test_messages_come_in_order_to_each_bound_queue(bus: LocalBus) -> None:
    one, two = Inbox(), Inbox()
    await bus.consume(Queue("one", "x", ("a.*",)), one)
    await bus.consume(Queue("two", "x", ("#",)), two)
    for number in range(20):
        await bus.publish("x", "a.b" if number % 2 else "c", message(number))

    await one.has(10)
    await two.has(20)
    assert one.ids == [f"m{n}" for n in range(1, 20, 2)]
    assert two.ids == [f"m{n}" for n in range(20)]


async def test_a_declared_queue_holds_messages_until_there_is_a_consumer(bus: LocalBus) -> None:
    queue = Queue("later", "x", ("k",))
    await bus.declare(queue)
    await bus.publish("x", "k", message(1))
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(1)


async def test_a_failed_message_comes_again_with_its_attempt_counted(bus: LocalBus) -> None:
    inbox = Inbox(fail={"m1": 2})
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await bus.publish("x", "k", message(1))
    await bus.publish("x", "k", message(2))
    await inbox.has(4)
    assert [(d.message.id, d.attempt) for d in inbox.deliveries] == [
        ("m1", 1),
        ("m1", 2),
        ("m1", 3),
        ("m2", 1),
    ]


async def test_a_message_that_always_fails_goes_to_the_dead_letters(bus: LocalBus) -> None:
    inbox = Inbox(fail={"m1": 99})
    await bus.consume(Queue("q", "x", ("k",), delivery_limit=2), inbox)
    await bus.publish("x", "k", message(1))
    await bus.publish("x", "k", message(2))
    await inbox.has(3)
    assert inbox.ids == ["m1", "m1", "m2"]

    parked = Inbox()
    await bus.consume(DEAD_LETTERS, parked)
    await parked.has(1)
    assert parked.ids == ["m1"]
    death = parked.deliveries[0].death
    assert death is not None
    assert (death.queue, death.exchange, death.routing_key) == ("q", "x", "k")
    assert (death.reason, death.deliveries) == ("failed", 2)
    assert "not this time" in death.error

    await bus.publish(TO_QUEUE, death.queue, parked.deliveries[0].message)
    await inbox.has(4)
    assert inbox.ids[-1] == "m1"


async def test_cancel_waits_for_the_handler_that_runs(bus: LocalBus) -> None:
    entered, release, done = asyncio.Event(), asyncio.Event(), []

    async def slow(delivery: Delivery) -> None:
        entered.set()
        await release.wait()
        done.append(delivery.message.id)

    consumer = await bus.consume(Queue("q", "x", ("k",)), slow)
    await bus.publish("x", "k", message(1))
    await bus.publish("x", "k", message(2))
    await asyncio.wait_for(entered.wait(), DEADLINE_S)
    cancelling = asyncio.create_task(consumer.cancel())
    release.set()
    await asyncio.wait_for(cancelling, DEADLINE_S)
    assert done == ["m1"]

    inbox = Inbox()  # what was not handled is still there
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_consumers_of_one_queue_share_its_messages(bus: LocalBus) -> None:
    one, two = Inbox(), Inbox()

    async def slowly(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        await one(delivery)

    queue = Queue("q", "x", ("k",))
    await bus.consume(queue, slowly)
    await bus.consume(queue, two)
    for number in range(50):
        await bus.publish("x", "k", message(number))
    assert await bus.settled(DEADLINE_S)
    assert sorted(one.ids + two.ids) == sorted(f"m{n}" for n in range(50))
    assert one.ids
    assert two.ids


async def test_a_transient_queue_ends_with_its_consumer(bus: LocalBus) -> None:
    queue = Queue("live", "x", ("#",), transient=True)
    consumer = await bus.consume(queue, Inbox())
    await consumer.cancel()
    await bus.publish("x", "k", message(1))
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await bus.publish("x", "k", message(2))
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_a_closed_bus_refuses_messages(bus: LocalBus) -> None:
    await bus.close()
    with pytest.raises(BusUnavailable):
        await bus.publish("x", "k", message(1))


@pytest.mark.parametrize(
    ("pattern", "key", "taken"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("#", "a.b.c", True),
        ("#", "", True),
        ("a.#", "a", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.#.z", "a.b.c", False),
        ("*.b", "a.b", True),
    ],
)
def test_topic_patterns(pattern: str, key: str, taken: bool) -> None:
    assert matches(pattern, key) is taken
