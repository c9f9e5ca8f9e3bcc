"""The worker kit: register, take assignments, heartbeat, report, obey cancels.

All three kinds of worker are this class with another `Executor`. No delivery is held while work
runs: an assignment is taken down and acknowledged, and the work goes on under the worker's
heartbeats.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.failures import Failure, failure_behind
from perdure.errors import BusUnavailable
from perdure.messaging import topology
from perdure.messaging.port import Bus, Consumer, Delivery
from perdure.runtime.clock import Clock, NewId
from perdure.runtime.messages import unwrap, wrap
from perdure.runtime.outbox import Outbox
from perdure.runtime.waiting import set_within

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
# Last reports that are kept, to be sent again when the scheduler offers an attempt that has ended
# here.
MAX_REMEMBERED: Final = 1000

ReportBody = (
    events_pb2.AttemptStarted
    | events_pb2.EpochCompleted
    | events_pb2.CheckpointSaved
    | events_pb2.AttemptFailed
    | events_pb2.AttemptSucceeded
)
_FIELDS: Final = {
    events_pb2.AttemptStarted: "started",
    events_pb2.EpochCompleted: "epoch",
    events_pb2.CheckpointSaved: "checkpoint",
    events_pb2.AttemptFailed: "failed",
    events_pb2.AttemptSucceeded: "succeeded",
}


@dataclass(frozen=True)
class WorkerSettings:
    """Who a worker is."""

    worker_id: str
    stages: tuple[str, ...]
    capacity: int


@dataclass(frozen=True)
class StopRequest:
    """Why an attempt should stop."""

    failure: Failure
    detail: str


@dataclass
class AttemptContext:
    """What an executor gets to carry out one attempt."""

    assignment: work_pb2.Assignment
    report: Callable[[ReportBody], work_pb2.Report]
    progress: work_pb2.AttemptProgress
    stop: asyncio.Future[StopRequest] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True)
class Ending:
    """An attempt's last report: how it ended, and the facts it established."""

    body: events_pb2.AttemptFailed | events_pb2.AttemptSucceeded
    findings: work_pb2.Findings | None = None
    model: work_pb2.ModelFacts | None = None


# Carries out an attempt and says how it ended. What it raises is reported as a failure of the
# attempt.
Executor = Callable[[AttemptContext], Awaitable[Ending]]
AttemptKey = tuple[str, int]  # task id, fence


@dataclass
class _Running:
    context: AttemptContext
    work: asyncio.Task[None]


