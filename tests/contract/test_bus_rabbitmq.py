"""What the bus asks of a RabbitMQ server, seen with the eyes of its operator."""

import asyncio
import contextlib
import gc
import itertools
import logging
import warnings
from collections.abc import AsyncIterator

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from infra.stack.ports import free_port
from infra.stack.rabbitmq import RabbitNode
from perdure.errors import BusUnavailable, InvalidSetting, NotFound
from perdure.messaging import open_bus, rabbitmq, rabbitmq_consumer, rabbitmq_queues
from perdure.messaging.port import Bus, Delivery, Message, Queue, QueueView
from perdure.messaging.topology import CONTROL_QUEUES, DEAD_LETTERS, EXCHANGES
from tests.builders.bus import DEADLINE_S, Inbox, message, until

QUEUE = Queue("q", "x", ("k",))


@pytest.fixture
async def bus(vhost: str) -> AsyncIterator[Bus]:
    opened = await open_bus(vhost)
    yield opened
    await opened.close()


@pytest.fixture
async def operator(vhost: str) -> AsyncIterator[AbstractChannel]:
    """Somebody at the broker who knows nothing of us."""
    async with await aio_pika.connect(vhost) as connection:
        yield await connection.channel()


async def test_whoever_connects_declares_the_topology(bus: Bus, operator: AbstractChannel) -> None:
    for exchange in EXCHANGES:
        await operator.declare_exchange(exchange, "topic", durable=True)  # refused if not the same
    for queue in CONTROL_QUEUES:
        assert await bus.inspect(queue) == QueueView(messages=0, consumers=0)


