"""A message that always fails is kept in the log, shown, and replayed; its neighbours flow on."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from infra.stack.rabbitmq import RabbitNode
from perdure.artifacts.folder import FolderStore
from perdure.contracts.codec import to_envelope
from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain.dead_letter import MAX_BODY_BYTES, MAX_TEXT_CHARACTERS, REPLAY_HEADER
from perdure.errors import LogUnavailable
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import EventLog, ReadModels, StreamAppend
from perdure.eventlog.postgres import open_postgres
from perdure.messaging import handling, open_bus, topology
from perdure.messaging.local import LocalBus
from perdure.messaging.port import Bus, Death, Delivery, Message, Queue
from perdure.runtime.clock import SystemClock
from perdure.runtime.embedded_postgres import EmbeddedPostgres
from perdure_gateway.bootstrap import build_app
from perdure_scheduler.dead_letters import DeadLetterKeeper
from tests.builders.amqp import long, raw_publisher, short, table
from tests.builders.bus import Inbox, until
from tests.builders.dead_letters import REPORT, TASK, report_message
from tests.builders.events import event, to

DEADLINE_S = 30.0
SETTLE_S = 5.0
QUEUE = Queue("work.node-1", topology.WORK, ("node-1",), delivery_limit=2)
STREAM = "dead-letter-report-7"
URL = "/v1/audit/dead-letters"


@dataclass
class Backends:
    """What the keeper and the gateway meet in."""

    log: EventLog
    read_models: ReadModels
    bus: Bus

    def keeper(self) -> DeadLetterKeeper:
        return DeadLetterKeeper(self.log, self.bus, SystemClock())

    async def kept(self, count: int, stream: str = STREAM) -> list[RecordedEvent]:
        """The events of a dead letter, once there are so many."""

        async def there() -> bool:
            return len(await self.log.read_stream(stream)) >= count

        await until(there)
        return await self.log.read_stream(stream)

    async def settled(self, keepers: int = 1) -> None:
        """Wait until the keepers have taken all dead letters (in memory only)."""

        async def listening() -> bool:
            return (await self.bus.inspect(topology.DEAD_LETTERS)).consumers == keepers

        assert isinstance(self.bus, LocalBus)
        await until(listening)
        assert await self.bus.settled(SETTLE_S)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield node


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("postgres") / "server"
    with EmbeddedPostgres(folder, durable=False) as server:
        yield server.dsn


@asynccontextmanager
async def memory() -> AsyncIterator[Backends]:
    backends = Backends(MemoryLog(), MemoryReadModels(), LocalBus())
    await backends.bus.declare(topology.DEAD_LETTERS)
    yield backends
    await backends.bus.close()


@asynccontextmanager
async def servers(postgres: str, rabbit: str) -> AsyncIterator[Backends]:
    log, read_models = await open_postgres(postgres)
    bus = await open_bus(rabbit)
    yield Backends(log, read_models, bus)
    await bus.close()
    await log.close()


@pytest.fixture
async def in_memory(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Backends]:
    monkeypatch.setattr(handling, "UNAVAILABLE_PAUSE_S", 0.01)
    async with memory() as backends:
        yield backends


@pytest.fixture(params=["memory", "servers"])
async def backends(request: pytest.FixtureRequest) -> AsyncIterator[Backends]:
    value = request.getfixturevalue
    opened = (
        memory() if request.param == "memory" else servers(value("postgres"), value("rabbit").url)
    )
    async with opened as backends:
        yield backends


@asynccontextmanager
async def running(run: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.ensure_future(run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(task, DEADLINE_S)


@asynccontextmanager
async def gateway(backends: Backends, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = build_app(
        log=backends.log,
        read_models=backends.read_models,
        store=FolderStore(folder),
        bus=backends.bus,
    )
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


class Handler(Inbox):
    """Fails every report until it is mended, and then records it."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self.mended = False
        self._log = log

    async def __call__(self, delivery: Delivery) -> None:
        await super().__call__(delivery)
        if delivery.message.type == "Report":
            if not self.mended:
                raise KeyError("epoch")
            new = event(REPORT.epoch, id="effect", causation_id=delivery.message.id)
            await self._log.append(to(f"task-{TASK}", 0, new))