class Worker:
    """One start of a worker. Its incarnation tells it from earlier starts under the same id."""

    def __init__(
        self, settings: WorkerSettings, execute: Executor, *, bus: Bus, clock: Clock, new_id: NewId
    ) -> None:
        self._settings = settings
        self._execute = execute
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self._incarnation = new_id()
        self._outbox = Outbox(bus)
        self._running: dict[AttemptKey, _Running] = {}
        self._last_reports: dict[AttemptKey, work_pb2.Report] = {}
        self._draining = False
        self._beat = asyncio.Event()

    async def run(self, stopping: asyncio.Event, drain_s: float) -> None:
        """Work until `stopping` is set; then stop all attempts, within `drain_s`, and report
        them.
        """
        consumer = await self._bus.consume(
            topology.work_queue(self._settings.worker_id), self._on_message
        )
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(self._outbox.run(), name="outbox"),
                tasks.create_task(self._heartbeats(), name="heartbeats"),
            ]
            await stopping.wait()
            await self._drain(consumer, drain_s)
            for loop in loops:
                loop.cancel()

    async def _drain(self, consumer: Consumer, drain_s: float) -> None:
        self._draining = True
        self._beat.set()
        await consumer.cancel()
        works = [running.work for running in self._running.values()]
        for running in self._running.values():
            _request(running, StopRequest(Failure.WORKER_STOPPED, "the worker was stopped"))
        if works:
            await asyncio.wait(works, timeout=drain_s)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        if not await self._outbox.flushed(timeout_s=drain_s):
            log.warning("the worker stops with reports that no broker has confirmed")

    async def _on_message(self, delivery: Delivery) -> None:
        if delivery.message.type == work_pb2.CancelAttempt.DESCRIPTOR.name:
            cancel = unwrap(delivery.message, work_pb2.CancelAttempt)
            running = self._running.get((cancel.task_id, cancel.fence))
            if running is not None:
                _request(running, StopRequest(Failure.WORKER_STOPPED, cancel.reason))
            return
        self._offered(unwrap(delivery.message, work_pb2.Assignment))

    def _offered(self, assignment: work_pb2.Assignment) -> None:
        """Take an assignment on, once.

        The scheduler offers it again while no heartbeat names it.
        """
        key = (assignment.task_id, assignment.fence)
        if assignment.incarnation != self._incarnation or key in self._running or self._draining:
            return
        if key in self._last_reports:  # it has ended, and the scheduler does not know yet
            self._outbox.put(self._last_reports[key])
            return
        if len(self._running) >= self._settings.capacity:
            log.warning("offered more than the capacity", extra={"task": assignment.task_id})
            return
        context = AttemptContext(
            assignment=assignment,
            report=lambda body: self._report(assignment, body),
            progress=work_pb2.AttemptProgress(
                task_id=assignment.task_id,
                stage=assignment.stage,
                fence=assignment.fence,
                phase="starting",
                last_step_time=self._clock.now(),
            ),
        )
        work = asyncio.create_task(self._carry_out(key, context), name=f"attempt {key}")
        self._running[key] = _Running(context, work)
        self._beat.set()

    async def _carry_out(self, key: AttemptKey, context: AttemptContext) -> None:
        try:
            ending = await self._ending(context)
            self._last_reports[key] = self._report(context.assignment, ending.body, ending)
            while len(self._last_reports) > MAX_REMEMBERED:
                self._last_reports.pop(next(iter(self._last_reports)))
        finally:
            # Whatever happened: no heartbeat names it any more, and the scheduler offers it again.
            del self._running[key]
            self._beat.set()

    async def _ending(self, context: AttemptContext) -> Ending:
        try:
            return await self._execute(context)
        except asyncio.CancelledError:
            return failed_ending(Failure.WORKER_STOPPED, "the worker was stopped")
        except Exception as error:
            task_id = context.assignment.task_id
            log.exception("the attempt failed in the worker", extra={"task": task_id})
            return failed_ending(failure_behind(error), f"{type(error).__name__}: {error}")

    def _report(
        self, assignment: work_pb2.Assignment, body: ReportBody, ending: Ending | None = None
    ) -> work_pb2.Report:
        body.fence = assignment.fence
        report = work_pb2.Report(
            id=self._new_id(),
            task_id=assignment.task_id,
            stage=assignment.stage,
            fence=assignment.fence,
            worker_id=self._settings.worker_id,
            incarnation=self._incarnation,
            time=self._clock.now(),
            findings=ending.findings if ending else None,
            model=ending.model if ending else None,
        )
        getattr(report, _FIELDS[type(body)]).CopyFrom(body)
        self._outbox.put(report)
        return report

    async def _heartbeats(self) -> None:
        while True:
            self._beat.clear()
            try:
                await self._bus.publish(
                    topology.TELEMETRY,
                    self._settings.worker_id,
                    wrap(self._new_id(), self._heartbeat()),
                )
            except BusUnavailable as error:
                log.warning("heartbeat not sent: %s", error)
            await set_within(self._beat, HEARTBEAT_S)

    def _heartbeat(self) -> work_pb2.Heartbeat:
        settings = self._settings
        return work_pb2.Heartbeat(
            worker=events_pb2.WorkerRegistered(
                worker_id=settings.worker_id,
                incarnation=self._incarnation,
                stages=settings.stages,
                capacity=settings.capacity,
                host=socket.gethostname(),
                pid=os.getpid(),
            ),
            time=self._clock.now(),
            attempts=[running.context.progress for running in self._running.values()],
            draining=self._draining,
        )


def _request(running: _Running, request: StopRequest) -> None:
    if not running.context.stop.done():
        running.context.stop.set_result(request)


def failed_ending(failure: Failure, detail: str) -> Ending:
    """The ending of an attempt that came to nothing."""
    # Names of files may hold what is no text: a report can only carry text.
    text = detail.encode("utf-8", "backslashreplace").decode()
    return Ending(events_pb2.AttemptFailed(failure=failure, detail=text))
