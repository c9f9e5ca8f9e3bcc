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
from perdure.crash_points import reached
from perdure.domain.failures import Failure, failure_behind
from perdure.domain.identifiers import SAFE_ID
from perdure.errors import BusUnavailable
from perdure.messaging import topology
from perdure.messaging.port import Bus, Delivery
from perdure.runtime.clock import Clock, NewId
from perdure.runtime.messages import handling, unwrap, wrap
from perdure.runtime.outbox import Outbox
from perdure.runtime.report_file import ReportFile
from perdure.runtime.waiting import set_within
from perdure.telemetry import tracing
from perdure.telemetry.logging_context import about

log = logging.getLogger(__name__)

HEARTBEAT_S: Final = 5.0
# Attempts that have ended here: offered again, because the message was late or came twice, they are
# not begun again. An offer is never older than some of them.
MAX_REMEMBERED: Final = 1000
# What an earlier start of this worker has left unsaid goes before the first heartbeat, which ends
# the attempts of that start. A scheduler that is there answers at once.
REPORTS_FIRST_S: Final = 10.0
# Of a drain's time, for the attempts to end: a little more than a child is given to stop, which is
# eight ninths. Then they are cut off.
ATTEMPTS_SHARE: Final = 0.92
CUT_ROUND_SHARE: Final = 0.01
# Answers to the last reports come within a second, if the scheduler is there; if not, the reports
# are on disk. A drain that took all its time before takes no more than this share for them.
MIN_FLUSH_S: Final = 1.0
MIN_FLUSH_SHARE: Final = 0.1

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
        self,
        settings: WorkerSettings,
        execute: Executor,
        *,
        bus: Bus,
        clock: Clock,
        new_id: NewId,
        reports: ReportFile | None = None,
    ) -> None:
        """`reports` keeps on disk what nobody has recorded yet; without it, in memory only."""
        self._settings = settings
        self._execute = execute
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self._incarnation = new_id()
        self._outbox = Outbox(bus, clock, reports)
        self._running: dict[AttemptKey, _Running] = {}
        self._reported: dict[AttemptKey, int] = {}  # how many reports each attempt has made
        self._ended: dict[AttemptKey, None] = {}
        self._draining = False
        self._beat = asyncio.Event()

    @property
    def unanswered(self) -> int:
        """How many reports the scheduler has not recorded yet."""
        return len(self._outbox)

    async def run(self, stopping: asyncio.Event, drain_s: float) -> None:
        """Work until `stopping` is set; then stop all attempts, within `drain_s`, and report
        them.
        """
        await self._outbox.load()
        consumer = await self._bus.consume(
            topology.work_queue(self._settings.worker_id), self._on_message
        )
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(self._outbox.run(), name="outbox"),
                tasks.create_task(self._heartbeats(), name="heartbeats"),
            ]
            await stopping.wait()
            await self._drain(drain_s)
            await consumer.cancel()
            for loop in loops:
                loop.cancel()

    async def _drain(self, drain_s: float) -> None:
        deadline = self._clock.monotonic() + drain_s
        self._draining = True
        self._beat.set()
        for running in self._running.values():
            _request(running, StopRequest(Failure.WORKER_STOPPED, "the worker was stopped"))
        cut_off = await _ended(
            {running.work for running in self._running.values()},
            within_s=drain_s * ATTEMPTS_SHARE,
            rounds_s=drain_s * CUT_ROUND_SHARE,
        )
        left_s = deadline - self._clock.monotonic()
        least_s = min(MIN_FLUSH_S, drain_s * MIN_FLUSH_SHARE)
        recorded = await self._outbox.flushed(timeout_s=max(left_s, least_s))
        await self._outbox.keep()
        if cut_off or not recorded:
            log.warning(
                "left behind: %d reports that are not recorded yet, on disk until the next start "
                "sends them; %d attempts that were cut off, to be begun again from the newest "
                "checkpoint in the store",
                len(self._outbox),
                cut_off,
            )

    async def _on_message(self, delivery: Delivery) -> None:
        with handling(delivery):
            await self._handle(delivery)

    async def _handle(self, delivery: Delivery) -> None:
        match delivery.message.type:
            case "CancelAttempt":
                cancel = unwrap(delivery.message, work_pb2.CancelAttempt)
                running = self._running.get((cancel.task_id, cancel.fence))
                if running is not None:
                    _request(running, StopRequest(Failure.WORKER_STOPPED, cancel.reason))
            case "ReportsRecorded":
                await self._outbox.answered(unwrap(delivery.message, work_pb2.ReportsRecorded))
            case _:
                self._offered(unwrap(delivery.message, work_pb2.Assignment))

    def _offered(self, assignment: work_pb2.Assignment) -> None:
        """Take an assignment on, once.

        The scheduler offers it again while no heartbeat names it.
        """
        key = (assignment.task_id, assignment.fence)
        if not SAFE_ID.fullmatch(assignment.task_id) or (
            assignment.stage not in self._settings.stages
        ):
            # The id names a folder that is emptied.
            log.warning("an offer that no scheduler makes is passed over")
            return
        known = key in self._running or key in self._ended
        if assignment.incarnation != self._incarnation or known or self._draining:
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
        reached("worker.accepted")

    async def _carry_out(self, key: AttemptKey, context: AttemptContext) -> None:
        task_id, fence = key
        stage = context.assignment.stage
        with (
            about(task=task_id, attempt=fence),
            tracing.span(f"attempt {stage}", task=task_id, attempt=fence),
        ):
            log.info("attempt begins", extra={"stage": stage})
            await self._see_through(key, context)

    async def _see_through(self, key: AttemptKey, context: AttemptContext) -> None:
        try:
            ending = await self._ending(context)
            log.info("attempt ended: %s", _told(ending))
            reached("worker.ended")
            self._report(context.assignment, ending.body, ending)
            self._ended[key] = None
            while len(self._ended) > MAX_REMEMBERED:
                self._ended.pop(next(iter(self._ended)))
        finally:
            # Whatever happened: no heartbeat names it any more. Without its last report, the
            # scheduler offers it again.
            del self._running[key]
            self._reported.pop(key, None)
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
        key = (assignment.task_id, assignment.fence)
        self._reported[key] = self._reported.get(key, 0) + 1
        body.fence = assignment.fence
        report = work_pb2.Report(
            id=self._new_id(),
            task_id=assignment.task_id,
            stage=assignment.stage,
            fence=assignment.fence,
            worker_id=self._settings.worker_id,
            incarnation=self._incarnation,
            time=self._clock.now(),
            seq=self._reported[key],
            traceparent=tracing.traceparent(),
            findings=ending.findings if ending else None,
            model=ending.model if ending else None,
        )
        getattr(report, _FIELDS[type(body)]).CopyFrom(body)
        self._outbox.put(report)
        return report

    async def _heartbeats(self) -> None:
        if len(self._outbox):
            await self._outbox.reaches_broker.wait()  # nor could a heartbeat be sent before
            await self._outbox.flushed(REPORTS_FIRST_S)
        worker_id = self._settings.worker_id
        sent = True
        while True:
            self._beat.clear()
            try:
                heartbeat = self._heartbeat()
                await self._bus.publish(
                    topology.TELEMETRY,
                    worker_id,
                    wrap(self._new_id(), heartbeat, source=worker_id, time=heartbeat.time),
                )
                sent = True
            except BusUnavailable as error:
                if sent:  # once, not every HEARTBEAT_S
                    log.warning("no heartbeat gets through: %s", error)
                sent = False
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


