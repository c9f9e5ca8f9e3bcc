"""Scheduler and worker kit together: every accepted task ends, whatever happens to its attempts."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.dataset import dataset_stream, rejected_stream
from perdure.domain.failures import Failure
from perdure.domain.model import model_stream
from perdure.domain.task import Status, task_stream
from perdure.errors import BusUnavailable, LogUnavailable, NotFound, PerdureError
from perdure.eventlog.port import StreamAppend
from perdure.messaging import topology
from perdure.messaging.port import Delivery, Message, Queue, QueueView
from perdure.runtime import outbox
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.messages import wrap
from perdure.runtime.report_file import ReportFile
from perdure.runtime.worker import AttemptContext, Ending
from perdure_scheduler.scheduler import Scheduler
from perdure_scheduler.workers import LEASE_S
from tests.builders.stack import DEADLINE_S, Stack, fail_first, succeed, until_stopped
from tests.builders.tasks import succeeded


async def test_a_task_passes_all_stages() -> None:
    stack = Stack()
    async with stack.scheduler(), stack.worker(succeed):
        state = await stack.ended(await stack.submit())
    assert state.status is Status.SUCCEEDED
    assert [a.stage for a in state.attempts] == ["prepare", "train", "publish"]


async def test_a_worker_gets_only_the_stages_it_can_do_and_no_more_than_its_capacity() -> None:
    stack = Stack()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    turn = asyncio.Semaphore(0)

    async def execute(context: AttemptContext) -> Ending:
        stage = context.assignment.stage
        running[stage] += 1
        most[stage] = max(most[stage], running[stage])
        await turn.acquire()
        running[stage] -= 1
        return Ending(succeeded(stage))

    async with (
        stack.scheduler(),
        stack.worker(execute, worker_id="data-prep", stages=("prepare",), capacity=2),
        stack.worker(execute, worker_id="rest", stages=("train", "publish"), capacity=1),
    ):
        tasks = [await stack.submit() for _ in range(4)]
        for _ in range(12):
            turn.release()
        states = [await stack.ended(task) for task in tasks]
    prepared_by = {a.worker_id for s in states for a in s.attempts if a.stage == "prepare"}
    assert prepared_by == {"data-prep"}
    assert most["prepare"] <= 2
    assert most["train"] == 1


async def test_a_killed_attempt_is_followed_by_another_that_succeeds() -> None:
    stack = Stack()
    async with stack.scheduler(), stack.worker(fail_first(1, Failure.KILLED)):
        state = await stack.ended(await stack.submit())
    assert state.status is Status.SUCCEEDED
    assert [a.outcome for a in state.attempts] == ["failed"] + ["succeeded"] * 3


async def test_an_executor_that_raises_fails_its_attempt_and_nothing_else() -> None:
    stack = Stack()

    async def execute(context: AttemptContext) -> Ending:
        if context.assignment.fence == 1:
            raise OSError(28, "No space left on device")
        return await succeed(context)

    async with stack.scheduler(), stack.worker(execute):
        state = await stack.ended(await stack.submit())
    assert state.attempts[0].failure is Failure.DISK_FULL
    assert state.status is Status.SUCCEEDED


async def test_an_error_that_is_no_text_still_ends_the_attempt() -> None:
    stack = Stack()

    async def execute(context: AttemptContext) -> Ending:
        if context.assignment.fence == 1:
            raise FileNotFoundError("/data/\udcff/x is missing")
        return await succeed(context)

    async with stack.scheduler(), stack.worker(execute):
        state = await stack.ended(await stack.submit("dataset"))
    assert state.attempts[0].detail == "FileNotFoundError: /data/\\udcff/x is missing"
    assert state.status is Status.SUCCEEDED


async def test_a_scheduler_stops_though_the_log_is_away() -> None:
    stack = Stack()

    async def away(*_args: object, **_kwargs: object) -> object:
        raise LogUnavailable("the log is away")

    async with asyncio.timeout(5):
        async with stack.scheduler(), stack.worker(succeed):
            task_id = await stack.submit("dataset")
            stack.log.append = stack.log.read_all = away  # type: ignore[assignment,method-assign]
            await asyncio.sleep(0)
    assert not (await stack.task(task_id)).ended


async def test_a_cancelled_scheduler_ends_though_nobody_answers_its_handlers() -> None:
    stack = Stack()
    asked = asyncio.Event()

    async def unanswered(_heartbeat: work_pb2.Heartbeat) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with stack.worker(until_stopped) as worker:
        scheduler = Scheduler(eventlog=stack.log, bus=stack.bus, clock=stack.clock, new_id=new_id)
        running = asyncio.create_task(scheduler.run(asyncio.Event()))
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        scheduler._heard = unanswered  # type: ignore[method-assign]
        worker._beat.set()
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=1)
        assert done
        assert (await stack.bus.inspect(topology.SCHEDULER_HEARTBEATS)).consumers == 0


async def test_a_restarted_worker_loses_its_attempts_at_once() -> None:
    stack = Stack()
    async with stack.scheduler():
        task_id = await stack.submit("dataset")
        async with stack.worker(until_stopped) as worker:
            await stack.until(task_id, lambda s: s.status is Status.RUNNING)
            worker._outbox.put = lambda report: None  # its last words are lost
        async with stack.worker(succeed):
            state = await stack.ended(task_id)
    assert [a.failure for a in state.attempts] == [Failure.LOST_WORKER, None]
    assert state.status is Status.SUCCEEDED


async def test_a_silent_worker_is_lost_when_its_lease_ends_and_its_late_result_is_stale() -> None:
    stack = Stack()
    release = asyncio.Event()

    async def late(context: AttemptContext) -> Ending:
        await release.wait()
        return Ending(succeeded(context.assignment.stage))

    def cut() -> work_pb2.Heartbeat:
        raise BusUnavailable("no heartbeat leaves")

    async with stack.scheduler() as scheduler, stack.worker(late, worker_id="silent") as silent:
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        silent._heartbeat = cut  # type: ignore[method-assign]
        for _ in range(3):
            await _pass(stack, scheduler, LEASE_S / 3)
        assert (await stack.task(task_id)).status is Status.RUNNING
        await _pass(stack, scheduler, 1)
        assert (await stack.task(task_id)).status is Status.WAITING
        async with stack.worker(succeed, worker_id="other"):
            await stack.ended(task_id)
        release.set()
        state = await stack.until(task_id, lambda s: bool(s.stale_reports))
    types = await stack.types(task_id)
    assert types.count("HeartbeatTimedOut") == 1
    assert types.count("AttemptSucceeded") == 1
    assert state.status is Status.SUCCEEDED
    lost = await stack.log.read_stream("worker-silent")
    assert [event.type for event in lost][-1] == "WorkerLost"


async def test_a_worker_that_comes_back_gives_up_what_it_has_lost_and_takes_new_work() -> None:
    stack = Stack()
    zombies: list[str] = []

    async def first_hangs(context: AttemptContext) -> Ending:
        if context.assignment.fence > 1:
            return await succeed(context)
        zombies.append((await context.stop).detail)
        failed = events_pb2.AttemptFailed(failure=Failure.WORKER_STOPPED, detail="stopped")
        return Ending(failed)

    def cut() -> work_pb2.Heartbeat:
        raise BusUnavailable("no heartbeat leaves")

    async with stack.scheduler() as scheduler, stack.worker(first_hangs) as worker:
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        beat, worker._heartbeat = worker._heartbeat, cut  # type: ignore[method-assign]
        for _ in range(4):
            await _pass(stack, scheduler, LEASE_S / 3)
        assert (await stack.task(task_id)).status is Status.WAITING
        worker._heartbeat = beat  # type: ignore[method-assign]
        worker._beat.set()
        state = await stack.ended(task_id)
    assert zombies == ["lease ended"]
    assert state.status is Status.SUCCEEDED


async def test_a_machine_that_slept_loses_no_lease() -> None:
    stack = Stack()
    async with stack.scheduler() as scheduler, stack.worker(until_stopped):
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        await _pass(stack, scheduler, 100 * LEASE_S)
        assert (await stack.task(task_id)).status is Status.RUNNING


async def test_a_scheduler_that_was_away_gives_every_lease_its_full_length_again() -> None:
    stack = Stack()
    release = asyncio.Event()

    async def execute(context: AttemptContext) -> Ending:
        await release.wait()
        return Ending(succeeded(context.assignment.stage))

    async with stack.worker(execute):
        async with stack.scheduler():
            task_id = await stack.submit("dataset")
            await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        stack.clock.seconds += 100 * LEASE_S
        async with stack.scheduler():
            stack.clock.seconds += LEASE_S / 3
            release.set()
            state = await stack.ended(task_id)
    assert [a.outcome for a in state.attempts] == ["succeeded"]


@pytest.mark.parametrize(
    "answer", [BusUnavailable("the broker is away"), NotFound("no queue"), QueueView(3, 0)]
)
async def test_silence_while_no_heartbeat_can_arrive_loses_no_lease(
    answer: PerdureError | QueueView,
) -> None:
    stack = Stack()
    inspect = stack.bus.inspect

    async def away(_queue: Queue) -> QueueView:
        if isinstance(answer, PerdureError):
            raise answer
        return answer

    def cut() -> work_pb2.Heartbeat:
        raise BusUnavailable("no heartbeat leaves")

    async with stack.scheduler() as scheduler, stack.worker(until_stopped) as worker:
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        worker._heartbeat = cut  # type: ignore[method-assign]
        stack.bus.inspect = away  # type: ignore[method-assign]
        for _ in range(10):
            await _pass(stack, scheduler, LEASE_S / 3)
        stack.bus.inspect = inspect  # type: ignore[method-assign]
        for _ in range(3):
            await _pass(stack, scheduler, LEASE_S / 3)
        assert (await stack.task(task_id)).status is Status.RUNNING
        await _pass(stack, scheduler, 1)
        assert (await stack.task(task_id)).status is Status.WAITING


async def test_an_offer_that_was_lost_is_made_again() -> None:
    stack = Stack()
    dropped: list[str] = []
    publish = stack.bus.publish

    async def lossy(exchange: str, key: str, message: Message) -> None:
        if exchange == topology.WORK and not dropped:
            dropped.append(message.id)
            return
        await publish(exchange, key, message)

    stack.bus.publish = lossy  # type: ignore[method-assign]
    async with stack.scheduler(), stack.worker(succeed) as worker:
        task_id = await stack.submit("dataset")
        await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        worker._beat.set()
        state = await stack.ended(task_id)
    assert dropped
    assert len(state.attempts) == 1


@pytest.mark.parametrize("lost", [{0}, {1}, {2}, {0, 1}, {0, 1, 2, 3}])
async def test_reports_that_were_lost_on_the_way_are_sent_again_and_recorded_in_order(
    lost: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_RESEND_S", 0.05)
    stack = Stack(clock=SystemClock())
    publish, count = stack.bus.publish, itertools.count()

    async def lossy(exchange: str, key: str, message: Message) -> None:
        if exchange != topology.REPORTS or next(count) not in lost:
            await publish(exchange, key, message)

    stack.bus.publish = lossy  # type: ignore[method-assign]
    async with stack.scheduler(), stack.worker(succeed):
        task_id = await stack.submit("dataset")
        state = await stack.ended(task_id)
    assert [a.outcome for a in state.attempts] == ["succeeded"]
    assert (await stack.types(task_id))[2:4] == ["AttemptStarted", "AttemptSucceeded"]
    assert state.stale_reports == ()


async def test_a_result_that_no_one_heard_outlives_the_worker(tmp_path: Path) -> None:
    stack = Stack()
    publish = stack.bus.publish
    away = True

    async def cut(exchange: str, key: str, message: Message) -> None:
        if exchange == topology.REPORTS and away:
            raise BusUnavailable("the broker is away")
        await publish(exchange, key, message)

    stack.bus.publish = cut  # type: ignore[method-assign]
    async with stack.scheduler():
        task_id = await stack.submit("dataset")
        async with stack.worker(succeed, reports=ReportFile(tmp_path)) as worker:
            await stack.until(task_id, lambda s: s.status is Status.RUNNING)
            while len(worker._outbox) < 2:
                await asyncio.sleep(0.01)
        away = False
        async with stack.worker(until_stopped, reports=ReportFile(tmp_path)):
            state = await stack.ended(task_id)
    assert [a.outcome for a in state.attempts] == ["succeeded"]


async def test_every_message_twice_changes_nothing() -> None:
    stack = Stack()
    publish = stack.bus.publish

    async def twice(exchange: str, key: str, message: Message) -> None:
        await publish(exchange, key, message)
        await publish(exchange, key, message)

    stack.bus.publish = twice  # type: ignore[method-assign]
    async with stack.scheduler(), stack.worker(fail_first(1, Failure.KILLED)):
        state = await stack.ended(await stack.submit())
    assert state.status is Status.SUCCEEDED
    assert len(state.attempts) == 4
    assert state.stale_reports == ()
    assert not await stack.dead_letters()


async def test_a_cancel_stops_the_attempt_that_runs() -> None:
    stack = Stack()
    async with stack.scheduler(), stack.worker(until_stopped):
        task_id = await stack.submit()
        await stack.until(task_id, lambda s: bool(s.attempts and s.attempts[0].started_at))
        await _request_cancel(stack, task_id)
        state = await stack.ended(task_id)
    assert state.status is Status.CANCELLED
    assert state.attempts[0].detail == "cancelled by someone"


async def test_a_stopped_worker_reports_its_attempts_before_it_ends() -> None:
    stack = Stack()
    async with stack.scheduler():
        task_id = await stack.submit("dataset")
        async with stack.worker(until_stopped):
            await stack.until(task_id, lambda s: s.status is Status.RUNNING)
        state = await stack.until(task_id, lambda s: s.status is Status.WAITING)
    assert state.attempts[0].failure is Failure.WORKER_STOPPED


async def test_reports_wait_while_the_log_is_away() -> None:
    stack = Stack()
    append = stack.log.append
    refused = 0

    async def flaky(*appends: object) -> object:
        nonlocal refused
        if refused < 3:
            refused += 1
            raise LogUnavailable("the log is away")
        return await append(*appends)  # type: ignore[arg-type]

    async with stack.scheduler(), stack.worker(succeed):
        task_id = await stack.submit("dataset")
        stack.log.append = flaky  # type: ignore[assignment,method-assign]
        state = await stack.ended(task_id)
    assert refused == 3
    assert state.status is Status.SUCCEEDED
    assert not await stack.dead_letters()


async def test_facts_about_a_data_set_and_a_model_are_recorded_with_the_result() -> None:
    stack = Stack()

    async def execute(context: AttemptContext) -> Ending:
        stage = context.assignment.stage
        findings = model = None
        if stage == "prepare":
            imported = events_pb2.DatasetImported(version="v1", name="birds")
            probed = events_pb2.DatasetProbed(version="v1", warnings=["probe.blur"])
            findings = work_pb2.Findings(imported=imported, probed=probed)
        if stage == "publish":
            model = work_pb2.ModelFacts(
                model_id="m1",
                exported=events_pb2.ModelExported(model_id="m1"),
                registered=events_pb2.ModelRegistered(model_id="m1"),
            )
        return Ending(succeeded(stage), findings, model)

    async with stack.scheduler(), stack.worker(execute):
        for _ in range(2):
            await stack.ended(await stack.submit())
    dataset = await stack.log.read_stream(dataset_stream("v1"))
    assert [event.type for event in dataset] == ["DatasetImported", "DatasetProbed"]
    model = await stack.log.read_stream(model_stream("m1"))
    assert [event.type for event in model] == ["ModelExported", "ModelRegistered"]


async def test_a_refused_data_set_is_recorded_and_ends_the_task() -> None:
    stack = Stack()

    async def execute(context: AttemptContext) -> Ending:
        rejected = events_pb2.DatasetRejected(name="birds", errors=3)
        failed = events_pb2.AttemptFailed(failure=Failure.DATASET_INVALID, detail="3 errors")
        return Ending(failed, work_pb2.Findings(rejected=rejected))

    async with stack.scheduler(), stack.worker(execute):
        state = await stack.ended(await stack.submit())
    assert state.status is Status.FAILED
    events = await stack.log.read_stream(rejected_stream(state.id))
    assert [event.data.errors for event in events] == [3]


async def test_two_schedulers_accept_one_result() -> None:
    stack = Stack()
    async with stack.scheduler(), stack.scheduler(), stack.worker(succeed, capacity=4):
        tasks = [await stack.submit() for _ in range(5)]
        states = [await stack.ended(task) for task in tasks]
    for state in states:
        assert state.status is Status.SUCCEEDED
        assert (await stack.types(state.id)).count("AttemptSucceeded") == 3


async def test_a_report_about_nothing_goes_to_the_dead_letters() -> None:
    stack = Stack()
    await stack.bus.declare(topology.SCHEDULER_REPORTS)
    async with stack.scheduler(), stack.worker(succeed):
        stray = work_pb2.Report(id=new_id(), task_id="nobody", fence=1)
        await stack.bus.publish(topology.REPORTS, "train", wrap(stray.id, stray))
        await stack.ended(await stack.submit("dataset"))
    assert await stack.dead_letters() == 1


async def _pass(stack: Stack, scheduler: Scheduler, seconds: float) -> None:
    """Let time pass, and the scheduler notice."""
    stack.clock.seconds += seconds
    await scheduler._patiently(scheduler._tick)


async def _request_cancel(stack: Stack, task_id: str) -> None:
    state = await stack.task(task_id)
    data = events_pb2.TaskCancelRequested(requested_by="someone")
    event = NewEvent(new_id(), data, stack.clock.now(), task_id, "", "test")
    await stack.log.append(StreamAppend(task_stream(task_id), state.version, (event,)))


@pytest.mark.parametrize("worker_id", ["", "M" * 252, "a\0b", "../../x", "a b"])
async def test_a_heartbeat_whose_worker_id_is_none_is_passed_over(worker_id: str) -> None:
    stack = Stack()
    await stack.bus.declare(topology.SCHEDULER_HEARTBEATS)
    async with stack.scheduler() as scheduler, stack.worker(succeed):
        who = events_pb2.WorkerRegistered(worker_id=worker_id, incarnation="i", capacity=1)
        beat = wrap(new_id(), work_pb2.Heartbeat(worker=who, time="9999"))
        await stack.bus.publish(topology.TELEMETRY, "x", beat)
        await stack.ended(await stack.submit("dataset"))
        assert [v.registration.worker_id for v in scheduler.workers.all()] == ["node-1"]
    assert not await stack.dead_letters()


async def test_a_worker_is_told_to_forget_reports_of_a_task_that_the_log_does_not_know() -> None:
    stack = Stack()
    answers: list[work_pb2.ReportsRecorded] = []
    arrived = asyncio.Event()

    async def worker(delivery: Delivery) -> None:
        answers.append(work_pb2.ReportsRecorded.FromString(delivery.message.body))
        arrived.set()

    await stack.bus.declare(topology.SCHEDULER_REPORTS)
    await stack.bus.consume(topology.work_queue("node-9"), worker)
    async with stack.scheduler():
        stray = work_pb2.Report(
            id=new_id(), task_id="nobody", fence=1, incarnation="i", seq=7, worker_id="node-9"
        )
        await stack.bus.publish(topology.REPORTS, "train", wrap(stray.id, stray))
        await asyncio.wait_for(arrived.wait(), 5)
    assert (answers[0].task_id, answers[0].incarnation, answers[0].seq) == ("nobody", "i", 7)


@pytest.mark.parametrize(
    ("task_id", "stage"), [("/tmp/victim", "train"), ("../../x", "train"), ("t1", "../x"), ("", "")]
)
async def test_an_offer_that_no_scheduler_makes_is_passed_over(task_id: str, stage: str) -> None:
    stack = Stack()
    begun: list[str] = []

    async def execute(context: AttemptContext) -> Ending:
        begun.append(context.assignment.task_id)
        return await succeed(context)

    await stack.bus.declare(topology.work_queue("node-1"))
    async with stack.worker(execute) as worker:
        for wanted in (task_id, "t2"):
            offer = work_pb2.Assignment(
                task_id=wanted,
                stage=stage if wanted == task_id else "train",
                fence=1,
                incarnation=worker._incarnation,
            )
            await stack.bus.publish(topology.WORK, "node-1", wrap(new_id(), offer))
        async with asyncio.timeout(5):
            while not begun:
                await asyncio.sleep(0.01)
    assert begun == ["t2"]
