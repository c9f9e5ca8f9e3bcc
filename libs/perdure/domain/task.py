"""A task's state.

A task passes the stages of its goal in order. A stage is carried out by attempts; each attempt has
a fence, a number that only ever rises within the task. Commands and reports are decided on in
`task_decisions`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pydantic import TypeAdapter

from perdure.domain.failures import Failure


class Stage(StrEnum):
    """A part of a task's work, carried out by one kind of worker."""

    PREPARE = "prepare"
    TRAIN = "train"
    PUBLISH = "publish"


class Status(StrEnum):
    """Where a task stands."""

    QUEUED = "queued"  # a stage waits for a worker
    RUNNING = "running"  # an attempt is assigned
    WAITING = "waiting"  # a retry waits for its time
    CANCELLING = "cancelling"  # an attempt is being stopped
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


STAGES: Final[dict[str, tuple[Stage, ...]]] = {
    "model": (Stage.PREPARE, Stage.TRAIN, Stage.PUBLISH),
    "dataset": (Stage.PREPARE,),
}
TERMINAL: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True)
class Blob:
    """A file in the object store."""

    key: str
    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Attempt:
    """One try at a stage by one worker. `outcome`: assigned, running, succeeded or failed."""

    fence: int
    stage: Stage
    worker_id: str
    incarnation: str
    outcome: str
    assigned_at: str
    started_at: str = ""
    ended_at: str = ""
    pid: int = 0
    resumed_from_epoch: int | None = None
    advanced: bool = False  # saved a checkpoint of its own: the failures before it no longer count
    failure: Failure | None = None
    detail: str = ""
    exit_code: int | None = None
    reports: int = 0  # how many of its worker's reports are recorded


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to. An epoch that ran twice is shown as it ran last."""

    epoch: int
    fence: int
    box_loss: float
    cls_loss: float
    dfl_loss: float
    map50: float
    map50_95: float
    learning_rate: float
    images: int
    duration_s: float


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint from which the training can go on."""

    epoch: int
    step: int
    fence: int
    blob: Blob
    best: bool


@dataclass(frozen=True)
class Trained:
    """What the train stage came to."""

    best_checkpoint: Blob
    best_epoch: int
    epochs: int
    map50: float
    map50_95: float
    weights_digest: str  # "" in logs from before it was recorded


@dataclass(frozen=True)
class WaitingRetry:
    """A retry that waits for its time."""

    number: int
    failure: Failure
    not_before: str


@dataclass(frozen=True)
class TaskFailure:
    """Why the task ended without a result, and the next step for a person."""

    failure: Failure
    detail: str
    advice: str


@dataclass(frozen=True)
class TaskState:
    """A task as its events tell it. `version` is the version of its stream."""

    id: str
    version: int
    goal: str
    name: str
    status: Status
    stage: Stage
    submitted_at: str
    submitted_by: str
    data_name: str
    upload: Blob | None
    rules_json: str  # import rules of the upload; "" for the defaults
    config: dict[str, Any] | None
    config_hash: str
    min_map50: float | None
    traceparent: str = (
        ""  # the trace in which it was submitted: all that is done for it belongs there
    )
    dataset_version: str = ""
    split_id: str = ""
    fence: int = 0
    attempts: tuple[Attempt, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()  # the last few, newest last
    trained: Trained | None = None
    retry: WaitingRetry | None = None
    model_id: str = ""
    map50: float | None = None  # of the published model, from its ONNX file
    map50_95: float | None = None
    failure: TaskFailure | None = None
    cancel_requested_by: str = ""
    stale_reports: tuple[str, ...] = field(
        default=()
    )  # ids of reports that came under an old fence
    ended_at: str = ""

    @property
    def ended(self) -> bool:
        """Whether the task is in a state that it never leaves."""
        return self.status in TERMINAL

    @property
    def current_attempt(self) -> Attempt | None:
        """The attempt that holds the current fence and has not ended."""
        if self.attempts and self.attempts[-1].outcome in ("assigned", "running"):
            return self.attempts[-1]
        return None

    def attempt(self, fence: int) -> Attempt | None:
        """The attempt with this fence."""
        return next((a for a in self.attempts if a.fence == fence), None)

    def failures(self, stage: Stage) -> tuple[Failure, ...]:
        """The failures of `stage` since it last made progress, oldest first."""
        found: list[Failure] = []
        for attempt in reversed(self.attempts):
            if attempt.stage is not stage:
                break
            if attempt.failure is not None:
                found.append(attempt.failure)
            if attempt.advanced:
                break
        return tuple(reversed(found))


KEPT_CHECKPOINTS: Final = 2  # the newest, and the one before it should the newest turn out damaged

_ADAPTER: Final = TypeAdapter(TaskState)


def to_json(state: TaskState) -> dict[str, Any]:
    """The one public JSON form of a task."""
    form: dict[str, Any] = _ADAPTER.dump_python(state, mode="json")
    return form


def from_json(form: dict[str, Any]) -> TaskState:
    """The task that `to_json` wrote."""
    return _ADAPTER.validate_python(form)


def task_stream(task_id: str) -> str:
    """The stream that holds a task's events."""
    return f"task-{task_id}"
