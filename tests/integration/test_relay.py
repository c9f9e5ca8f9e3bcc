"""The relay publishes the log in order, and goes on where it was."""

import asyncio
import time

import pytest

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import envelope_pb2
from perdure.errors import BusUnavailable, DamagedLog, LogUnavailable
from perdure.eventlog import backoff
from perdure.eventlog.memory import MemoryLog
from perdure.messaging import topology
from perdure.messaging.port import Delivery, Message, Queue
from perdure_relay import relay as relay_module
from perdure_relay.relay import CHECKPOINT, Relay
from tests.builders.events import event, to
from tests.builders.stack import Stack, _running

DEADLINE_S = 10.0
QUEUE = Queue("all", topology.EVENTS, ("#",))


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(relay_module, "BATCH", 3)


def relay_of(stack: Stack) -> Relay:
    return Relay(eventlog=stack.log, checkpoints=stack.read_models, bus=stack.bus)


async def relay_until(stack: Stack, position: int) -> None:
    async with _running(relay_of(stack).run), asyncio.timeout(DEADLINE_S):
        while await stack.read_models.position(CHECKPOINT) < position:
            await asyncio.sleep(0.01)


async def received(stack: Stack) -> list[Message]:
    """What a consumer of everything gets, from now on."""
    got: list[Message] = []

    async def take(delivery: Delivery) -> None:
        got.append(delivery.message)

    await stack.bus.consume(QUEUE, take)
    return got


async def test_every_event_is_published_in_order_and_once() -> None:
    stack = Stack()
    got = await received(stack)
    for _ in range(7):
        await stack.submit()
    await relay_until(stack, 7)
    for _ in range(2):
        await stack.submit()
    await relay_until(stack, 9)
    await stack.bus.settled(DEADLINE_S)
    assert [m.id for m in got] == [event.id for event in await stack.log.read_all(after=0)]


