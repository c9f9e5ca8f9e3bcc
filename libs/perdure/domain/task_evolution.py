"""How events change a task's state."""

import json
from dataclasses import replace
from typing import Any

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain.failures import Failure, failure_of
from perdure.domain.task import (
    KEPT_CHECKPOINTS,
    STAGES,
    Attempt,
    Blob,
    Checkpoint,
    Epoch,
    Stage,
    Status,
    TaskFailure,
    TaskState,
    Trained,
    WaitingRetry,
)


def replay(events: list[RecordedEvent]) -> TaskState | None:
    """The state that `events` of one task lead to; None for no events."""
    state: TaskState | None = None
    for event in events:
        state = evolve(state, event)
    return state


def evolve(state: TaskState | None, event: RecordedEvent) -> TaskState:
    """`state` after `event`. Total: every event that `decide` made is taken."""
    data = event.data
    if state is None:
        assert isinstance(data, events_pb2.TaskSubmitted), (
            f"{event.stream} begins with {event.type}"
        )
        return _submitted(data, event)
    return replace(_after(state, event), version=event.version)


def _after(state: TaskState, event: RecordedEvent) -> TaskState:
    data = event.data
    match data:
        case events_pb2.AttemptAssigned():
            return _assigned(state, data, event)
        case events_pb2.AttemptStarted():
            return _started(state, data, event)
        case events_pb2.EpochCompleted():
            others = tuple(e for e in state.epochs if e.epoch != data.epoch)
            return _reported(replace(state, epochs=(*others, _epoch(data))), data.fence)
        case events_pb2.CheckpointSaved():
            kept = (*state.checkpoints, _checkpoint(data))[-KEPT_CHECKPOINTS:]
            return _reported(replace(state, checkpoints=kept), data.fence, advanced=True)
        case events_pb2.AttemptFailed():
            return _attempt_failed(state, data, event)
        case events_pb2.AttemptSucceeded():
            return _attempt_succeeded(state, data, event)
        case events_pb2.RetryScheduled():
            retry = WaitingRetry(data.retry, failure_of(data.failure), data.not_before)
            return replace(state, status=Status.WAITING, retry=retry)
        case events_pb2.TaskCancelRequested():
            return replace(
                state, status=Status.CANCELLING, cancel_requested_by=data.requested_by, retry=None
            )
        case events_pb2.TaskCancelled():
            return replace(state, status=Status.CANCELLED, ended_at=event.time)
        case events_pb2.TaskSucceeded():
            return replace(state, status=Status.SUCCEEDED, ended_at=event.time)
        case events_pb2.TaskFailed():
            failure = TaskFailure(failure_of(data.failure), data.detail, data.advice)
            return replace(state, status=Status.FAILED, failure=failure, ended_at=event.time)
        case events_pb2.StaleReportRecorded():
            return replace(state, stale_reports=(*state.stale_reports, event.causation_id))
        case _:  # HeartbeatTimedOut explains the AttemptFailed that follows it
            return state


def _submitted(data: events_pb2.TaskSubmitted, event: RecordedEvent) -> TaskState:
    return TaskState(
        id=data.task_id,
        version=event.version,
        goal=data.goal,
        name=data.name,
        status=Status.QUEUED,
        stage=STAGES[data.goal][0],
        submitted_at=event.time,
        submitted_by=data.submitted_by,
        data_name=data.data.name,
        upload=_blob(data.data.upload) if data.data.HasField("upload") else None,
        rules_json=data.data.rules_json,
        config=json.loads(data.config_json) if data.config_json else None,
        config_hash=data.config_hash,
        min_map50=data.gate.min_map50 if data.gate.HasField("min_map50") else None,
        dataset_version=data.data.dataset_version,
        traceparent=event.traceparent,
    )


def _assigned(
    state: TaskState, data: events_pb2.AttemptAssigned, event: RecordedEvent
) -> TaskState:
    attempt = Attempt(
        fence=data.fence,
        stage=Stage(data.stage),
        worker_id=data.worker_id,
        incarnation=data.incarnation,
        outcome="assigned",
        assigned_at=event.time,
    )
    return replace(
        state,
        status=Status.RUNNING,
        fence=data.fence,
        attempts=(*state.attempts, attempt),
        retry=None,
    )


def _started(state: TaskState, data: events_pb2.AttemptStarted, event: RecordedEvent) -> TaskState:
    resumed = data.resumed_from_epoch if data.HasField("resumed_from_epoch") else None
    return _reported(
        state,
        data.fence,
        outcome="running",
        started_at=event.time,
        pid=data.pid,
        resumed_from_epoch=resumed,
    )


def _attempt_failed(
    state: TaskState, data: events_pb2.AttemptFailed, event: RecordedEvent
) -> TaskState:
    failure = failure_of(data.failure)
    # Of a lost worker the scheduler said it: no report of the worker's own.
    change = _with_attempt if failure is Failure.LOST_WORKER else _reported
    return change(
        state,
        data.fence,
        outcome="failed",
        failure=failure,
        detail=data.detail,
        exit_code=data.exit_code if data.HasField("exit_code") else None,
        ended_at=event.time,
    )


def _attempt_succeeded(
    state: TaskState, data: events_pb2.AttemptSucceeded, event: RecordedEvent
) -> TaskState:
    state = _reported(state, data.fence, outcome="succeeded", ended_at=event.time)
    match data.WhichOneof("result"):
        case "prepared":
            prepared = data.prepared
            state = replace(
                state, dataset_version=prepared.dataset_version, split_id=prepared.split_id
            )
        case "trained":
            state = replace(state, trained=_trained(data.trained))
        case "published":
            published = data.published
            state = replace(
                state,
                model_id=published.model_id,
                map50=published.map50,
                map50_95=published.map50_95,
            )
    stages = STAGES[state.goal]
    done = stages.index(state.stage) + 1
    if done == len(stages) or state.status is Status.CANCELLING:
        return state  # the event that ends the task follows in the same append
    return replace(state, stage=stages[done], status=Status.QUEUED)


def _reported(state: TaskState, fence: int, **changes: Any) -> TaskState:
    """A report of the attempt's worker was recorded: one more, and what it changes."""
    attempt = state.attempt(fence)
    reports = attempt.reports + 1 if attempt is not None else 0
    return _with_attempt(state, fence, reports=reports, **changes)


def _with_attempt(state: TaskState, fence: int, **changes: Any) -> TaskState:
    attempts = tuple(replace(a, **changes) if a.fence == fence else a for a in state.attempts)
    return replace(state, attempts=attempts)


def _blob(blob: events_pb2.Blob) -> Blob:
    return Blob(blob.key, blob.digest, blob.size_bytes)


def _epoch(data: events_pb2.EpochCompleted) -> Epoch:
    return Epoch(
        epoch=data.epoch,
        fence=data.fence,
        box_loss=data.box_loss,
        cls_loss=data.cls_loss,
        dfl_loss=data.dfl_loss,
        map50=data.map50,
        map50_95=data.map50_95,
        learning_rate=data.learning_rate,
        images=data.images,
        duration_s=data.duration_s,
    )


def _checkpoint(data: events_pb2.CheckpointSaved) -> Checkpoint:
    return Checkpoint(data.epoch, data.step, data.fence, _blob(data.blob), data.best)


def _trained(data: events_pb2.TrainedModel) -> Trained:
    return Trained(
        best_checkpoint=_blob(data.best_checkpoint),
        best_epoch=data.best_epoch,
        epochs=data.epochs,
        map50=data.map50,
        map50_95=data.map50_95,
        weights_digest=data.weights_digest,
    )