async def test_queues_are_declared_with_what_keeps_messages_safe(
    bus: Bus, operator: AbstractChannel
) -> None:
    await bus.declare(QUEUE)
    await bus.declare(Queue("beats", "x", ("k",), ttl_s=30.0))
    await bus.consume(Queue("live", "x", ("k",), transient=True), Inbox())

    # The broker refuses a declaration that differs from what is there in any argument.
    await operator.declare_queue(
        "q",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 20,
            "x-dead-letter-exchange": "perdure.dead-letters",
            "x-dead-letter-routing-key": "q",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-max-length": 100_000,
        },
    )
    await operator.declare_queue(
        DEAD_LETTERS.name,
        durable=True,
        arguments={"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000},
    )
    await operator.declare_queue(
        "scheduler.heartbeats",
        durable=True,
        arguments={
            "x-queue-type": "classic",
            "x-message-ttl": 30_000,
            "x-max-length": 100_000,
            "x-overflow": "drop-head",
        },
    )
    with pytest.raises(aio_pika.exceptions.AMQPChannelError, match="RESOURCE_LOCKED"):
        await operator.declare_queue("live", passive=True)  # it is its connection's alone


async def test_a_message_travels_as_a_cloud_event(bus: Bus, operator: AbstractChannel) -> None:
    await bus.declare(QUEUE)
    await bus.publish(
        "x",
        "k",
        Message(
            id="6f0c",
            type="TaskSubmitted",
            body=b"\x0a\x01",
            headers={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
            source="gateway",
            subject="task-7",
        ),
    )
    seen = await (await operator.get_queue("q")).get(timeout=DEADLINE_S)
    del seen.headers["x-delivery-count"]  # the broker's own
    assert seen.headers == {
        "cloudEvents_id": "6f0c",
        "cloudEvents_type": "TaskSubmitted",
        "cloudEvents_source": "gateway",
        "cloudEvents_subject": "task-7",
        "cloudEvents_specversion": "1.0",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    assert (seen.message_id, seen.type) == ("6f0c", "TaskSubmitted")
    assert (seen.content_type, seen.delivery_mode) == ("application/protobuf", 2)
    assert seen.body == b"\x0a\x01"


async def test_a_message_that_somebody_else_sent_arrives_too(
    bus: Bus, operator: AbstractChannel
) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    foreign = aio_pika.Message(b"?", headers={"x-odd": 1, "count": 2, "note": "by hand"})
    await operator.default_exchange.publish(foreign, "q")
    await inbox.has(1)
    got = inbox.deliveries[0].message
    assert (got.type, got.body, got.headers) == ("", b"?", {"note": "by hand"})


async def test_a_consumer_holds_one_message_at_a_time(bus: Bus, operator: AbstractChannel) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        entered.set()
        await release.wait()

    await bus.consume(QUEUE, handler)
    await bus.publish_all("x", [("k", message(n)) for n in range(3)])
    await asyncio.wait_for(entered.wait(), DEADLINE_S)
    assert (await bus.inspect(QUEUE)).messages == 2
    release.set()

    async def empty() -> bool:
        return (await bus.inspect(QUEUE)).messages == 0

    await until(empty)


async def test_a_full_queue_refuses_messages(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_queues, "MAX_QUEUE_LENGTH", 3)
    await bus.declare(QUEUE)

    async def publish_without_end() -> None:
        for number in itertools.count():  # the broker lets a few more in
            await bus.publish("x", "k", message(number))

    with pytest.raises(BusUnavailable, match="full"):
        await asyncio.wait_for(publish_without_end(), DEADLINE_S)


async def test_a_full_live_queue_drops_the_oldest(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_queues, "MAX_QUEUE_LENGTH", 3)
    queue = Queue("beats", "x", ("k",), ttl_s=60.0)
    await bus.declare(queue)
    await bus.publish_all("x", [("k", message(n)) for n in range(20)])
    inbox = Inbox()
    await bus.consume(queue, inbox)
    await inbox.has(3)
    assert inbox.ids == ["m17", "m18", "m19"]


async def test_a_queue_with_other_arguments_is_named_once_and_used_as_it_is(
    bus: Bus,
    operator: AbstractChannel,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rabbitmq_consumer, "RENEW_IDLE_S", 0.1)
    await operator.declare_queue("q", durable=True)
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await asyncio.sleep(0.5)  # it is renewed some times
    await bus.publish("x", "k", message(1))
    await inbox.has(1)
    said = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "rabbitmqctl delete_queue q" in said[0]


async def test_an_exchange_that_is_gone_is_made_anew(bus: Bus, operator: AbstractChannel) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await bus.publish("x", "k", message(1))
    await operator.exchange_delete("x")
    await bus.publish_all("x", [("k", message(2)), ("k", message(3))])
    await inbox.has(3)
    assert inbox.ids == ["m1", "m2", "m3"]


async def test_a_dead_letter_finds_its_queue_also_when_that_was_deleted(
    bus: Bus, operator: AbstractChannel
) -> None:
    inbox = Inbox(fail={"m1": 99})
    await bus.consume(Queue("q", "x", ("k",), delivery_limit=1), inbox)
    await operator.queue_delete(DEAD_LETTERS.name)
    await bus.publish("x", "k", message(1))
    await bus.publish("x", "k", message(2))
    await inbox.has(2)

    async def buried() -> bool:
        return (await bus.inspect(DEAD_LETTERS)).messages == 1

    await until(buried)
    assert inbox.ids == ["m1", "m2"]


async def test_a_publish_that_is_not_confirmed_fails_in_time(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "CONFIRM_TIMEOUT_S", 0.0)
    with pytest.raises(BusUnavailable, match="in time"):
        await bus.publish("x", "k", message(1))
    monkeypatch.setattr(rabbitmq, "CONFIRM_TIMEOUT_S", 10.0)
    await bus.publish("x", "k", message(2))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        "http://user:secret@host:5672/",
        "amqp://",
        "amqp:///vhost",
        "amqp://user:secret@host:port/",
        "amqp://user:secret@host:99999/",
        "amqp://user:secret@[::1/",
        "amqp//user:sec/ret@host",
    ],
)
async def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(InvalidSetting, match="write amqp://") as refused:
        await open_bus(address)
    assert "secret" not in str(refused.value)
    assert "ret@" not in str(refused.value)


async def test_a_wrong_password_is_said_and_not_shown(
    vhost: str, caplog: pytest.LogCaptureFixture
) -> None:
    password = vhost.split(":")[2].split("@")[0]
    with pytest.raises(InvalidSetting, match="ACCESS_REFUSED") as refused:
        await open_bus(vhost.replace(password, "not-the-password"))
    assert "not-the-password" not in str(refused.value) + caplog.text
    assert "perdure:***@127.0.0.1" in str(refused.value)


async def test_a_virtual_host_that_is_not_there_is_named(vhost: str) -> None:
    with pytest.raises(InvalidSetting, match=r"127\.0\.0\.1.*/missing .*vhost missing not found"):
        await open_bus(vhost.rpartition("/")[0] + "/missing")


async def test_rights_that_are_missing_at_the_start_are_refused_and_later_waited_for(
    vhost: str, rabbit_node: RabbitNode, caplog: pytest.LogCaptureFixture
) -> None:
    name = vhost.rpartition("/")[2]
    rights = ("set_permissions", "-p", name, "perdure")
    bus = await open_bus(vhost)
    await asyncio.to_thread(rabbit_node.control, *rights, "^$", ".*", ".*")
    with pytest.raises(InvalidSetting, match=r"ACCESS_REFUSED.*permissions"):
        await open_bus(vhost)
    await asyncio.to_thread(rabbit_node.control, "close_all_connections", "-p", name, "test")

    async def refused() -> bool:
        return "refuses us, and is asked again" in caplog.text

    await until(refused)
    await asyncio.to_thread(rabbit_node.control, *rights, ".*", ".*", ".*")

    async def published() -> bool:
        with contextlib.suppress(BusUnavailable):
            await bus.publish("x", "k", message(1))
            return True
        return False

    await until(published)
    await bus.close()


async def test_without_a_broker_a_bus_opens_and_says_that_there_is_none() -> None:
    port = free_port()
    async with asyncio.timeout(5):
        bus = await open_bus(f"amqp://guest:guest@127.0.0.1:{port}/")
        consumer = await bus.consume(QUEUE, Inbox())
        for call in (
            bus.publish("x", "k", message(1)),
            bus.publish_all("x", [("k", message(1))]),
            bus.publish("", "q", message(1)),
            bus.declare(QUEUE),
            bus.inspect(QUEUE),
        ):
            with pytest.raises(BusUnavailable, match=f"{port}.*[Cc]onnect"):
                await call
        await consumer.cancel()
        await bus.close()


async def test_a_connection_that_failed_leaves_nothing_to_the_garbage_collector() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        bus = await open_bus(f"amqp://guest:guest@127.0.0.1:{free_port()}/")
        await bus.close()
        await asyncio.to_thread(gc.collect)  # it runs in any thread, and there is no loop there
    assert [str(one.message) for one in warned if one.category is RuntimeWarning] == []


async def test_a_queue_that_nobody_uses_goes_after_its_time(bus: Bus) -> None:
    queue = Queue("work.gone", "x", ("k",), unused_s=0.5)
    consumer = await bus.consume(queue, Inbox())
    assert (await bus.inspect(queue)).consumers == 1
    await consumer.cancel()

    async def is_gone() -> bool:
        try:
            await bus.inspect(queue)
        except NotFound:
            return True
        return False

    await until(is_gone)


async def test_a_consumer_that_is_cancelled_at_once_leaves_nothing_at_the_broker(bus: Bus) -> None:
    for _ in range(3):
        consumer = await bus.consume(QUEUE, Inbox())
        await consumer.cancel(0.0)

    async def has_none() -> bool:
        return (await bus.inspect(QUEUE)).consumers == 0

    await until(has_none)