async def test_a_message_that_always_fails_is_kept_and_its_replay_takes_effect_once(
    backends: Backends, tmp_path: Path
) -> None:
    handler = Handler(backends.log)
    await backends.bus.consume(QUEUE, handler)
    async with running(backends.keeper().run), gateway(backends, tmp_path) as http:
        await backends.bus.publish(topology.WORK, "node-1", report_message())
        await backends.bus.publish(topology.WORK, "node-1", Message("m1", "Thing", b"healthy"))
        await handler.has(3)  # twice the one, and then its neighbour
        assert handler.ids == ["report-7", "report-7", "m1"]
        await backends.kept(1)
        shown = (await http.get(f"{URL}/report-7")).json()
        assert (shown["status"], shown["task_id"], shown["effect"]) == ("parked", TASK, [])
        (death,) = shown["deaths"]
        told = {name: death[name] for name in ("queue", "exchange", "routing_key", "deliveries")}
        assert told == {
            "queue": "work.node-1",
            "exchange": "perdure.work",
            "routing_key": "node-1",
            "deliveries": 2,
        }
        assert (death["reason"], death["error"]) == ("failed", "KeyError: 'epoch'")

        # Put back too early, it dies again, and is parked again.
        assert (await http.post(f"{URL}/report-7/replay")).status_code == 202
        events = await backends.kept(3)
        assert [one.type for one in events] == [
            "MessageDeadLettered",
            "MessageReplayed",
            "MessageDeadLettered",
        ]
        handler.mended = True
        assert (await http.post(f"{URL}/report-7/replay")).status_code == 202
        await handler.has(6)
        assert handler.ids.count("report-7") == 5
        last = handler.deliveries[-1].message
        sent = report_message()
        assert last == replace(sent, headers={**sent.headers, REPLAY_HEADER: "2"})
        shown = (await http.get(f"{URL}/report-7")).json()
        assert (shown["status"], len(shown["replays"])) == ("replayed", 2)
        assert [found["type"] for found in shown["effect"]] == ["EpochCompleted"]
        listed = (await http.get(URL, params={"status": "replayed"})).json()["dead_letters"]
        assert [letter["id"] for letter in listed] == ["report-7"]
        found = (await http.get("/v1/audit/reconcile")).json()
        assert found["counts"]["parked"] == 0


async def fail(delivery: Delivery) -> None:
    raise ValueError(f"no\x00t {delivery.message.id}")


async def bury(bus: Bus, message: Message, queue: str = "q") -> None:
    """Let a message die in a queue, and leave it where dead letters wait."""
    consumer = await bus.consume(Queue(queue, f"x-{queue}", ("#",), delivery_limit=1), fail)
    await bus.publish(f"x-{queue}", "k", message)

    async def dead() -> bool:
        return (await bus.inspect(topology.DEAD_LETTERS)).messages == 1

    await until(dead)
    await consumer.cancel()


async def test_a_dead_letter_that_is_delivered_twice_is_recorded_once(in_memory: Backends) -> None:
    for _ in range(2):
        await bury(in_memory.bus, report_message())
        async with running(in_memory.keeper().run):
            await in_memory.settled()
    assert len(await in_memory.log.read_stream(STREAM)) == 1


async def test_two_keepers_record_a_dead_letter_once(in_memory: Backends) -> None:
    barrier = asyncio.Barrier(2)
    read_stream = in_memory.log.read_stream

    async def read_together(stream: str, **versions: int) -> list[RecordedEvent]:
        known = await read_stream(stream, **versions)
        if not known:
            await barrier.wait()  # both have seen that it is not recorded
        return known

    in_memory.log.read_stream = read_together  # type: ignore[method-assign, assignment]
    for _ in range(2):
        await in_memory.bus.publish(topology.DEAD, "q", report_message())
    async with running(in_memory.keeper().run), running(in_memory.keeper().run):
        await in_memory.settled(keepers=2)
    assert len(await read_stream(STREAM)) == 1


async def test_the_same_message_dead_in_two_queues_is_recorded_twice(in_memory: Backends) -> None:
    for queue in ("one", "two"):
        await bury(in_memory.bus, report_message(), queue)
        async with running(in_memory.keeper().run):
            await in_memory.settled()
    queues = [one.data.queue for one in await in_memory.log.read_stream(STREAM)]
    assert queues == ["one", "two"]


