"""A projector goes on through outages, and stops at a hole and at a broken fold."""

import asyncio

import pytest

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import DamagedLog, LogUnavailable
from perdure.eventlog import backoff
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.projector import Fold, Projector
from tests.builders.events import event, to

DEADLINE_S = 10.0


class FlakyLog(MemoryLog):
    """A log of which every other read fails."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read_all(self, *, after: int, limit: int = 1000) -> list[RecordedEvent]:
        self.reads += 1
        if self.reads % 2:
            raise LogUnavailable
        return await super().read_all(after=after, limit=limit)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(backoff, "LAST_RETRY_S", 0.002)


async def test_a_projector_stops_at_a_hole() -> None:
    log, read_models = MemoryLog(), MemoryReadModels()
    await log.append(to("task-1", 0, event(), event(), event()))
    del log.rows[1]
    count = Fold(lambda e: e.stream, lambda _body, e: {"position": e.position})

    with pytest.raises(DamagedLog) as found:
        async with asyncio.timeout(DEADLINE_S):
            await Projector(log, read_models, "counts", count).run()

    assert found.value.details["position"] == 2
    assert await read_models.position("counts") == 0


async def test_a_projector_survives_an_outage() -> None:
    log, read_models = FlakyLog(), MemoryReadModels()
    await log.append(to("task-1", 0, event(), event()))
    count = Fold(lambda e: e.stream, lambda body, _: {"n": (body or {"n": 0})["n"] + 1})
    projector = Projector(log, read_models, "counts", count)

    running = asyncio.create_task(projector.run())
    reached = await projector.reached(2, timeout_s=DEADLINE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert reached
    found = await read_models.get("counts", "task-1")
    assert found is not None
    assert found.body == {"n": 2}


async def test_a_projector_stops_when_its_fold_fails() -> None:
    log = MemoryLog()
    await log.append(to("task-1", 0, event()))
    broken = Fold(lambda e: e.stream, lambda _body, _event: {}["missing"])

    with pytest.raises(KeyError):
        async with asyncio.timeout(DEADLINE_S):
            await Projector(log, MemoryReadModels(), "broken", broken).run()


def test_delays_grow_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY_S", 0.1)
    monkeypatch.setattr(backoff, "LAST_RETRY_S", 0.5)
    delays = backoff.retry_delays()

    assert [next(delays) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
