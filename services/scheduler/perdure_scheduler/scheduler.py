"""The process manager: gives work out, listens, and sees to it that every task ends.

It decides from the log and from heartbeats alone. What it holds in memory can be rebuilt from both
at any time, so that it may be killed at any time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from perdure.contracts.envelope import NewEvent, RecordedEvent
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.crash_points import reached
from perdure.domain.dataset import dataset_stream, rejected_stream
from perdure.domain.failures import Failure
from perdure.domain.identifiers import WORKER_ID
from perdure.domain.model import model_stream
from perdure.domain.task import Attempt, Status, TaskState
from perdure.domain.task_decisions import Assign, Lose, Receive, answer, assignable
from perdure.domain.worker import is_same, worker_stream
from perdure.errors import Conflict, NotFound, Unavailable, VersionConflict
from perdure.eventlog.port import EventLog, StreamAppend
from perdure.messaging import topology
from perdure.messaging.port import HANDLER_GRACE_S, Bus, Delivery
from perdure.runtime.clock import Clock, NewId
from perdure.runtime.messages import handling, unwrap, wrap
from perdure.runtime.waiting import first_of, set_within
from perdure.telemetry import tracing
from perdure.telemetry.logging_context import about
from perdure_scheduler.assignments import assignment_of
from perdure_scheduler.tasks import SOURCE, SideFact, Tasks
from perdure_scheduler.workers import LEASE_S, Workers, WorkerView

log = logging.getLogger(__name__)

# How often deadlines are looked at when nothing happens.
TICK_S: Final = 1.0
# Between two tries while the log or the broker does not answer.
UNAVAILABLE_PAUSE_S: Final = 1.0


class Scheduler:
    """One scheduler. Everything it does, it does under one lock, one thing after another."""

    def __init__(self, *, eventlog: EventLog, bus: Bus, clock: Clock, new_id: NewId) -> None:
        self._log = eventlog
        self._bus = bus
        self._clock = clock
        self._new_id = new_id
        self.tasks = Tasks(eventlog, clock)
        self.workers = Workers(clock.monotonic())
        self._lock = asyncio.Lock()
        self._ticked_at = clock.monotonic()
        self._hearing = True
        self._stopping = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Schedule until `stopping` is set."""
        self._stopping = stopping
        try:
            await self._patiently(self.tasks.catch_up)
            await self._serve(stopping)
        except Unavailable as error:
            log.warning("stopped while waiting: %s", error)

    async def _serve(self, stopping: asyncio.Event) -> None:
        reports = await self._bus.consume(topology.SCHEDULER_REPORTS, self._on_report)
        beats = await self._bus.consume(topology.SCHEDULER_HEARTBEATS, self._on_heartbeat)
        grace_s = 0.0  # cancelled, nobody has time for what handlers still wait for
        try:
            while not stopping.is_set():
                await self._patiently(self._tick)
                await self._wait(stopping)
            grace_s = HANDLER_GRACE_S
        finally:
            await asyncio.gather(beats.cancel(grace_s), reports.cancel(grace_s))

    async def _wait(self, stopping: asyncio.Event) -> None:
        """Until something was appended, or a tick has passed, or it is time to stop."""
        news = self._log.wait(after=self.tasks.position, timeout_s=TICK_S)
        try:
            await first_of(news, stopping.wait())
        except Unavailable as error:
            log.warning("waiting: %s", error)
            await self._pause()

    async def _patiently(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do `step` under the lock, again and again while the log or the broker is away.

        Raises Unavailable only when it is time to stop: a message is then not done with.
        """
        while True:
            try:
                async with self._lock:
                    await step()
            except Unavailable as error:
                log.warning("waiting: %s", error)
                await self._pause()
                if self._stopping.is_set():
                    raise
                self.workers.grace(self._clock.monotonic())
            else:
                return

    async def _pause(self) -> None:
        await set_within(self._stopping, UNAVAILABLE_PAUSE_S)

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        if now - self._ticked_at > LEASE_S / 2:
            # We were not running (a suspended machine, a blocked process): the silence was ours.
            self.workers.grace(now)
        self._ticked_at = now
        await self.tasks.catch_up()
        if not await self._hears():
            # No heartbeat could reach us: the silence was ours. Nor could work be given out.
            self.workers.grace(self._clock.monotonic())
            return
        for state in self.tasks:
            await self._watch(state)
        for state in self.tasks:
            await self._place(state)

    async def _hears(self) -> bool:
        """Whether heartbeats reach us, as the broker sees it."""
        why = "the broker counts no consumer"
        try:
            hears = (await self._bus.inspect(topology.SCHEDULER_HEARTBEATS)).consumers > 0
        except (Unavailable, NotFound) as error:
            hears, why = False, error.message
        if self._hearing and not hears:
            log.warning("hears no worker, and counts no silence until it does: %s", why)
        elif hears and not self._hearing:
            log.info("hears the workers again")
        self._hearing = hears
        return hears

    async def _watch(self, state: TaskState) -> None:
        """See to the attempt that runs: its lease, and a cancel that was asked for."""
        attempt = state.current_attempt
        if attempt is None:
            return
        now = self._clock.monotonic()
        silent_s = self.workers.silent_s(attempt.worker_id, now)
        if silent_s > LEASE_S:
            await self._lose_worker(state, attempt, silent_s)
        elif state.status is Status.CANCELLING:
            await self._cancel(state, attempt)

    async def _lose_worker(self, state: TaskState, attempt: Attempt, silent_s: float) -> None:
        detail = f"worker {attempt.worker_id} was silent for {silent_s:.0f} s"
        view = self.workers.get(attempt.worker_id)
        if view is not None:
            lost = events_pb2.WorkerLost(
                worker_id=attempt.worker_id, incarnation=view.incarnation, detail=detail
            )
            known = await self._log.read_stream(worker_stream(attempt.worker_id))
            await self._record_worker(lost, version=len(known))
            self.workers.forget(attempt.worker_id)
        await self._lose(state, attempt, detail, silent_s)

    async def _lose(
        self, state: TaskState, attempt: Attempt, detail: str, silent_s: float | None = None
    ) -> None:
        command = Lose(attempt.fence, Failure.LOST_WORKER, detail, self._clock.now(), silent_s)
        with (
            about(task=state.id, attempt=attempt.fence),
            tracing.span(f"lose {attempt.stage}", parent=state.traceparent),
        ):
            _, events = await self.tasks.execute(state.id, command, cause=f"lost/{attempt.fence}")
            if events:
                log.warning("attempt lost: %s", detail)

    async def _cancel(self, state: TaskState, attempt: Attempt) -> None:
        """Tell the worker, at each tick, until it reports the end.

        Cheap, and no message need arrive.
        """
        cancel = work_pb2.CancelAttempt(
            task_id=state.id,
            fence=attempt.fence,
            reason=f"cancelled by {state.cancel_requested_by}",
        )
        await self._publish_work(attempt.worker_id, cancel)

    async def _place(self, state: TaskState) -> None:
        """Give the stage that waits to the least busy worker that can do it."""
        if not assignable(state, self._clock.now()):
            return
        view = self._free_worker(state)
        if view is None:
            return
        with about(task=state.id), tracing.span(f"place {state.stage}", parent=state.traceparent):
            await self._assign(state, view)

    async def _assign(self, state: TaskState, view: WorkerView) -> None:
        command = Assign(view.registration.worker_id, view.incarnation, self._clock.now())
        cause = f"assign/{state.version}"
        try:
            after, events = await self.tasks.execute(state.id, command, cause=cause)
        except Conflict as conflict:  # cancelled meanwhile
            log.info("not assigned: %s", conflict)
            return
        reached("scheduler.assigned")
        if events and after is not None:
            await self._offer(after)
            reached("scheduler.offered")

    def _free_worker(self, state: TaskState) -> WorkerView | None:
        busy: dict[str, int] = {}
        for task in self.tasks:
            if task.current_attempt is not None:
                worker_id = task.current_attempt.worker_id
                busy[worker_id] = busy.get(worker_id, 0) + 1
        now = self._clock.monotonic()
        free = [
            view
            for view in self.workers.all()
            if state.stage in view.registration.stages
            and not view.draining
            and self.workers.silent_s(view.registration.worker_id, now) <= LEASE_S
            and busy.get(view.registration.worker_id, 0) < view.registration.capacity
        ]
        return min(
            free,
            key=lambda v: (busy.get(v.registration.worker_id, 0), v.registration.worker_id),
            default=None,
        )

    async def _offer(self, state: TaskState) -> None:
        attempt = state.current_attempt
        assert attempt is not None
        with tracing.span(f"offer {attempt.stage}", parent=state.traceparent):
            await self._publish_work(attempt.worker_id, assignment_of(state, attempt))

    async def _publish_work(
        self,
        worker_id: str,
        body: work_pb2.Assignment | work_pb2.CancelAttempt | work_pb2.ReportsRecorded,
    ) -> None:
        message = wrap(
            self._new_id(), body, source=SOURCE, subject=body.task_id, time=self._clock.now()
        )
        await self._bus.publish(topology.WORK, worker_id, message)

    async def _on_heartbeat(self, delivery: Delivery) -> None:
        heartbeat = unwrap(delivery.message, work_pb2.Heartbeat)
        if not WORKER_ID.fullmatch(heartbeat.worker.worker_id):
            # It would name a stream and a queue.
            log.warning("a heartbeat of a worker without a proper id is passed over")
            return
        await self._patiently(lambda: self._heard(heartbeat))

    async def _heard(self, heartbeat: work_pb2.Heartbeat) -> None:
        await self.tasks.catch_up()
        view, fresh = self.workers.heard(heartbeat, self._clock.monotonic())
        worker_id = view.registration.worker_id
        if fresh:
            await self._register(view.registration)
        for state in self.tasks:
            attempt = state.current_attempt
            if attempt is None or attempt.worker_id != worker_id:
                continue
            if attempt.incarnation != view.incarnation:
                await self._lose(state, attempt, f"worker {worker_id} was started anew")
            elif (state.id, attempt.fence) not in view.attempts:
                await self._offer(state)  # it never arrived, or its end was never heard of
        await self._end_zombies(view)
        if fresh:
            for state in self.tasks:
                await self._place(state)

    async def _end_zombies(self, view: WorkerView) -> None:
        """Stop what a worker still does although it has lost it: it holds up new work."""
        held = {
            (state.id, attempt.fence)
            for state in self.tasks
            if (attempt := state.current_attempt) is not None
        }
        for task_id, fence in view.attempts - held:
            cancel = work_pb2.CancelAttempt(task_id=task_id, fence=fence, reason="lease ended")
            await self._publish_work(view.registration.worker_id, cancel)

    async def _register(self, registration: events_pb2.WorkerRegistered) -> None:
        known = await self._log.read_stream(worker_stream(registration.worker_id))
        for event in known:
            data = event.data
            if isinstance(data, events_pb2.WorkerRegistered) and is_same(data, registration):
                return
        await self._record_worker(registration, version=len(known))

    async def _record_worker(
        self, body: events_pb2.WorkerRegistered | events_pb2.WorkerLost, *, version: int
    ) -> None:
        stream = worker_stream(body.worker_id)
        event = NewEvent(
            id=self._new_id(),
            data=body,
            time=self._clock.now(),
            correlation_id=stream,
            causation_id="",
            source=SOURCE,
        )
        try:
            await self._log.append(StreamAppend(stream, version, (event,)))
        except VersionConflict:
            log.info("another scheduler recorded the same worker", extra={"worker": body.worker_id})

    async def _on_report(self, delivery: Delivery) -> None:
        report = unwrap(delivery.message, work_pb2.Report)
        with handling(delivery), about(task=report.task_id, attempt=report.fence):
            await self._patiently(lambda: self._receive(report))

    async def _receive(self, report: work_pb2.Report) -> None:
        command = Receive(report, self._clock.now())
        try:
            state, events = await self.tasks.execute(
                report.task_id, command, cause=report.id, facts=_facts(report)
            )
        except Conflict:
            if await self.tasks.get(report.task_id) is None:
                # Of a log that is not this one, as after a restore: the worker need not keep it.
                await self._publish_work(report.worker_id, answer(None, report))
            raise
        reached("scheduler.recorded")
        _log_events(report, events)
        await self._publish_work(report.worker_id, answer(state, report))
        reached("scheduler.answered")
        if state is not None and not state.ended:
            await self._place(state)


def _facts(report: work_pb2.Report) -> tuple[SideFact, ...]:
    """What a last report says about a data set or a model."""
    facts: list[SideFact] = []
    match report.findings.WhichOneof("outcome"):
        case "imported":
            imported = report.findings.imported
            facts.append(SideFact(dataset_stream(imported.version), imported))
        case "rejected":
            rejected = report.findings.rejected
            facts.append(SideFact(rejected_stream(report.task_id), rejected))
    if report.findings.HasField("probed"):
        probed = report.findings.probed
        facts.append(SideFact(dataset_stream(probed.version), probed))
    model = report.model
    stream = model_stream(model.model_id)
    names = ("exported", "verified", "evaluated", "registered", "rejected")
    facts += [SideFact(stream, getattr(model, name)) for name in names if model.HasField(name)]
    return tuple(facts)


def _log_events(report: work_pb2.Report, events: tuple[RecordedEvent, ...]) -> None:
    for event in events:
        log.info(
            event.type,
            extra={"position": event.position},
        )
