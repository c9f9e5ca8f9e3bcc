"""Following the log: in batches, through outages, and not past a hole."""

import asyncio

import pytest

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import DamagedLog, LogUnavailable
from perdure.eventlog import backoff
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.projector import Fold, Projector
from perdure.eventlog.tail import tail
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


async def positions(log: MemoryLog, count: int, after: int = 0) -> list[list[int]]:
    """The positions of the first `count` events above `after`, as the batches came."""
    batches: list[list[int]] = []
    async with asyncio.timeout(DEADLINE_S):
        async for events in tail(log, after, batch=2, poll_s=0.01):
            batches.append([e.position for e in events])
            if sum(map(len, batches)) >= count:
                break
    return batches


async def test_events_come_in_batches_from_where_it_was_asked() -> None:
    log = MemoryLog()
    await log.append(to("task-1", 0, *(event() for _ in range(6))))

    assert await positions(log, 5, after=1) == [[2, 3], [4, 5], [6]]


async def test_events_that_are_appended_later_come_too() -> None:
    log = MemoryLog()

    async with asyncio.TaskGroup() as group:
        following = group.create_task(positions(log, 3))
        await asyncio.sleep(0)  # lets it begin to wait
        for version in range(3):
            await log.append(to("task-1", version, event()))

    assert [p for batch in following.result() for p in batch] == [1, 2, 3]


async def test_a_log_that_does_not_answer_is_asked_again() -> None:
    log = FlakyLog()
    await log.append(to("task-1", 0, event(), event(), event()))

    assert await positions(log, 3) == [[1, 2], [3]]


async def test_nothing_is_given_out_past_a_hole() -> None:
    log = MemoryLog()
    await log.append(to("task-1", 0, event(), event(), event()))
    del log.rows[1]

    with pytest.raises(DamagedLog) as found:
        await positions(log, 3)

    assert found.value.details["position"] == 2


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
