"""How fast the event log takes and gives events, in one JSON line each.

The peer is the same PostgreSQL in the same run without what makes it a log: rows that are encoded
beforehand go into a plain table by `executemany`, with no order, chain, versions or ids to keep;
they are read back undecoded.
"""

import asyncio
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.eventlog.stored import encode
from perdure.runtime.embedded_postgres import EmbeddedPostgres

MEASURE_S = 2.0  # at most per figure: ten figures, half a minute with everything around
MAX_EVENTS_PER_S = 20_000  # as many events are made up beforehand as this speed would use
PAGE_EVENTS = 1000
CASES = ((1, 1), (1, 100), (8, 1), (8, 100))  # writers, events per append

PLAIN_TABLE = """
CREATE TABLE plain (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream text, version bigint, type text, event_id text, data text, metadata text
)"""
PLAIN_INSERT = """
INSERT INTO plain (stream, version, type, event_id, data, metadata)
VALUES ($1, $2, $3, $4, $5, $6)"""


def batch(size: int) -> tuple[NewEvent, ...]:
    return tuple(
        NewEvent(
            id=str(uuid.uuid4()),
            data=events_pb2.EpochCompleted(
                fence=1, epoch=n, epochs=size, box_loss=0.51, map50=0.5, images=364, duration_s=9.5
            ),
            time="2026-01-02T03:04:05.000006+00:00",
            correlation_id="task-0123456789abcdef",
            causation_id=str(uuid.uuid4()),
            source="scheduler",
        )
        for n in range(size)
    )


async def events_per_s(
    batches: list[list[tuple[NewEvent, ...]]],
    write: Callable[[str, int, tuple[NewEvent, ...]], Awaitable[object]],
) -> float:
    """Events per second of writers that each call `write(stream, version, events)` in a loop."""
    written = 0

    async def writer(own: list[tuple[NewEvent, ...]]) -> None:
        nonlocal written
        stream, version = f"task-{uuid.uuid4().hex}", 0
        for events in own:
            if time.perf_counter() > deadline:
                return
            await write(stream, version, events)
            version += len(events)
            written += len(events)

    started = time.perf_counter()
    deadline = started + MEASURE_S
    await asyncio.gather(*(writer(own) for own in batches))
    return written / (time.perf_counter() - started)


async def append_figures(log: PostgresLog, dsn: str, writers: int, size: int) -> None:
    each = MAX_EVENTS_PER_S * MEASURE_S / writers / size
    batches = [[batch(size) for _ in range(int(each))] for _ in range(writers)]
    rows = {events[0].id: [encode(event) for event in events] for own in batches for events in own}

    async def append(stream: str, version: int, events: tuple[NewEvent, ...]) -> None:
        await log.append(StreamAppend(stream, version, events))

    async def insert(stream: str, version: int, events: tuple[NewEvent, ...]) -> None:
        texts = rows[events[0].id]
        arguments = [
            (stream, version + n, event.type, event.id, *text)
            for n, (event, text) in enumerate(zip(events, texts, strict=True), 1)
        ]
        async with pool.acquire() as connection:
            await connection.executemany(PLAIN_INSERT, arguments)

    value = await events_per_s(batches, append)
    async with asyncpg.create_pool(dsn, min_size=writers, max_size=writers) as pool:
        peer = await events_per_s(batches, insert)
    figure(f"eventlog_append_{writers}_writers_batch_{size}", value, "plain executemany", peer)


async def replay_figure(log: PostgresLog, dsn: str) -> None:
    async def pages(read: Callable[[int], Awaitable[int]]) -> float:
        started, position, count = time.perf_counter(), 0, 0
        while time.perf_counter() - started < MEASURE_S:
            last = await read(position)
            count += max(last - position, 0)
            position = last if last > position else 0
        return count / (time.perf_counter() - started)

    async def decoded(after: int) -> int:
        events = await log.read_all(after=after, limit=PAGE_EVENTS)
        return events[-1].position if events else 0

    connection = await asyncpg.connect(dsn)

    async def raw(after: int) -> int:
        rows = await connection.fetch(
            "SELECT * FROM plain WHERE id > $1 ORDER BY id LIMIT $2", after, PAGE_EVENTS
        )
        return after + len(rows) if rows else 0

    figure("eventlog_replay", await pages(decoded), "plain select, undecoded", await pages(raw))
    await connection.close()


def figure(name: str, value: float, peer: str, peer_value: float) -> None:
    line = {
        "name": name,
        "value": round(value),
        "unit": "events/s",
        "peer": peer,
        "peer_value": round(peer_value),
        "ratio": round(value / peer_value, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def measure(dsn: str) -> None:
    log, _ = await open_postgres(dsn)
    connection = await asyncpg.connect(dsn)
    await connection.execute(PLAIN_TABLE)
    await connection.close()
    for writers, size in CASES:
        await append_figures(log, dsn, writers, size)
    await replay_figure(log, dsn)
    await log.close()


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder) / "postgres") as server,
    ):
        asyncio.run(measure(server.dsn))


if __name__ == "__main__":
    main()
