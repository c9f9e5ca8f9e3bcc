"""The event log next to the package `eventsourcing`, on the same PostgreSQL in the same run.

Both write the same facts, in turns, several times over. Each figure is that of the best turn: what
other processes take from one is no property of the program. The package runs with its C driver,
prepared statements and its functions in the database, which are faster than its defaults, and at
two levels: its recorder, given rows that were encoded beforehand, and its event store, which
encodes and decodes objects as JSON, as an application has it do. Ours always encodes within the
time. The package has no ids of events and no hash chain, and it leaves gaps after a rollback.

Prints one JSON line a comparison; run it with `python -m tests.bench.bench_eventsourcing`.
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from eventsourcing.persistence import (
    EventStore,
    JSONTranscoder,
    Mapper,
    Notification,
    StoredEvent,
)
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.runtime.embedded_postgres import EmbeddedPostgres

TURNS = 5
SLICE_S = 0.25  # at most, for one of them in one turn: half a minute in all
PAGE_EVENTS = 1000
# Writers, events an append, and how many appends a writer could do in one slice.
CASES = ((1, 1, 750), (1, 100, 120), (8, 1, 600), (8, 100, 20))

T = TypeVar("T")
Read = Callable[..., Awaitable[Sequence[object]]]


@dataclass(frozen=True)
class Epoch:
    """A fact as the package has it: `originator_id` and `originator_version` are its columns."""

    originator_id: uuid.UUID
    originator_version: int
    event_id: str
    time: str
    correlation_id: str
    causation_id: str
    source: str
    fence: int
    epoch: int
    epochs: int
    box_loss: float
    cls_loss: float
    dfl_loss: float
    map50: float
    map50_95: float
    learning_rate: float
    images: int
    duration_s: float


@dataclass(frozen=True)
class Work:
    """What one writer appends in one turn: for us, and the same for the package in two forms."""

    stream: str
    ours: list[tuple[NewEvent, ...]]
    theirs: list[list[Epoch]]
    rows: list[list[StoredEvent]]


def work(mapper: Mapper[uuid.UUID], size: int, appends: int) -> Work:
    stream_id = uuid.uuid4()
    ours, theirs = [], []
    for first in range(1, appends * size + 1, size):
        facts = [fact(stream_id, first + n) for n in range(size)]
        theirs.append(facts)
        ours.append(tuple(map(new_event, facts)))
    rows = [list(map(mapper.to_stored_event, facts)) for facts in theirs]
    return Work(f"task-{stream_id.hex}", ours, theirs, rows)


def fact(stream_id: uuid.UUID, version: int) -> Epoch:
    return Epoch(
        originator_id=stream_id,
        originator_version=version,
        event_id=str(uuid.uuid4()),
        time="2026-01-02T03:04:05.000006+00:00",
        correlation_id=f"task-{stream_id.hex}",
        causation_id=str(uuid.uuid4()),
        source="scheduler",
        fence=1,
        epoch=version,
        epochs=100_000,
        box_loss=1.0 / (version + 2),
        cls_loss=0.7342,
        dfl_loss=1.25,
        map50=0.5512,
        map50_95=0.3127,
        learning_rate=0.001984,
        images=364,
        duration_s=9.5,
    )


def new_event(fact: Epoch) -> NewEvent:
    return NewEvent(
        id=fact.event_id,
        data=events_pb2.EpochCompleted(
            fence=fact.fence,
            epoch=fact.epoch,
            epochs=fact.epochs,
            box_loss=fact.box_loss,
            cls_loss=fact.cls_loss,
            dfl_loss=fact.dfl_loss,
            map50=fact.map50,
            map50_95=fact.map50_95,
            learning_rate=fact.learning_rate,
            images=fact.images,
            duration_s=fact.duration_s,
        ),
        time=fact.time,
        correlation_id=fact.correlation_id,
        causation_id=fact.causation_id,
        source=fact.source,
    )


def datastore(dsn: str, schema: str, *, functions: bool = False) -> PostgresDatastore:
    return PostgresDatastore(
        dbname="postgres",
        host=parse_qs(urlsplit(dsn).query)["host"][0],
        port=5432,
        user="perdure",
        password="",
        pool_size=8,
        schema=schema,
        enable_db_functions=functions,
    )


def recorder(dsn: str, schema: str, *, functions: bool) -> PostgresApplicationRecorder:
    opened = datastore(dsn, schema, functions=functions)
    with opened.get_connection() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    made = PostgresApplicationRecorder(opened)
    made.create_table()
    return made


@dataclass
class Contest:
    """Ours and the package's ways to do one thing, with what each has done so far. Each of them is
    given the time when it is to end, and gives the events that it was about.
    """

    name: str
    ours: Callable[[float], Awaitable[int]]
    peers: dict[str, Callable[[float], int]]
    best: dict[str, float] = field(default_factory=dict)  # events a second, of the best turn

    async def turn(self) -> None:
        gc.collect()  # what one has left behind shall not be cleared up on the other's time
        started = time.perf_counter()
        self._note("", await self.ours(started + SLICE_S), started)
        for peer, run in self.peers.items():
            gc.collect()
            started = time.perf_counter()
            self._note(peer, run(started + SLICE_S), started)

    def _note(self, who: str, events: int, started: float) -> None:
        per_s = events / (time.perf_counter() - started)
        self.best[who] = max(self.best.get(who, 0.0), per_s)

    def say(self) -> None:
        value = self.best[""]
        for peer in self.peers:
            peer_value = self.best[peer]
            line = {
                "name": self.name,
                "value": round(value),
                "unit": "events/s",
                "peer": peer,
                "peer_value": round(peer_value),
                "ratio": round(value / peer_value, 2),
            }
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


async def appends(log: PostgresLog, dsn: str, writers: int, size: int, count: int) -> str:
    """Compare appends, and give the schema in which the package's rows are then."""
    schema = f"peer_{writers}_{size}"
    plain = recorder(dsn, f"{schema}_plain", functions=False)
    fast = recorder(dsn, schema, functions=True)
    mapper: Mapper[uuid.UUID] = Mapper(JSONTranscoder())
    stored = recorder(dsn, f"{schema}_store", functions=True)
    store = EventStore(mapper, stored)
    threads = ThreadPoolExecutor(writers)
    todo: list[Work] = []

    async def ours(end: float) -> int:
        async def write(own: Work) -> int:
            version = 0
            for events in own.ours:
                await log.append(StreamAppend(own.stream, version, events))
                version += size
                if time.perf_counter() > end:
                    break
            return version

        return sum(await asyncio.gather(*map(write, todo)))

    def theirs(end: float, lists: Callable[[Work], list[T]], write: Callable[[T], object]) -> int:
        def write_all(own: Work) -> int:
            written = 0
            for events in lists(own):
                write(events)
                written += size
                if time.perf_counter() > end:
                    break
            return written

        if writers == 1:
            return write_all(todo[0])
        return sum(threads.map(write_all, todo))

    contest = Contest(
        f"eventsourcing_append_{writers}_writers_batch_{size}",
        ours,
        {
            "eventsourcing recorder, encoded beforehand": lambda end: theirs(
                end, lambda own: own.rows, fast.insert_events
            ),
            "eventsourcing recorder at its defaults, encoded beforehand": lambda end: theirs(
                end, lambda own: own.rows, plain.insert_events
            ),
            "eventsourcing event store, JSON": lambda end: theirs(
                end, lambda own: own.theirs, store.put
            ),
        },
    )
    for _ in range(TURNS):
        todo[:] = [work(mapper, size, count) for _ in range(writers)]
        await contest.turn()
    contest.say()
    threads.shutdown()
    for each in (plain, fast, stored):
        each.datastore.close()
    return schema


