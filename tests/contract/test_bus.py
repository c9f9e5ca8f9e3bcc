"""The contract of the bus, for each backend."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from perdure.errors import BusUnavailable, NotFound, StoreUnavailable
from perdure.messaging import handling, open_bus
from perdure.messaging.local import LocalBus, matches
from perdure.messaging.port import TO_QUEUE, Bus, Delivery, Message, Queue, QueueView
from perdure.messaging.topology import DEAD_LETTERS
from tests.builders.bus import DEADLINE_S, Inbox, message, until


@pytest.fixture(params=["local", "rabbitmq"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    if request.param == "local":
        backend: Bus = LocalBus()
    else:
        backend = await open_bus(request.getfixturevalue("vhost"))
    yield backend
    await backend.close()


async def test_messages_come_in_order_to_each_bound_queue(bus: Bus) -> None:
    one, two = Inbox(), Inbox()
    await bus.consume(Queue("one", "x", ("a.*",)), one)
    await bus.consume(Queue("two", "x", ("#",)), two)
    for number in range(20):
        await bus.publish("x", "a.b" if number % 2 else "c", message(number))

    await one.has(10)
    await two.has(20)
    assert one.ids == [f"m{n}" for n in range(1, 20, 2)]
    assert two.ids == [f"m{n}" for n in range(20)]


async def test_messages_published_together_come_in_order(bus: Bus) -> None:
    inbox = Inbox()
    await bus.consume(Queue("q", "x", ("a", "b")), inbox)
    keys = ("a", "nobody's", "b")
    await bus.publish_all("x", [(keys[n % 3], message(n)) for n in range(1200)])
    await inbox.has(800)
    assert inbox.ids == [f"m{n}" for n in range(1200) if n % 3 != 1]


async def test_a_message_arrives_as_it_was_sent(bus: Bus) -> None:
    sent = Message(
        id="6f0c",
        type="TaskSubmitted",
        body=b"\x00\xff binary",
        headers={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        source="gateway",
        subject="task-vögel",
        time="2026-01-02T03:04:05Z",
    )
    inbox = Inbox()
    await bus.consume(Queue("q", "x", ("#",)), inbox)
    await bus.publish("x", "TaskSubmitted.task-vögel", sent)
    await inbox.has(1)
    assert inbox.deliveries == [Delivery(sent, "TaskSubmitted.task-vögel", attempt=1)]


async def test_a_message_that_is_sent_twice_comes_twice(bus: Bus) -> None:
    inbox = Inbox()
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await bus.publish_all("x", [("k", message(1)), ("k", message(1))])
    await inbox.has(2)
    assert inbox.ids == ["m1", "m1"]


async def test_a_declared_queue_holds_messages_until_there_is_a_consumer(bus: Bus) -> None:
    queue = Queue("later", "x", ("k",))
    await bus.declare(queue)
    await bus.publish("x", "k", message(1))
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(1)


async def test_a_message_for_no_queue_is_gone(bus: Bus) -> None:
    await bus.publish("x", "k", message(1))
    inbox = Inbox()
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await bus.publish("x", "k", message(2))
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_a_failed_message_comes_again_with_its_attempt_counted(bus: Bus) -> None:
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


async def test_a_message_that_always_fails_goes_to_the_dead_letters(bus: Bus) -> None:
    inbox = Inbox(fail={"m1": 99})
    await bus.consume(Queue("q", "x", ("k",), delivery_limit=2), inbox)
    await bus.publish("x", "k", message(1))
    await bus.publish("x", "k", message(2))
    await inbox.has(3)
    assert inbox.ids == ["m1", "m1", "m2"]

    parked = Inbox()
    await bus.consume(DEAD_LETTERS, parked)
    await parked.has(1)
    assert parked.deliveries[0].message == message(1)
    assert (parked.deliveries[0].routing_key, parked.deliveries[0].attempt) == ("q", 1)
    death = parked.deliveries[0].death
    assert death is not None
    assert (death.queue, death.exchange, death.routing_key) == ("q", "x", "k")
    assert (death.reason, death.deliveries) == ("failed", 2)
    assert death.error == "RuntimeError: not this time"


async def test_a_dead_letter_can_be_put_back_to_its_queue(bus: Bus) -> None:
    inbox, other, parked = Inbox(fail={"m1": 1}), Inbox(), Inbox()
    await bus.consume(Queue("q", "x", ("k",), delivery_limit=1), inbox)
    await bus.consume(Queue("other", "x", ("k",)), other)
    await bus.publish("x", "k", message(1))
    await bus.consume(DEAD_LETTERS, parked)
    await parked.has(1)

    inbox._fail.clear()
    await bus.publish(TO_QUEUE, "q", parked.deliveries[0].message)
    await inbox.has(2)
    again = inbox.deliveries[1]
    assert (again.message, again.attempt, again.death) == (message(1), 1, None)
    assert other.ids == ["m1"]


async def test_a_message_to_a_queue_that_is_not_there_is_refused(bus: Bus) -> None:
    with pytest.raises(NotFound, match="no queue gone"):
        await bus.publish(TO_QUEUE, "gone", message(1))


async def test_what_a_database_cannot_hold_is_kept_out_of_a_death(bus: Bus) -> None:
    async def fail(delivery: Delivery) -> None:
        raise RuntimeError("bad \x00 \udcff " + 9999 * "x")

    parked = Inbox()
    await bus.consume(DEAD_LETTERS, parked)
    await bus.consume(Queue("q", "x", ("k",), delivery_limit=1), fail)
    await bus.publish("x", "k", message(1))
    await parked.has(1)
    death = parked.deliveries[0].death
    assert death is not None
    assert death.error.startswith("RuntimeError: bad  ? xxx")
    assert len(death.error) <= 2000


async def test_what_is_away_is_not_held_against_a_message(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "UNAVAILABLE_PAUSE_S", 0.01)
    attempts: list[int] = []
    done = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) < 8:
            raise StoreUnavailable
        done.set()

    await bus.consume(Queue("q", "x", ("k",), delivery_limit=2), handler)
    await bus.publish("x", "k", message(1))
    await asyncio.wait_for(done.wait(), DEADLINE_S)
    assert attempts == 8 * [1]


async def test_a_message_that_could_not_be_handled_waits_for_another_consumer(bus: Bus) -> None:
    tried = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        tried.set()
        raise StoreUnavailable

    queue = Queue("q", "x", ("k",))
    consumer = await bus.consume(queue, handler)
    await bus.publish("x", "k", message(1))
    await asyncio.wait_for(tried.wait(), DEADLINE_S)
    await consumer.cancel()
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(1)
    assert inbox.ids == ["m1"]


async def test_messages_that_say_nothing_any_more_are_dropped(bus: Bus) -> None:
    queue = Queue("beats", "x", ("k",), ttl_s=0.3)
    await bus.declare(queue)
    await bus.publish("x", "k", message(1))
    await asyncio.sleep(0.5)  # it ages
    await bus.publish("x", "k", message(2))
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_messages_age_in_the_hands_of_a_consumer_that_waits(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "UNAVAILABLE_PAUSE_S", 0.01)
    began = time.monotonic()
    inbox = Inbox()

    async def handler(delivery: Delivery) -> None:
        if time.monotonic() < began + 1.0:
            raise StoreUnavailable
        await inbox(delivery)

    await bus.consume(Queue("beats", "x", ("k",), ttl_s=0.3), handler)
    for number in range(3):
        await bus.publish("x", "k", message(number))
    await asyncio.sleep(began + 1.0 - time.monotonic())  # the store comes back then
    await bus.publish("x", "k", message(9))
    await inbox.has(1)
    assert inbox.ids == ["m9"]


async def test_a_queue_is_seen_as_the_broker_sees_it(bus: Bus) -> None:
    queue = Queue("q", "x", ("k",))
    with pytest.raises(NotFound, match="no queue q"):
        await bus.inspect(queue)
    await bus.declare(queue)
    await bus.publish_all("x", [("k", message(n)) for n in range(3)])

    async def seen(view: QueueView) -> bool:
        return await bus.inspect(queue) == view

    await until(lambda: seen(QueueView(messages=3, consumers=0)))
    inbox = Inbox()
    consumer = await bus.consume(queue, inbox)
    await inbox.has(3)
    await until(lambda: seen(QueueView(messages=0, consumers=1)))
    await consumer.cancel()
    await until(lambda: seen(QueueView(messages=0, consumers=0)))


async def test_cancel_waits_for_the_handler_that_runs(bus: Bus) -> None:
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
    await asyncio.sleep(0)
    assert not cancelling.done()
    release.set()
    await asyncio.wait_for(cancelling, DEADLINE_S)
    assert done == ["m1"]

    inbox = Inbox()  # what was not handled is still there
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await inbox.has(1)
    assert inbox.ids == ["m2"]


@pytest.mark.parametrize("grace_s", [0.1, 1000])
async def test_who_stops_waiting_for_a_handler_ends_it(bus: Bus, grace_s: float) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def endless(_delivery: Delivery) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    consumer = await bus.consume(Queue("q", "x", ("k",)), endless)
    await bus.publish("x", "k", message(1))
    await asyncio.wait_for(entered.wait(), DEADLINE_S)
    with suppress(TimeoutError):
        await asyncio.wait_for(consumer.cancel(grace_s), 0.5)
    await asyncio.wait_for(ended.wait(), DEADLINE_S)

    inbox = Inbox()
    await bus.consume(Queue("q", "x", ("k",)), inbox)
    await inbox.has(1)
    assert inbox.ids == ["m1"]


async def test_a_handler_may_cancel_its_own_consumer(bus: Bus) -> None:
    queue = Queue("q", "x", ("k",))
    cancelled = asyncio.Event()

    async def once(delivery: Delivery) -> None:
        await consumer.cancel()
        cancelled.set()

    consumer = await bus.consume(queue, once)
    await bus.publish_all("x", [("k", message(1)), ("k", message(2))])
    await asyncio.wait_for(cancelled.wait(), DEADLINE_S)

    async def alone() -> bool:
        return (await bus.inspect(queue)).consumers == 0

    await until(alone)
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_consumers_of_one_queue_share_its_messages(bus: Bus) -> None:
    both = Inbox()
    shares = [0, 0]

    def share(index: int) -> Callable[[Delivery], Awaitable[None]]:
        async def take(delivery: Delivery) -> None:
            shares[index] += 1
            await asyncio.sleep(0)
            await both(delivery)

        return take

    queue = Queue("q", "x", ("k",))
    await bus.consume(queue, share(0))
    await bus.consume(queue, share(1))
    await bus.publish_all("x", [("k", message(n)) for n in range(50)])
    await both.has(50)
    assert sorted(both.ids) == sorted(f"m{n}" for n in range(50))
    assert all(shares)


async def test_a_transient_queue_ends_with_its_consumer(bus: Bus) -> None:
    queue = Queue("live", "x", ("#",), transient=True)
    consumer = await bus.consume(queue, Inbox())
    await consumer.cancel()
    await bus.publish("x", "k", message(1))
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await bus.publish("x", "k", message(2))
    await inbox.has(1)
    assert inbox.ids == ["m2"]


async def test_a_closed_bus_refuses_messages(bus: Bus) -> None:
    inbox = Inbox()
    queue = Queue("q", "x", ("k",))
    await bus.consume(queue, inbox)
    await bus.close()
    with pytest.raises(BusUnavailable, match="closed"):
        await bus.publish("x", "k", message(1))
    with pytest.raises(BusUnavailable, match="closed"):
        await bus.publish_all("x", [("k", message(1))])
    with pytest.raises(BusUnavailable, match="closed"):
        await bus.publish(TO_QUEUE, "q", message(1))
    await bus.close()  # once more does nothing


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
