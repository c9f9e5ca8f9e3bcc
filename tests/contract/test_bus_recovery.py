"""The bus on RabbitMQ comes back, whatever happens to queues, channels, connections and broker."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aio_pika
import aiormq
import pytest
from aio_pika.abc import AbstractChannel

from infra.stack.proxy import Proxy
from infra.stack.rabbitmq import RabbitNode
from perdure.errors import BusUnavailable, NotFound
from perdure.messaging import open_bus, rabbitmq, rabbitmq_connection, rabbitmq_consumer
from perdure.messaging.port import Bus, Delivery, Queue
from perdure.messaging.topology import CONTROL_QUEUES, DEAD_LETTERS, SCHEDULER_REPORTS
from tests.builders.bus import DEADLINE_S, Inbox, message, until
from tests.children import consumer as fragile

QUEUE = Queue("q", "x", ("k",))
LIVE = Queue("live", "x", ("k",), transient=True)
CONSUMER_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def own_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A node that may be stopped and wiped; it is impatient with slow consumers."""
    folder = tmp_path_factory.mktemp("own-rabbitmq")
    with RabbitNode(folder, consumer_timeout_s=CONSUMER_TIMEOUT_S) as node:
        yield node


@pytest.fixture
async def own_bus(own_node: RabbitNode) -> AsyncIterator[Bus]:
    bus = await open_bus(await asyncio.to_thread(own_node.start))
    yield bus
    await bus.close()


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


@pytest.fixture
def proxy(rabbit_node: RabbitNode) -> Iterator[Proxy]:
    with Proxy(rabbit_node.port) as proxy:
        yield proxy


@pytest.fixture
async def far_bus(vhost: str, rabbit_node: RabbitNode, proxy: Proxy) -> AsyncIterator[Bus]:
    """A bus whose broker is behind the proxy."""
    bus = await open_bus(vhost.replace(f":{rabbit_node.port}/", f":{proxy.port}/"))
    yield bus
    await bus.close()


def counted(bus: Bus, queue: Queue, consumers: int) -> Callable[[], Awaitable[bool]]:
    """Whether the broker counts so many consumers."""

    async def asked() -> bool:
        try:
            return (await bus.inspect(queue)).consumers == consumers
        except (BusUnavailable, NotFound):
            return False

    return asked


async def sent(bus: Bus, number: int) -> None:
    """Publish as soon as there is a broker."""

    async def confirmed() -> bool:
        try:
            await bus.publish("x", "k", message(number))
        except BusUnavailable:
            return False
        return True

    await until(confirmed)


async def test_a_deleted_queue_is_made_anew_by_its_consumer(
    bus: Bus, operator: AbstractChannel
) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await operator.queue_delete("q")
    await until(counted(bus, QUEUE, 1))
    await bus.publish("x", "k", message(1))
    await inbox.has(1)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("pause_s", [0.0, 0.2])
async def test_a_queue_that_is_deleted_and_made_anew_by_hand_is_consumed(
    bus: Bus,
    operator: AbstractChannel,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    pause_s: float,
) -> None:
    monkeypatch.setattr(rabbitmq_consumer, "RENEW_IDLE_S", 1.0)
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await operator.queue_delete("q")
    await asyncio.sleep(pause_s)  # without one, RabbitMQ 3.10 gives the consumer no more messages
    made = await operator.declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    await made.bind("x", "k")
    await bus.publish("x", "k", message(1))
    await inbox.has(1)
    await until(counted(bus, QUEUE, 1))


