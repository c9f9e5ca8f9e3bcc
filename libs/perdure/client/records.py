"""What the SDK gives back. `json` is always the server's own form, complete."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

Json = dict[str, Any]
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class Task:
    """A task. In lists, `json` lacks the long fields (attempts, epochs, checkpoints, config)."""

    id: str
    name: str
    goal: str
    status: str
    stage: str
    version: int
    dataset_version: str
    model_id: str
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """The task that the server described."""
        names = ("id", "name", "goal", "status", "stage", "version", "dataset_version", "model_id")
        return cls(**{name: form[name] for name in names}, json=form)

    @property
    def ended(self) -> bool:
        """Whether nothing will happen to the task any more."""
        return self.status in ENDED

    @property
    def failure(self) -> Mapping[str, str] | None:
        """Why it failed: `failure` (class), `detail`, `advice`; None when it did not."""
        failure: Mapping[str, str] | None = self.json["failure"]
        return failure

    @property
    def why_no_result(self) -> str:
        """For a task that failed or was cancelled: what happened, and what to do, in words."""
        if self.failure is None:
            return f"task {self.id} was {self.status}"
        failure = self.failure
        return (
            f"task {self.id} failed: {failure['failure']}: {failure['detail']}\n{failure['advice']}"
        )


@dataclass(frozen=True)
class Dataset:
    """A data set version."""

    version: str
    name: str
    classes: tuple[str, ...]
    images: int
    boxes: int
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """The data set that the server described."""
        classes = tuple(form["classes"])
        return cls(form["version"], form["name"], classes, form["images"], form["boxes"], form)


@dataclass(frozen=True)
class ModelFile:
    """A file of a model; `digest` is BLAKE3, 64 hex digits."""

    name: str
    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Model:
    """A model: `status` is registered, rejected or pending; `map50` is None before it was
    evaluated.
    """

    id: str
    status: str
    name: str
    task_id: str
    map50: float | None
    map50_95: float | None
    files: tuple[ModelFile, ...]
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """The model that the server described."""
        files = tuple(ModelFile(f["name"], f["digest"], f["size_bytes"]) for f in form["files"])
        return cls(
            id=form["id"],
            status=form["status"],
            name=form.get("name", ""),
            task_id=form.get("task_id", ""),
            map50=form.get("map50"),
            map50_95=form.get("map50_95"),
            files=files,
            json=form,
        )


@dataclass(frozen=True)
class Update:
    """Something new about a task: the task itself, or an attempt's telemetry (`progress`).

    `connected` is False while the server does not answer; then `task` is what was last known.
    """

    task: Task
    progress: Mapping[str, Any] | None = None
    event: Mapping[str, Any] | None = None
    connected: bool = True


@dataclass(frozen=True)
class LogPage:
    """A piece of a task's log, and the offset in bytes at which the next one begins."""

    text: str
    next_offset: int


@dataclass(frozen=True)
class RelayStatus:
    """How far the relay has published the log.

    `lag_s` is the age of the oldest event that it has not published, 0 when there is none. `active`
    is whether a relay leads; None where none is elected.
    """

    head: int
    position: int
    lag_events: int
    lag_s: float
    active: bool | None
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """The status that the server described."""
        names = ("head", "position", "lag_events", "lag_s", "active")
        return cls(**{name: form[name] for name in names}, json=form)


@dataclass(frozen=True)
class Verification:
    """The log was walked: events `first`..`last` are complete, and end in the hash `head`."""

    first: int
    last: int
    head: str
    json: Json


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up: `status` is parked or replayed. Lists leave out its body."""

    id: str
    status: str
    message_type: str
    task_id: str
    queues: tuple[str, ...]
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """The dead letter that the server described."""
        names = ("id", "status", "message_type", "task_id")
        fields = {name: form[name] for name in names}
        return cls(**fields, queues=tuple(form["queues"]), json=form)


@dataclass(frozen=True)
class Finding:
    """Something that a reconciliation found: `category` is lost, duplicated, differs, parked,
    owed or unchecked.
    """

    category: str
    kind: str
    subject: str
    detail: str
    advice: str


@dataclass(frozen=True)
class Reconciliation:
    """The log held against what belongs to it.

    `ok`: all was looked at, and there is nothing but what is owed.
    """

    ok: bool
    head: int
    counts: Mapping[str, int]
    findings: tuple[Finding, ...]
    json: Json

    @classmethod
    def of(cls, form: Json) -> Self:
        """What the server found."""
        names = ("category", "kind", "subject", "detail", "advice")
        findings = tuple(Finding(*(entry[name] for name in names)) for entry in form["findings"])
        return cls(form["ok"], form["head"], form["counts"], findings, form)
