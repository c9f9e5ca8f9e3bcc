"""Servers restarted while the log is written and relayed: nothing is lost, all stays in order."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from infra.stack.ports import free_port
from infra.stack.postgres import Postgres
from infra.stack.rabbitmq import RabbitNode
from perdure.errors import LogUnavailable
from perdure.eventlog.leadership import RELAY, Leadership, while_leading
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import EventLog, ReadModels
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.messaging import open_bus, topology
from perdure.messaging.local import LocalBus
from perdure.messaging.port import Bus, Delivery, Queue
from perdure_relay.relay import Relay
from tests.builders.events import event, to

pytestmark = pytest.mark.crash

QUEUE = Queue("all", topology.EVENTS, ("#",))
DEADLINE_S = 90.0
POLL_S = 0.05
RESTARTS, RESTART_EVERY_S = 8, 2.0
WRITERS = 3
BACKLOG, APPENDED_AT_ONCE = 5000, 1000


class Received:
    """The ids of the events that came, in the order of their first coming."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    async def __call__(self, delivery: Delivery) -> None:
        self.ids.setdefault(delivery.message.id)

    async def has(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.ids) < number:
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def relaying(run: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_as_coroutine(run, stopping))
        yield
        stopping.set()


async def _as_coroutine(
    run: Callable[[asyncio.Event], Awaitable[None]], stopping: asyncio.Event
) -> None:
    await run(stopping)


def relay_of(log: EventLog, checkpoints: ReadModels, bus: Bus, leadership: Leadership) -> Relay:
    return Relay(eventlog=log, checkpoints=checkpoints, bus=bus, leads=leadership.held)


async def write(log: PostgresLog, stream: str, until: asyncio.Event) -> int:
    """Append one event after the other, each again until the log has it; give how many."""
    version = 0
    while not until.is_set():
        append = to(stream, version, event())
        while True:
            try:
                await log.append(append)
                break
            except LogUnavailable:
                await asyncio.sleep(POLL_S)
        version += 1
    return version


async def test_postgres_restarted_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    server = Postgres(tmp_path / "postgres", port=free_port(), password="p", durable=True)
    await asyncio.to_thread(server.start)
    log, checkpoints = await open_postgres(server.url)
    bus, received, leadership, enough = LocalBus(), Received(), Leadership(), asyncio.Event()
    await bus.consume(QUEUE, received)

    async def lead(ending: asyncio.Event) -> None:
        await relay_of(log, checkpoints, bus, leadership).run(ending)

    async def run(stopping: asyncio.Event) -> None:
        await while_leading(server.url, RELAY, lead, stopping, leadership)

    try:
        async with asyncio.timeout(DEADLINE_S), relaying(run):
            async with asyncio.TaskGroup() as group:
                writers = [
                    group.create_task(write(log, f"task-{n}", enough)) for n in range(WRITERS)
                ]
                for _ in range(RESTARTS):
                    before = time.monotonic()
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                    await asyncio.sleep(max(0.0, RESTART_EVERY_S - (time.monotonic() - before)))
                enough.set()
            appended = sum(writer.result() for writer in writers)
            await received.has(appended)
        logged = [one.id for one in await log.read_all(after=0, limit=appended + 1)]
        verified = await log.verify()
    finally:
        await log.close()
        await bus.close()
        await asyncio.to_thread(server.stop)
    assert verified.events == appended
    assert list(received.ids) == logged


async def test_a_backlog_is_caught_up_with_in_order_while_the_broker_restarts(
    tmp_path: Path,
) -> None:
    log, checkpoints, received = MemoryLog(), MemoryReadModels(), Received()
    for version in range(0, BACKLOG, APPENDED_AT_ONCE):
        await log.append(to("task-1", version, *(event() for _ in range(APPENDED_AT_ONCE))))
    node = RabbitNode(tmp_path)
    bus = await open_bus(await asyncio.to_thread(node.start))
    try:
        await bus.consume(QUEUE, received)
        relay = Relay(eventlog=log, checkpoints=checkpoints, bus=bus)
        async with asyncio.timeout(DEADLINE_S), relaying(relay.run):
            await received.has(100)
            await asyncio.to_thread(node.stop)
            assert len(received.ids) < BACKLOG
            await asyncio.to_thread(node.start)
            await received.has(BACKLOG)
    finally:
        await bus.close()
        await asyncio.to_thread(node.kill)
    assert list(received.ids) == [one.id for one in await log.read_all(after=0, limit=BACKLOG)]
