"""Two relays on one log: one publishes, the other takes over, and the order holds."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from perdure.crash_points import VARIABLE
from perdure.errors import LogUnavailable
from perdure.eventlog.leadership import CAMPAIGN_EVERY_S, RELAY
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.eventlog.read_models import PostgresReadModels
from perdure.runtime.embedded_postgres import EmbeddedPostgres
from tests.builders.events import event, to
from tests.children.relay import BATCH

pytestmark = pytest.mark.crash

Process = subprocess.Popen[str]
DEADLINE_S = 30.0
IDLE_S = 2.0
STREAMS = 4


@dataclass
class Rig:
    """A log with relays on it, and the file that is their broker's only queue."""

    server: EmbeddedPostgres
    log: PostgresLog
    read_models: PostgresReadModels
    published: Path
    versions: Counter[str] = field(default_factory=Counter)

    async def append(self, count: int) -> None:
        """Append events to several streams in turn."""
        for number in range(count):
            stream = f"task-{number % STREAMS}"
            await self._append_at_last(to(stream, self.versions[stream], event()))
            self.versions[stream] += 1

    async def _append_at_last(self, append: StreamAppend) -> None:
        """The very same again, until the log answers."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await self.log.append(append)
                    return
                except LogUnavailable:
                    await asyncio.sleep(0.05)

    @contextmanager
    def relay(self, name: str, *, crash_at: str = "", stop_in: int = 0) -> Iterator[Process]:
        """A relay process that stands by."""
        command = [sys.executable, "-m", "tests.children.relay"]
        command += [self.server.dsn, name, str(self.published), str(IDLE_S), str(stop_in)]
        environment = {**os.environ, VARIABLE: crash_at}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "stands by\n"
                yield process
            finally:
                process.kill()

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.published.read_text().splitlines()]

    async def until_published(self, position: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await self._position() < position:
                await asyncio.sleep(0.02)

    async def _position(self) -> int:
        try:
            return await self.read_models.position(RELAY)
        except LogUnavailable:
            return 0

    async def check_first_deliveries(self) -> None:
        """Whoever reads the queue, and passes over ids it knows, sees the log."""
        firsts = list(dict.fromkeys(line["id"] for line in self.lines()))
        assert firsts == [e.id for e in await self.log.read_all(after=0)]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    with EmbeddedPostgres(tmp_path / "postgres", durable=False) as server:
        log, read_models = await open_postgres(server.dsn)
        yield Rig(server, log, read_models, tmp_path / "published")
        await log.close()


async def until_dead(process: Process) -> float:
    assert await asyncio.to_thread(process.wait, DEADLINE_S) == -signal.SIGKILL
    return time.monotonic()


async def until_it_says(process: Process, what: str) -> float:
    """When the process logged a line with `what` in it."""

    def read() -> float:
        assert process.stdout is not None
        for line in process.stdout:
            if what in line:
                return time.monotonic()
        raise AssertionError(f"it ended without saying {what!r}")

    return await asyncio.wait_for(asyncio.to_thread(read), DEADLINE_S)


@pytest.mark.parametrize(
    ("point", "repeated"),
    [("relay.read:3", 0), ("relay.published:3", BATCH), ("relay.checkpointed:3", 0)],
)
async def test_a_killed_relay_is_replaced_and_nothing_is_missing(
    rig: Rig, point: str, repeated: int
) -> None:
    await rig.append(10 * BATCH)
    with rig.relay("first", crash_at=point) as first:
        await until_dead(first)
    assert await rig.read_models.position(RELAY) in (2 * BATCH, 3 * BATCH)
    with rig.relay("second"):
        await rig.append(BATCH)
        await rig.until_published(11 * BATCH)
    await rig.check_first_deliveries()
    assert len(rig.lines()) == 11 * BATCH + repeated


async def test_one_of_two_publishes_and_the_other_takes_over_within_seconds(rig: Rig) -> None:
    with rig.relay("first") as first:
        await until_it_says(first, "leads as relay")
        with rig.relay("second") as second:
            await rig.append(5 * BATCH)
            await rig.until_published(5 * BATCH)
            first.kill()
            died = await until_dead(first)
            led = await until_it_says(second, "leads as relay")
            assert led - died < CAMPAIGN_EVERY_S + 2.0  # two seconds for a busy machine
            await rig.append(5 * BATCH)
            await rig.until_published(10 * BATCH)
    by = [line["by"] for line in rig.lines()]
    assert by == ["first"] * 5 * BATCH + ["second"] * 5 * BATCH
    await rig.check_first_deliveries()


async def test_a_relay_that_was_stopped_while_it_published_repeats_one_batch_at_most(
    rig: Rig,
) -> None:
    await rig.append(10 * BATCH)
    with rig.relay("zombie", stop_in=3) as zombie, rig.relay("second"):
        await rig.until_published(10 * BATCH)
        halfway = 2 * BATCH + BATCH // 2
        assert [line["by"] for line in rig.lines()[: halfway + 1]] == [
            *["zombie"] * halfway,
            "second",
        ]
        zombie.send_signal(signal.SIGCONT)
        await until_it_says(zombie, "does not lead as relay any more")
        await rig.append(10 * BATCH)
        await rig.until_published(20 * BATCH)
    by_zombie = [line["id"] for line in rig.lines() if line["by"] == "zombie"]
    assert by_zombie == [e.id for e in await rig.log.read_all(after=0, limit=3 * BATCH)]
    await rig.check_first_deliveries()


async def test_relays_go_on_by_themselves_when_the_log_is_back(rig: Rig) -> None:
    await rig.append(5 * BATCH)
    with rig.relay("first") as first, rig.relay("second"):
        await until_it_says(first, "leads as relay")
        pid = rig.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(psutil.Process(pid).wait, DEADLINE_S)
        await until_it_says(first, "does not lead as relay any more")
        await asyncio.to_thread(rig.server.start)
        await rig.append(5 * BATCH)
        await rig.until_published(10 * BATCH)
    await rig.check_first_deliveries()
    assert len(rig.lines()) <= 11 * BATCH  # at most the batch that was on its way comes again
