"""What follows from a command or a report, given a task's state: events, or a Conflict."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from google.protobuf.message import Message

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.failures import POLICIES, Failure, failure_of
from perdure.domain.retry import next_retry
from perdure.domain.task import STAGES, Attempt, Stage, Status, TaskState
from perdure.errors import Conflict

Decision = tuple[Message, ...]

# A zombie may go on reporting for days. The first hundred reports tell its story.
MAX_STALE_REPORTS: Final = 100


@dataclass(frozen=True)
class Submit:
    """Take in a new task."""

    submission: events_pb2.TaskSubmitted


@dataclass(frozen=True)
class Assign:
    """Give the stage that waits to a worker. `now` is RFC 3339."""

    worker_id: str
    incarnation: str
    now: str


@dataclass(frozen=True)
class Receive:
    """A report came in from a worker."""

    report: work_pb2.Report
    now: str


@dataclass(frozen=True)
class Lose:
    """An attempt's worker is gone, or has been silent for `silent_s`."""

    fence: int
    failure: str
    detail: str
    now: str
    silent_s: float | None = None


@dataclass(frozen=True)
class RequestCancel:
    """A person wants the task to stop."""

    requested_by: str


Command = Submit | Assign | Receive | Lose | RequestCancel


def decide(state: TaskState | None, command: Command) -> Decision:
    """The events that follow. None at all when nothing does.

    Raises Conflict for a command that cannot be obeyed.
    """
    if isinstance(command, Submit):
        if state is not None:
            raise Conflict(f"there is a task {state.id} already")
        if command.submission.goal not in STAGES:
            raise Conflict(f"a task's goal is one of {', '.join(STAGES)}")
        return (command.submission,)
    if state is None:
        raise Conflict("there is no such task")
    match command:
        case Assign():
            return _assign(state, command)
        case Receive():
            return _receive(state, command)
        case Lose():
            return _lose(state, command)
        case RequestCancel():
            return _request_cancel(state, command)


def assignable(state: TaskState, now: str) -> bool:
    """Whether a stage of the task waits for a worker at this time."""
    if state.status is Status.WAITING:
        assert state.retry is not None
        return _time(state.retry.not_before) <= _time(now)
    return state.status is Status.QUEUED


def _assign(state: TaskState, command: Assign) -> Decision:
    if not assignable(state, command.now):
        raise Conflict(f"task {state.id} is {state.status}: it waits for no worker")
    return (
        events_pb2.AttemptAssigned(
            stage=state.stage,
            fence=state.fence + 1,
            worker_id=command.worker_id,
            incarnation=command.incarnation,
        ),
    )


def _receive(state: TaskState, command: Receive) -> Decision:
    report = command.report
    attempt = state.current_attempt
    if attempt is None or not _is_from(report, attempt):
        return _stale(state, report)
    if report.seq != attempt.reports + 1:
        return ()  # known already; or one before it is missing, and the worker sends both again
    match report.WhichOneof("body"):
        case "started":
            return (report.started,)
        case "epoch":
            return (report.epoch,)
        case "checkpoint":
            return (report.checkpoint,)
        case "failed":
            return _failed(state, _own_words(report.failed), command.now)
        case "succeeded":
            return _succeeded(state, report.succeeded)
        case _:
            raise Conflict(f"report {report.id} of task {state.id} has no body")


def _own_words(failed: events_pb2.AttemptFailed) -> events_pb2.AttemptFailed:
    """What a worker says of its end. That it was lost, only the scheduler can say."""
    if failure_of(failed.failure) is not Failure.LOST_WORKER:
        return failed
    told = events_pb2.AttemptFailed()
    told.CopyFrom(failed)
    told.failure = Failure.UNKNOWN
    return told


