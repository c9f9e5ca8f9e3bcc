"""All tasks as the log tells them, and what must not stand in their streams."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain.reconciliation import Findings, Kind
from perdure.domain.task import Attempt, Status, TaskState, task_stream, to_json
from perdure.domain.task_evolution import evolve

# A task that waits longer for a worker, or for its cancel to be obeyed, is worth a look. A full
# queue is no fault.
WAITS_AFTER_S: Final = 600.0
_ENDED: Final = ("succeeded", "failed")
_PREFIX: Final = task_stream("")

Fault = tuple[Kind, str]


@dataclass
class _Live:
    """A task that has not ended.

    `causes` are hashes of the messages that were recorded in it; `cause` is the last one, and
    `types` what it has led to so far.
    """

    state: TaskState
    moved_at: str = ""
    cause: str = ""
    types: frozenset[str] = frozenset()
    causes: set[int] = field(default_factory=set)

    def take(self, state: TaskState, event: RecordedEvent) -> None:
        """`event` has made the task `state`."""
        same = event.causation_id == self.cause
        self.types = (self.types if same else frozenset()) | {event.type}
        self.state, self.moved_at, self.cause = state, event.time, event.causation_id
        self.causes.add(hash(event.causation_id))

    def repeats(self, event: RecordedEvent) -> bool:
        """Whether the message behind `event` was recorded before.

        All that one message leads to is appended at once, nothing twice: if it comes back later, or
        with more of the same, it was handled twice.
        """
        cause = event.causation_id
        if not cause or hash(cause) not in self.causes:
            return False
        return cause != self.cause or event.type in self.types


@dataclass(frozen=True)
class Standing:
    """Where the log leaves a task. `digest` is that of its public form; None: it has to be
    replayed to know.
    """

    version: int
    digest: bytes | None


class TaskAudit:
    """Folds every task, one event after another.

    Of a task that has ended only its standing is kept, so that memory grows by some 300 bytes a
    task, whatever the length of the log.
    """

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._live: dict[str, _Live] = {}
        self._ended: dict[str, Standing] = {}
        self._unreadable: set[str] = set()

    def take(self, event: RecordedEvent) -> None:
        """The next event. Those of other streams are passed over."""
        if not event.stream.startswith(_PREFIX):
            return
        task_id = event.stream.removeprefix(_PREFIX)
        if task_id in self._unreadable:
            return
        if task_id in self._ended:
            self._take_late(task_id, event)
        else:
            self._take(task_id, event)

    def _take(self, task_id: str, event: RecordedEvent) -> None:
        live = self._live.get(task_id)
        state = live.state if live else None
        try:
            found = None if live is None else _fault(live, event)
            after = evolve(state, event)
        except Exception as error:  # noqa: BLE001 - whatever stands there, it is told as a finding
            self._live.pop(task_id, None)
            self._unreadable.add(task_id)
            told = f"{type(error).__name__}: {error}"
            self._add((Kind.TASK_UNREADABLE, f"{_at(event)} cannot be replayed: {told}"), task_id)
            return
        if found is not None:
            self._add(found, task_id)
        if after.ended:
            self._live.pop(task_id, None)
            self._ended[task_id] = Standing(after.version, digest(to_json(after)))
            return
        live = live or self._live.setdefault(task_id, _Live(after))
        live.take(after, event)

    def _take_late(self, task_id: str, event: RecordedEvent) -> None:
        """An event of a task that has ended: only a stale report may come."""
        self._ended[task_id] = Standing(event.version, None)
        match event.data:
            case events_pb2.StaleReportRecorded():
                return
            case events_pb2.TaskSucceeded() | events_pb2.TaskFailed() | events_pb2.TaskCancelled():
                fault = (Kind.TASK_ENDED_TWICE, f"{_at(event)}: it had ended before")
            case _:
                fault = (Kind.FENCE_BROKEN, f"{_at(event)} after the task had ended")
        self._add(fault, task_id)

    def _add(self, fault: Fault, task_id: str) -> None:
        kind, detail = fault
        self._findings.add(kind, task_id, f"task {task_id}: {detail}")

    def end(self, now: str) -> None:
        """The log ends here, at the time of day `now`: name what waits for long."""
        for task_id, live in self._live.items():
            since = _waits_since(live)
            if since and _passed_s(since, now) > WAITS_AFTER_S:
                told = f"{live.state.status} in stage {live.state.stage} since {since}"
                self._findings.add(Kind.TASK_WAITS, task_id, f"task {task_id}: {told}")

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks there are, and how many of them have ended."""
        ended = len(self._ended)
        return {"tasks": len(self._live) + ended + len(self._unreadable), "tasks_ended": ended}

    def standings(self) -> Iterator[tuple[str, Standing]]:
        """Where the log leaves each task that can be replayed."""
        yield from self._ended.items()
        for task_id, live in self._live.items():
            yield task_id, Standing(live.state.version, digest(to_json(live.state)))

    def is_unreadable(self, task_id: str) -> bool:
        """Whether the task's events cannot be replayed."""
        return task_id in self._unreadable