def _told(ending: Ending) -> str:
    """How an attempt ended, for the log."""
    if isinstance(ending.body, events_pb2.AttemptFailed):
        return f"{ending.body.failure}: {ending.body.detail}"
    return "succeeded"


async def _ended(works: set[asyncio.Task[None]], *, within_s: float, rounds_s: float) -> int:
    """Wait until attempts have ended; those that have not, `within_s`, are cut off, and counted.

    A cancelled attempt still has a few things to put away, and waits for each: half a minute where
    the store is away. So it is cancelled again and again, which ends one such wait a time.
    """
    if not works:
        return 0
    _, left = await asyncio.wait(works, timeout=within_s)
    cut_off = len(left)
    while left:
        for work in left:
            work.cancel()
        _, left = await asyncio.wait(left, timeout=rounds_s)
    await asyncio.gather(*works, return_exceptions=True)
    return cut_off


def _request(running: _Running, request: StopRequest) -> None:
    if not running.context.stop.done():
        running.context.stop.set_result(request)


def failed_ending(failure: Failure, detail: str) -> Ending:
    """The ending of an attempt that came to nothing."""
    # Names of files may hold what is no text: a report can only carry text.
    text = detail.encode("utf-8", "backslashreplace").decode()
    return Ending(events_pb2.AttemptFailed(failure=failure, detail=text))