def answer(state: TaskState | None, report: work_pb2.Report) -> work_pb2.ReportsRecorded:
    """What the worker is told once `report` was received: up to which one it need not keep them.

    Those of an attempt that lives are taken in order, without a gap. Any other changes nothing
    whether it comes or not.
    """
    attempt = state.attempt(report.fence) if state else None
    known = attempt is not None and attempt.incarnation == report.incarnation
    lives = state is not None and attempt is not None and attempt is state.current_attempt
    seq = attempt.reports if attempt is not None and known and lives else report.seq
    return work_pb2.ReportsRecorded(
        task_id=report.task_id, fence=report.fence, incarnation=report.incarnation, seq=seq
    )


def _is_from(report: work_pb2.Report, attempt: Attempt) -> bool:
    return report.fence == attempt.fence and report.incarnation == attempt.incarnation


def _stale(state: TaskState, report: work_pb2.Report) -> Decision:
    attempt = state.attempt(report.fence)
    same = attempt is not None and attempt.incarnation == report.incarnation
    if same and attempt is not None and report.seq <= attempt.reports:
        return ()  # recorded while the attempt lived
    if report.id in state.stale_reports:
        return ()
    if len(state.stale_reports) >= MAX_STALE_REPORTS:
        return ()
    body = report.WhichOneof("body")
    return (
        events_pb2.StaleReportRecorded(
            fence=report.fence,
            current_fence=state.fence,
            report=getattr(report, body).DESCRIPTOR.name if body else "",
            worker_id=report.worker_id,
        ),
    )


def _succeeded(state: TaskState, success: events_pb2.AttemptSucceeded) -> Decision:
    wanted = {Stage.PREPARE: "prepared", Stage.TRAIN: "trained", Stage.PUBLISH: "published"}
    if success.WhichOneof("result") != wanted[state.stage]:
        raise Conflict(f"the report of task {state.id} holds no result of stage {state.stage}")
    if state.stage is STAGES[state.goal][-1]:
        # A cancel that came too late changes nothing: the result is there.
        version = success.prepared.dataset_version or state.dataset_version
        ended = events_pb2.TaskSucceeded(
            dataset_version=version, model_id=success.published.model_id
        )
        return (success, ended)
    if state.status is Status.CANCELLING:
        return (success, events_pb2.TaskCancelled(detail=f"after stage {state.stage}"))
    return (success,)


def _lose(state: TaskState, command: Lose) -> Decision:
    attempt = state.current_attempt
    if attempt is None or attempt.fence != command.fence:
        return ()
    failed = events_pb2.AttemptFailed(
        fence=command.fence, failure=command.failure, detail=command.detail
    )
    what_follows = _failed(state, failed, command.now)
    if command.silent_s is None:
        return what_follows
    timed_out = events_pb2.HeartbeatTimedOut(
        fence=command.fence, worker_id=attempt.worker_id, silent_s=command.silent_s
    )
    return (timed_out, *what_follows)


def _failed(state: TaskState, failed: events_pb2.AttemptFailed, now: str) -> Decision:
    if state.status is Status.CANCELLING:
        return (failed, events_pb2.TaskCancelled(detail=f"in stage {state.stage}"))
    failure = failure_of(failed.failure)
    retry = next_retry((*state.failures(state.stage), failure))
    if retry is None:
        advice = POLICIES[failure].advice
        ended = events_pb2.TaskFailed(failure=failure, detail=failed.detail, advice=advice)
        return (failed, ended)
    scheduled = events_pb2.RetryScheduled(
        stage=state.stage,
        retry=retry.number,
        failure=failure,
        not_before=_later(now, retry.delay_s),
    )
    return (failed, scheduled)


def _request_cancel(state: TaskState, command: RequestCancel) -> Decision:
    if state.ended:
        raise Conflict(f"task {state.id} has ended already: {state.status}")
    if state.status is Status.CANCELLING:
        return ()
    requested = events_pb2.TaskCancelRequested(requested_by=command.requested_by)
    if state.current_attempt is None:
        return (requested, events_pb2.TaskCancelled(detail=f"before stage {state.stage} ran"))
    return (requested,)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _later(now: str, delay_s: float) -> str:
    return (_time(now) + timedelta(seconds=delay_s)).isoformat()