async def replay(log: PostgresLog, dsn: str, schema: str) -> None:
    peer = PostgresApplicationRecorder(datastore(dsn, schema))
    mapper: Mapper[uuid.UUID] = Mapper(JSONTranscoder())

    async def ours(end: float, read: Read) -> int:
        count, after = 0, 0
        while time.perf_counter() < end:
            page = await read(after=after, limit=PAGE_EVENTS)
            count += len(page)
            after = after + PAGE_EVENTS if len(page) == PAGE_EVENTS else 0
        return count

    def theirs(end: float, use: Callable[[Sequence[Notification]], object]) -> int:
        count, after = 0, 0
        while time.perf_counter() < end:
            page = peer.select_notifications(after, PAGE_EVENTS, inclusive_of_start=False)
            use(page)
            count += len(page)
            after = page[-1].id if len(page) == PAGE_EVENTS else 0
        return count

    def decode(page: Sequence[Notification]) -> None:
        for notification in page:
            mapper.to_domain_event(notification)

    contests = (
        Contest(
            "eventsourcing_read_stored",
            lambda end: ours(end, log.read_stored),
            {"eventsourcing select_notifications": lambda end: theirs(end, len)},
        ),
        Contest(
            "eventsourcing_replay",
            lambda end: ours(end, log.read_all),
            {
                "eventsourcing select_notifications, JSON decoded": lambda end: theirs(end, decode),
            },
        ),
    )
    for _ in range(2 * TURNS):
        for contest in contests:
            await contest.turn()
    for contest in contests:
        contest.say()
    peer.datastore.close()


async def measure(dsn: str) -> None:
    log, _ = await open_postgres(dsn)
    for writers, size, count in CASES:
        schema = await appends(log, dsn, writers, size, count)
    await replay(log, dsn, schema)
    await log.close()


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder) / "postgres") as server,
    ):
        asyncio.run(measure(server.dsn))


if __name__ == "__main__":
    main()