def digest(form: dict[str, Any]) -> bytes:
    """A digest of a task's public form, 16 bytes."""
    text = json.dumps(form, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16).digest()


def _at(event: RecordedEvent) -> str:
    return f"{event.type} at position {event.position}"


def _fault(live: _Live, event: RecordedEvent) -> Fault | None:
    """What is wrong about `event` coming next; one thing at most, the plainest."""
    state, data = live.state, event.data
    if event.version != state.version + 1:
        gap = f"version {event.version} follows on {state.version}"
        return Kind.EVENTS_MISSING, f"{_at(event)}: {gap}"
    if isinstance(data, events_pb2.TaskSubmitted):
        return Kind.MESSAGE_TWICE, f"{_at(event)}: it had been submitted before"
    # What a message says about data sets and models stands and falls with what it does here.
    if live.repeats(event):
        twice = f"message {event.causation_id} had been recorded before"
        return Kind.MESSAGE_TWICE, f"{_at(event)}: {twice}"
    match data:
        case events_pb2.AttemptAssigned():
            return _assigned_wrongly(state, data, event)
        case (
            events_pb2.AttemptStarted()
            | events_pb2.EpochCompleted()
            | events_pb2.CheckpointSaved()
            | events_pb2.AttemptFailed()
            | events_pb2.AttemptSucceeded()
        ):
            attempt = state.attempt(data.fence)
            if attempt is None:
                return Kind.FENCE_BROKEN, f"{_at(event)}: attempt {data.fence} was never assigned"
            return _reported_wrongly(state, attempt, event)
        case _:
            return None


def _assigned_wrongly(
    state: TaskState, data: events_pb2.AttemptAssigned, event: RecordedEvent
) -> Fault | None:
    if state.current_attempt is not None:
        holds = f"attempt {state.current_attempt.fence} had not ended"
        return Kind.FENCE_BROKEN, f"{_at(event)}: {holds}"
    if data.fence != state.fence + 1:
        return Kind.FENCE_BROKEN, f"{_at(event)}: fence {data.fence} follows on {state.fence}"
    return None


def _reported_wrongly(state: TaskState, attempt: Attempt, event: RecordedEvent) -> Fault | None:
    data, fence = event.data, attempt.fence
    match data:
        case events_pb2.AttemptStarted() if attempt.outcome == "running":
            return Kind.PROGRESS_TWICE, f"{_at(event)}: attempt {fence} had begun before"
        case events_pb2.EpochCompleted():
            if any((e.fence, e.epoch) == (fence, data.epoch) for e in state.epochs):
                twice = f"attempt {fence} had completed epoch {data.epoch} before"
                return Kind.PROGRESS_TWICE, f"{_at(event)}: {twice}"
        case events_pb2.AttemptFailed() | events_pb2.AttemptSucceeded():
            if attempt.outcome in _ENDED:
                ended = f"attempt {fence} had {attempt.outcome} before"
                return Kind.ATTEMPT_ENDED_TWICE, f"{_at(event)}: {ended}"
    current = state.current_attempt
    if current is None or current.fence != fence:
        return Kind.FENCE_BROKEN, f"{_at(event)}: attempt {fence} did not hold the stage"
    if isinstance(data, events_pb2.AttemptSucceeded):
        for other in state.attempts:
            if other.stage is attempt.stage and other.outcome == "succeeded":
                twice = f"attempt {other.fence} had succeeded in stage {other.stage} before"
                return Kind.STAGE_SUCCEEDED_TWICE, f"{_at(event)}: {twice}"
    return _epochs_missing(state, attempt, event)


def _epochs_missing(state: TaskState, attempt: Attempt, event: RecordedEvent) -> Fault | None:
    """An attempt completes its epochs one after another, from the one it goes on from."""
    if attempt.outcome != "running":
        return None
    last = state.epochs[-1] if state.epochs else None
    known = last.epoch if last and last.fence == attempt.fence else attempt.resumed_from_epoch or 0
    match event.data:
        case events_pb2.EpochCompleted():
            missing_to = event.data.epoch - 1
        case events_pb2.AttemptSucceeded():
            missing_to = event.data.trained.epochs
        case _:
            return None
    if missing_to <= known:
        return None
    told = str(known + 1) if missing_to == known + 1 else f"{known + 1} to {missing_to}"
    return Kind.REPORT_MISSING, f"attempt {attempt.fence} never reported epoch {told}: {_at(event)}"


def _waits_since(live: _Live) -> str:
    """Since when the task waits for the scheduler; "" when it does not."""
    state = live.state
    match state.status:
        case Status.QUEUED | Status.CANCELLING:
            return live.moved_at
        case Status.WAITING if state.retry is not None:
            return state.retry.not_before
        case _:
            return ""


def _passed_s(earlier: str, later: str) -> float:
    passed: timedelta = datetime.fromisoformat(later) - datetime.fromisoformat(earlier)
    return passed.total_seconds()
