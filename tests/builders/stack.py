"""Scheduler and workers on the memory log and the in-process bus, with work that a test scripts."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain.failures import Failure
from perdure.domain.task import TaskState, task_stream
from perdure.domain.task_evolution import replay
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import StreamAppend
from perdure.messaging.local import LocalBus
from perdure.messaging.topology import DEAD_LETTERS
from perdure.runtime.clock import new_id
from perdure.runtime.report_file import ReportFile
from perdure.runtime.worker import AttemptContext, Ending, Executor, Worker, WorkerSettings
from perdure_scheduler.scheduler import Scheduler
from tests.builders.tasks import NOW, submission, succeeded

DEADLINE_S = 20.0


class SteeredClock:
    """A clock whose monotonic time the test moves on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> str:
        return NOW

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Stack:
    """What a test works with."""

    log: MemoryLog = field(default_factory=MemoryLog)
    read_models: MemoryReadModels = field(default_factory=MemoryReadModels)
    bus: LocalBus = field(default_factory=LocalBus)
    clock: Any = field(default_factory=SteeredClock)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Scheduler]:
        scheduler = Scheduler(eventlog=self.log, bus=self.bus, clock=self.clock, new_id=new_id)
        async with _running(scheduler.run):
            yield scheduler

    @asynccontextmanager
    async def worker(
        self,
        execute: Executor,
        *,
        worker_id: str = "node-1",
        stages: tuple[str, ...] = ("prepare", "train", "publish"),
        capacity: int = 1,
        reports: ReportFile | None = None,
    ) -> AsyncIterator[Worker]:
        settings = WorkerSettings(worker_id, stages, capacity)
        worker = Worker(
            settings, execute, bus=self.bus, clock=self.clock, new_id=new_id, reports=reports
        )
        async with _running(lambda stopping: worker.run(stopping, drain_s=1.0)):
            yield worker

    async def submit(self, goal: str = "model", traceparent: str = "") -> str:
        task_id = new_id()
        event = NewEvent(new_id(), submission(goal, task_id), NOW, task_id, "", "test", traceparent)
        await self.log.append(StreamAppend(task_stream(task_id), 0, (event,)))
        return task_id

    async def task(self, task_id: str) -> TaskState:
        state = replay(await self.log.read_stream(task_stream(task_id)))
        assert state is not None
        return state

    async def until(self, task_id: str, condition: Callable[[TaskState], bool]) -> TaskState:
        """Wait until the task's state meets `condition`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                head = await self.log.head()
                state = await self.task(task_id)
                if condition(state):
                    return state
                await self.log.wait(after=head.position, timeout_s=1.0)

    async def ended(self, task_id: str) -> TaskState:
        return await self.until(task_id, lambda state: state.ended)

    async def dead_letters(self) -> int:
        await self.bus.declare(DEAD_LETTERS)
        return (await self.bus.inspect(DEAD_LETTERS)).messages

    async def types(self, task_id: str) -> list[str]:
        return [event.type for event in await self.log.read_stream(task_stream(task_id))]


@asynccontextmanager
async def _running(run: Callable[[asyncio.Event], Awaitable[None]]) -> AsyncIterator[None]:
    stopping = asyncio.Event()
    task = asyncio.ensure_future(run(stopping))
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(task, DEADLINE_S)


async def succeed(context: AttemptContext) -> Ending:
    """An executor whose every attempt succeeds."""
    context.report(events_pb2.AttemptStarted(pid=1))
    return Ending(succeeded(context.assignment.stage))


async def until_stopped(context: AttemptContext) -> Ending:
    """An executor whose attempts run until they are asked to stop."""
    context.report(events_pb2.AttemptStarted(pid=1))
    request = await context.stop
    failed = events_pb2.AttemptFailed(failure=request.failure, detail=request.detail)
    return Ending(failed)


def fail_first(times: int, failure: Failure) -> Executor:
    """An executor whose first attempts fail."""
    left = times

    async def execute(context: AttemptContext) -> Ending:
        nonlocal left
        if left > 0:
            left -= 1
            return Ending(events_pb2.AttemptFailed(failure=failure, detail="scripted"))
        return await succeed(context)

    return execute