async def test_a_message_carries_its_event_and_what_is_to_be_known_without_reading_it() -> None:
    stack = Stack()
    got = await received(stack)
    traced = event(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", id="e-1")
    await stack.log.append(to("task-9", 0, traced, event()))
    await relay_until(stack, 2)
    await stack.bus.settled(DEADLINE_S)
    first, second = got
    assert (first.id, first.type, first.source) == ("e-1", "TaskCancelRequested", "tests")
    assert (first.subject, first.time) == ("task-9", "2026-01-02T03:04:05.000006+00:00")
    assert dict(first.headers) == {"traceparent": traced.traceparent}
    assert dict(second.headers) == {}
    envelope = envelope_pb2.Envelope.FromString(first.body)
    assert (envelope.id, envelope.stream, envelope.version) == ("e-1", "task-9", 1)
    assert (envelope.position, envelope.data) == (1, traced.data.SerializeToString())


async def test_a_routing_key_names_type_and_stream_as_far_as_amqp_takes_them() -> None:
    stack = Stack()
    keys: list[str] = []

    async def note(delivery: Delivery) -> None:
        keys.append(delivery.routing_key)

    await stack.bus.consume(QUEUE, note)
    await stack.log.append(to("task-9", 0, event()), to("worker-" + "ä" * 200, 0, event()))
    await relay_until(stack, 2)
    await stack.bus.settled(DEADLINE_S)
    assert keys[0] == "TaskCancelRequested.task-9"
    assert keys[1].startswith("TaskCancelRequested.worker-ää")
    assert 254 <= len(keys[1].encode()) <= 255


async def test_the_checkpoint_waits_for_the_confirm() -> None:
    stack = Stack()
    positions: list[int] = []
    publish = stack.bus.publish

    async def refuse_twice(exchange: str, key: str, message: Message) -> None:
        positions.append(await stack.read_models.position(CHECKPOINT))
        if len(positions) <= 2:
            raise BusUnavailable("away")
        await publish(exchange, key, message)

    stack.bus.publish = refuse_twice  # type: ignore[method-assign]
    await stack.submit()
    await relay_until(stack, 1)
    assert positions == [0, 0, 0]


async def test_pauses_grow_while_the_bus_is_away_and_begin_anew_when_it_was_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stack = Stack()
    tries = 0

    async def refuse(_exchange: str, _messages: object) -> None:
        nonlocal tries
        tries += 1
        if tries in (1, 2, 3, 5):
            raise BusUnavailable("away")

    stack.bus.publish_all = refuse  # type: ignore[method-assign]
    await stack.log.append(to("task-1", 0, *(event() for _ in range(6))))
    await relay_until(stack, 6)
    pauses = [record.args[0] for record in caplog.records if "stands still" in record.msg]
    assert pauses == [0.01, 0.02, 0.04, 0.01]


class FlakyLog(MemoryLog):
    """A log of which every other read fails."""

    reads = 0

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        self.reads += 1
        if self.reads % 2:
            raise LogUnavailable("away")
        return await super().read_all(after=after, limit=limit)


async def test_it_goes_on_by_itself_after_an_outage_of_the_log() -> None:
    stack = Stack(log=FlakyLog())
    got = await received(stack)
    await stack.log.append(to("task-1", 0, *(event() for _ in range(8))))
    await relay_until(stack, 8)
    await stack.bus.settled(DEADLINE_S)
    assert [envelope_pb2.Envelope.FromString(m.body).position for m in got] == list(range(1, 9))


async def test_nothing_behind_a_hole_is_published() -> None:
    stack = Stack()
    got = await received(stack)
    await stack.log.append(to("task-1", 0, *(event(id=f"e-{n}") for n in range(1, 6))))
    del stack.log.rows[4 - 1]  # in the middle of the second batch

    with pytest.raises(DamagedLog) as found:
        await asyncio.wait_for(relay_of(stack).run(asyncio.Event()), DEADLINE_S)

    assert found.value.details["position"] == 4
    await stack.bus.settled(DEADLINE_S)
    assert [m.id for m in got] == ["e-1", "e-2", "e-3"]
    assert await stack.read_models.position(CHECKPOINT) == 3


async def test_a_log_that_ends_before_what_was_published_ends_the_relay() -> None:
    stack = Stack()
    await stack.submit()
    assert await stack.read_models.commit(CHECKPOINT, expected=0, position=7)
    with pytest.raises(DamagedLog, match=r"up to position 7 were published, but .* ends at 1:"):
        await asyncio.wait_for(relay_of(stack).run(asyncio.Event()), DEADLINE_S)


async def test_a_relay_that_does_not_lead_publishes_nothing() -> None:
    stack = Stack()
    got = await received(stack)
    asked = asyncio.Event()

    async def follows() -> bool:
        asked.set()
        return False

    await stack.submit()
    second = Relay(eventlog=stack.log, checkpoints=stack.read_models, bus=stack.bus, leads=follows)
    async with _running(second.run):
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
    await stack.bus.settled(DEADLINE_S)
    assert got == []
    assert await stack.read_models.position(CHECKPOINT) == 0


@pytest.mark.parametrize("waits_for", ["events", "the bus"])
async def test_it_stops_at_once_whatever_it_waits_for(
    waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY_S", 60.0)
    stack = Stack()
    waits = asyncio.Event()
    wait = stack.log.wait

    async def refuse(_exchange: str, _messages: object) -> None:
        waits.set()
        raise BusUnavailable("away")

    async def wait_long(*, after: int, timeout_s: float) -> bool:
        waits.set()
        return await wait(after=after, timeout_s=60.0 + timeout_s)

    monkeypatch.setattr(stack.bus, "publish_all", refuse)
    monkeypatch.setattr(stack.log, "wait", wait_long)
    if waits_for == "the bus":
        await stack.submit()
    async with _running(relay_of(stack).run):
        await asyncio.wait_for(waits.wait(), DEADLINE_S)
        told = time.monotonic()
    assert time.monotonic() - told < 1.0
