"""What cannot be measured stops nobody's work."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.messaging.local import LocalBus
from perdure.messaging.port import QueueView
from perdure.runtime.clock import SystemClock
from perdure_relay import measures as of_relay
from perdure_scheduler import measures as of_scheduler

DEADLINE_S = 10.0

Watch = Callable[[asyncio.Event], Awaitable[None]]


class Failing:
    """Answers with an error that nobody expects, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *_: Any) -> QueueView:
        self.asked += 1
        raise KeyError("nobody expects this")


async def goes_on(watch: Watch, failing: Failing) -> None:
    """Watch until it has failed twice, then stop."""
    stopping = asyncio.Event()
    watching = asyncio.ensure_future(watch(stopping))
    async with asyncio.timeout(DEADLINE_S):
        while failing.asked < 2 and not watching.done():
            await asyncio.sleep(0.01)
        stopping.set()
        await watching


async def test_the_scheduler_goes_on_when_its_queues_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(of_scheduler, "QUEUE_LOOK_S", 0.01)
    failing, bus = Failing(), LocalBus()
    monkeypatch.setattr(bus, "inspect", failing)
    scheduler: Any = SimpleNamespace(workers=SimpleNamespace(all=list), tasks=())
    measures = of_scheduler.Measures(bus, SystemClock())
    await goes_on(lambda stopping: measures.watch(scheduler, stopping), failing)
    assert "nobody expects this" in caplog.text


async def test_the_relay_goes_on_when_its_lag_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(of_relay, "LOOK_S", 0.01)
    failing, checkpoints = Failing(), MemoryReadModels()
    monkeypatch.setattr(checkpoints, "position", failing)
    measures = of_relay.Measures(MemoryLog(), checkpoints, SystemClock())
    await goes_on(measures.watch, failing)
    assert "nobody expects this" in caplog.text