async def test_a_dead_letter_waits_for_the_log(
    in_memory: Backends, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, answers = in_memory.log.append, itertools.count()

    async def refuse_twice(*appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        if next(answers) < 2:
            raise LogUnavailable("the log does not answer")
        return await append(*appends)

    monkeypatch.setattr(in_memory.log, "append", refuse_twice)
    await bury(in_memory.bus, report_message())
    async with running(in_memory.keeper().run):
        await in_memory.kept(1)
    assert next(answers) == 3


async def test_whatever_comes_from_outside_is_kept(backends: Backends, tmp_path: Path) -> None:
    odd = "a/b c" + chr(0) + "ö" * 40
    messages = [
        Message(odd, "Report", b"\xff\xff", {"h": "x" * 9000}, subject=chr(0)),
        Message("", "", b"no id, no type"),
        Message("large", "Thing", b"x" * (MAX_BODY_BYTES + 1)),
        replace(report_message(), id="n1", headers={REPLAY_HEADER: "many"}),
    ]
    async with running(backends.keeper().run):
        start = (await backends.log.head()).position
        for number, message in enumerate(messages):
            queue = Queue(f"odd-{number}", f"x-odd-{number}", ("#",), delivery_limit=1)
            await backends.bus.consume(queue, fail)
            await backends.bus.publish(queue.exchange, "k", message)

        async def all_kept() -> bool:
            return (await backends.log.head()).position == start + len(messages)

        await until(all_kept)
    events = {one.data.queue: one for one in await backends.log.read_all(after=start)}
    first, second, third, fourth = (events[f"odd-{number}"] for number in range(4))
    assert first.stream.startswith("dead-letter-hashed-")
    assert (first.data.message_id, first.data.body) == (odd, b"\xff\xff")
    assert len(first.data.headers["h"]) == MAX_TEXT_CHARACTERS
    assert second.data.body == b"no id, no type"
    assert (third.data.body, third.data.body_bytes) == (b"", MAX_BODY_BYTES + 1)
    assert (fourth.data.message_id, fourth.data.replay) == ("n1", 0)
    async with gateway(backends, tmp_path) as http:
        listed = (await http.get(URL, params={"status": "parked"})).json()["dead_letters"]
        assert {letter["queues"][0] for letter in listed} >= set(events)
        for letter in listed:
            shown = (await http.get(f"{URL}/{letter['id']}")).json()
            assert shown["message_id"] == letter["message_id"]


async def test_a_message_that_is_no_utf8_is_kept_and_its_neighbours_flow_on(
    postgres: str, rabbit: RabbitNode
) -> None:
    queue, inbox = Queue("raw", "x-raw", ("#",), delivery_limit=1), Inbox(fail={"\ufffd": 1})
    headers = table((b"\xff", long(b"text")), (b"note", long(b"odd")))
    async with servers(postgres, rabbit.url) as backends, running(backends.keeper().run):
        start = (await backends.log.head()).position
        await backends.bus.consume(queue, inbox)
        async with raw_publisher(rabbit.url) as publisher:
            await publisher.publish(
                "x-raw", b"\xff", b"\xff", message_id=short(b"\xff"), headers=headers
            )
        await backends.bus.publish("x-raw", "k", Message("m1", "Thing", b"healthy"))
        await inbox.has(2)

        async def kept() -> bool:
            return (await backends.log.head()).position > start

        await until(kept)
        (found,) = await backends.log.read_all(after=start)
    assert inbox.ids == ["\ufffd", "m1"]
    assert isinstance(found.data, events_pb2.MessageDeadLettered)
    assert (found.data.queue, found.data.body, found.data.body_bytes) == ("raw", b"\xff", 1)
    assert found.data.headers == {"\ufffd": "text", "note": "odd"}


async def test_a_message_that_came_by_another_way_is_kept_with_what_can_be_told(
    in_memory: Backends,
) -> None:
    await in_memory.bus.declare(topology.DEAD_LETTERS)
    await in_memory.bus.publish(topology.DEAD, "some.queue", report_message())
    async with running(in_memory.keeper().run):
        (kept,) = await in_memory.kept(1)
    assert (kept.data.queue, kept.data.reason) == ("some.queue", "unknown")


async def test_numbers_that_no_field_holds_keep_no_message_out(in_memory: Backends) -> None:
    death = Death("q", "x", "k", "failed", "", deliveries=10**12)
    await in_memory.keeper()._keep(Delivery(report_message(), "q", 1, death))
    (kept,) = await in_memory.log.read_stream(STREAM)
    assert kept.data.deliveries == 2**31


async def test_an_event_about_a_dead_letter_that_fails_is_not_recorded_again(
    in_memory: Backends,
) -> None:
    await bury(in_memory.bus, report_message())
    async with running(in_memory.keeper().run):
        (about,) = await in_memory.kept(1)
        body = to_envelope(about).SerializeToString()
        await in_memory.bus.publish(topology.DEAD, "live", Message(about.id, about.type, body))
        await in_memory.bus.publish(topology.DEAD, "q", Message("m2", "Thing", b"after it"))
        await in_memory.kept(1, "dead-letter-m2")
    assert (await in_memory.log.head()).position == 2


async def test_the_fact_names_its_cause_and_goes_on_in_its_trace(in_memory: Backends) -> None:
    await bury(in_memory.bus, report_message())
    async with running(in_memory.keeper().run):
        (kept,) = await in_memory.kept(1)
    assert isinstance(kept.data, events_pb2.MessageDeadLettered)
    assert (kept.causation_id, kept.correlation_id, kept.source) == ("report-7", TASK, "scheduler")
    assert kept.traceparent == report_message().headers["traceparent"]
