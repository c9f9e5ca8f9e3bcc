"""The log's PostgreSQL dies and comes back: nothing is lost, nothing is recorded twice."""

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from infra.stack.ports import free_port
from infra.stack.postgres import Postgres
from infra.stack.proxy import Proxy
from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.eventlog.projector import Fold, Projector
from perdure.runtime.embedded_postgres import EmbeddedPostgres
from tests.builders.events import event, to

DEADLINE_S = 60.0
# At once, also where a busy machine lets this process stand still for some seconds. The driver's
# own way, to ask for an answer to its cancelling first, takes as long as acquiring may: 15 s.
GIVEN_UP_S = 8.0


def made(folder: Path) -> Postgres:
    return Postgres(folder, port=free_port(), password="p", durable=False)


async def append_at_last(log: PostgresLog, append: StreamAppend) -> tuple[RecordedEvent, ...]:
    """Append as a careful caller does: the very same again, until the log answers."""
    while True:
        try:
            return await log.append(append)
        except LogUnavailable:
            await asyncio.sleep(0.05)


@pytest.mark.crash
async def test_writers_a_follower_and_a_projector_survive_the_death_of_postgres(
    tmp_path: Path,
) -> None:
    writers, appends = 4, 60
    total = writers * appends
    server = EmbeddedPostgres(tmp_path / "postgres")
    await asyncio.to_thread(server.start)
    log, read_models = await open_postgres(server.dsn)
    count = Fold(
        lambda e: e.stream, lambda body, _: {"events": (body or {"events": 0})["events"] + 1}
    )
    projector = Projector(log, read_models, "counts", count)
    seen: list[int] = []

    async def write(stream: str) -> None:
        for version in range(appends):
            await append_at_last(log, to(stream, version, event()))

    async def follow() -> None:
        while len(seen) < total:
            try:
                await log.wait(after=len(seen), timeout_s=1.0)
                seen.extend(e.position for e in await log.read_all(after=len(seen)))
            except LogUnavailable:
                await asyncio.sleep(0.05)

    async def crash_and_recover() -> None:
        while len(seen) < total // 4:
            await asyncio.sleep(0.005)
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(psutil.Process(pid).wait, 10)
        with pytest.raises(LogUnavailable):
            await log.head()
        await asyncio.to_thread(server.start)

    running = asyncio.create_task(projector.run())
    try:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            group.create_task(follow())
            group.create_task(crash_and_recover())
            for number in range(writers):
                group.create_task(write(f"task-{number}"))
        assert await projector.reached(total, timeout_s=DEADLINE_S)
        counts = [(await read_models.get("counts", f"task-{n}")) for n in range(writers)]
        verified = await log.verify()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await log.close()
        await asyncio.to_thread(server.stop)

    assert seen == list(range(1, total + 1))
    assert verified.events == total
    assert [c.body["events"] for c in counts if c] == [appends] * writers


async def test_a_read_that_nobody_answers_can_be_given_up_at_once(tmp_path: Path) -> None:
    with made(tmp_path / "postgres") as server, Proxy(server.port) as proxy:
        log, _ = await open_postgres(server.url.replace(f":{server.port}/", f":{proxy.port}/"))
        await log.head()
        proxy.black_hole()
        began_at = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await log.head()
        assert time.monotonic() - began_at < GIVEN_UP_S
        proxy.restore()
        assert (await log.head()).position == 0
        await log.close()