@pytest.mark.parametrize("made_anew", [False, True])
async def test_a_consumer_that_was_not_told_of_its_end_subscribes_anew(
    bus: Bus, operator: AbstractChannel, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    async def overheard(channel: aiormq.Channel, frame: object) -> None:
        """A library that loses the broker's notice."""

    monkeypatch.setattr(rabbitmq_consumer, "RENEW_IDLE_S", 0.3)
    monkeypatch.setattr(aiormq.Channel, "_on_cancel_frame", overheard)
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await operator.queue_delete("q")
    if made_anew:
        await operator.declare_queue("q", durable=True)
    await until(counted(bus, QUEUE, 1))
    await bus.publish("x", "k", message(1))
    await inbox.has(1)


@pytest.mark.parametrize("queue", [QUEUE, LIVE], ids=["durable", "live"])
async def test_a_cut_connection_is_made_again(far_bus: Bus, proxy: Proxy, queue: Queue) -> None:
    inbox = Inbox()
    await far_bus.consume(queue, inbox)
    proxy.cut()
    await until(counted(far_bus, queue, 1))
    await sent(far_bus, 1)
    await inbox.has(1)


async def test_a_connection_that_the_operator_closes_is_made_again(
    bus: Bus, rabbit_node: RabbitNode
) -> None:
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    await asyncio.to_thread(rabbit_node.control, "close_all_connections", "maintenance")
    await sent(bus, 1)
    await inbox.has(1)


async def test_a_silent_connection_is_given_up(
    vhost: str, rabbit_node: RabbitNode, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_connection, "HEARTBEAT_S", 1)
    monkeypatch.setattr(rabbitmq_connection, "CONNECT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(rabbitmq, "CONFIRM_TIMEOUT_S", 0.5)
    bus = await open_bus(vhost.replace(f":{rabbit_node.port}/", f":{proxy.port}/"))
    durable, live = Inbox(), Inbox()
    await bus.consume(QUEUE, durable)
    await bus.consume(LIVE, live)
    proxy.black_hole()
    with pytest.raises(BusUnavailable, match="in time"):
        await bus.publish("x", "k", message(1))

    async def given_up() -> bool:
        with pytest.raises(BusUnavailable) as refused:
            await bus.publish("x", "k", message(1))
        return "no connection" in str(refused.value)

    await until(given_up)
    proxy.cut()
    proxy.restore()
    await until(counted(bus, QUEUE, 1))
    await until(counted(bus, LIVE, 1))
    await sent(bus, 2)
    await durable.has(1)
    await live.has(1)
    await bus.close()


async def test_a_bus_that_was_opened_without_a_broker_finds_it(
    vhost: str, rabbit_node: RabbitNode, proxy: Proxy
) -> None:
    proxy.refuse()
    bus = await open_bus(vhost.replace(f":{rabbit_node.port}/", f":{proxy.port}/"))
    inbox = Inbox()
    await bus.consume(QUEUE, inbox)
    with pytest.raises(BusUnavailable):
        await bus.declare(Queue("other", "x", ("k",)))
    proxy.restore()
    await until(counted(bus, QUEUE, 1))
    await sent(bus, 1)
    await inbox.has(1)
    other = Inbox()  # it was declared when there was a broker to declare it at
    await bus.consume(Queue("other", "x", ("k",)), other)
    await other.has(1)
    await bus.close()


@pytest.mark.crash
@pytest.mark.parametrize("end", [RabbitNode.stop, RabbitNode.kill], ids=["stopped", "killed"])
async def test_confirmed_messages_outlive_the_broker(
    own_node: RabbitNode, own_bus: Bus, end: Callable[[RabbitNode], None]
) -> None:
    inbox, kept = Inbox(), Inbox()
    later = Queue(f"later-{end.__name__}", "x", ("k",))
    await own_bus.consume(QUEUE, inbox)
    await own_bus.declare(later)
    await own_bus.publish("x", "k", message(1))
    # A quorum queue that is younger than a second when its only node is killed has no leader ever
    # after (RabbitMQ 3.10).
    await asyncio.sleep(2)
    await asyncio.to_thread(end, own_node)
    async with asyncio.timeout(rabbitmq.CONFIRM_TIMEOUT_S + 1):
        with pytest.raises(BusUnavailable):
            await own_bus.publish("x", "k", message(2))
    await asyncio.to_thread(own_node.start)
    await sent(own_bus, 3)
    await own_bus.consume(later, kept)
    await kept.has(2)
    assert kept.ids == ["m1", "m3"]
    await until(counted(own_bus, QUEUE, 1))
    await inbox.has(2)
    assert {"m1", "m3"} <= set(inbox.ids)


@pytest.mark.crash
async def test_a_broker_that_lost_everything_works_again(
    own_node: RabbitNode, own_bus: Bus
) -> None:
    inbox = Inbox()
    await own_bus.consume(QUEUE, inbox)
    await own_bus.consume(SCHEDULER_REPORTS, Inbox())
    await asyncio.to_thread(own_node.wipe)
    await asyncio.to_thread(own_node.start)
    await sent(own_bus, 1)
    await inbox.has(1)
    await until(counted(own_bus, SCHEDULER_REPORTS, 1))
    for queue in CONTROL_QUEUES:
        await own_bus.inspect(queue)


@pytest.mark.crash
async def test_a_handler_that_outlives_the_brokers_patience_runs_alone(own_bus: Bus) -> None:
    queue = Queue("slow", "x", ("slow",))
    release, running, most = asyncio.Event(), 0, 0
    inbox = Inbox()

    async def handler(delivery: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await inbox(delivery)
        await release.wait()
        running -= 1

    await own_bus.consume(queue, handler)
    await own_bus.publish("x", "slow", message(1))
    await inbox.has(1)
    await until(counted(own_bus, queue, 0))  # the broker has closed the channel
    assert inbox.ids == ["m1"]
    release.set()
    await inbox.has(2)
    assert [(d.message.id, d.attempt) for d in inbox.deliveries] == [("m1", 1), ("m1", 2)]
    assert most == 1
    await until(counted(own_bus, queue, 1))


@pytest.mark.crash
async def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(
    bus: Bus, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2
    monkeypatch.setattr("perdure.messaging.rabbitmq_queues.BROKER_DELIVERY_LIMIT", limit)
    await bus.declare(fragile.QUEUE)
    poison = message(0).__class__(id="m0", type="Thing", body=fragile.POISON)
    await bus.publish_all("x", [("k", poison), ("k", message(1)), ("k", message(2))])

    deaths, heard = 0, b""
    async with asyncio.timeout(DEADLINE_S):
        while b"m2" not in heard:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", fragile.__name__, vhost, str(limit), stdout=-1
            )
            assert process.stdout is not None
            while b"m2" not in heard and (line := await process.stdout.readline()):
                heard += line
            deaths += b"m2" not in heard
    process.kill()
    await process.wait()
    assert deaths == limit + 1
    assert heard == b"m1\nm2\n"

    parked = Inbox()
    await bus.consume(DEAD_LETTERS, parked)
    await parked.has(1)
    assert parked.deliveries[0].message == poison
    death = parked.deliveries[0].death
    assert death is not None
    assert (death.queue, death.exchange, death.routing_key) == ("fragile", "x", "k")
    assert (death.reason, death.error, death.deliveries) == ("delivery_limit", "", limit + 1)
