"""What a submission has to look like, and what becomes of it."""

import asyncio
import hashlib
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from perdure.contracts.codec import canonical_json
from perdure.contracts.v1 import events_pb2
from perdure.datasets.rules import import_rules
from perdure.errors import InvalidInput, NotFound
from perdure.training.config import TrainConfig
from perdure_gateway.context import DATASETS, Gateway


def _printable(text: str) -> str:
    # Names go into logs, terminals and JSON columns; a NUL would be refused by the last.
    if not text.isprintable() or not text.strip():
        raise ValueError("has to be printable text on one line")
    return text.strip()


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Upload(_Strict):
    """What POST /v1/uploads answered."""

    key: Annotated[str, Field(pattern=r"^uploads/[0-9a-f]{64}\.zip$")]
    digest: Digest
    size_bytes: Annotated[int, Field(ge=0)]


class Data(_Strict):
    """A data set version that exists, or an upload."""

    dataset_version: Digest | None = None
    upload: Upload | None = None
    rules: dict[str, Any] = Field(default_factory=dict)  # how the upload is imported

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.dataset_version is None) == (self.upload is None):
            raise ValueError("name either a dataset_version or an upload")
        if self.rules and self.upload is None:
            raise ValueError("rules are for the import of an upload; a version is imported already")
        return self


class Gate(_Strict):
    """What a model has to reach to be registered."""

    min_map50: Annotated[float | None, Field(ge=0, le=1)] = None


class Submission(_Strict):
    """A task to be done: train and publish a model, or only import a data set."""

    goal: Literal["model", "dataset"]
    name: Name
    data: Data
    config: dict[str, Any] = Field(default_factory=dict)
    gate: Gate = Gate()


def task_id_for(idempotency_key: str) -> str:
    """The task that this key submits: 16 hex digits, always the same."""
    return hashlib.sha256(f"perdure/submission/{idempotency_key}".encode()).hexdigest()[:16]


async def to_event(
    gateway: Gateway, submission: Submission, task_id: str, submitted_by: str
) -> events_pb2.TaskSubmitted:
    """The fact that follows from a submission. Raises InvalidConfig, InvalidInput and NotFound."""
    event = events_pb2.TaskSubmitted(
        task_id=task_id, goal=submission.goal, name=submission.name, submitted_by=submitted_by
    )
    if submission.goal == "model":
        config = TrainConfig.from_pairs(submission.config)
        event.config_json = config.canonical()
        event.config_hash = config.hash
        if submission.gate.min_map50 is not None:
            event.gate.min_map50 = submission.gate.min_map50
    elif submission.config or submission.gate.min_map50 is not None:
        raise InvalidInput("a data set is imported without a training configuration and a gate")
    event.data.CopyFrom(await _source(gateway, submission))
    return event


async def _source(gateway: Gateway, submission: Submission) -> events_pb2.DataSource:
    version, upload = submission.data.dataset_version, submission.data.upload
    if version is not None:
        document = await gateway.document(DATASETS, version)
        if document is None:
            raise NotFound(f"there is no data set version {version}", dataset_version=version)
        return events_pb2.DataSource(dataset_version=version, name=document.body["name"])
    assert upload is not None
    stored = await asyncio.to_thread(gateway.store.stat, upload.key)
    if stored is None:
        raise NotFound(f"there is no upload {upload.key}: send the archive to /v1/uploads first")
    if (stored.digest, stored.size_bytes) != (upload.digest, upload.size_bytes):
        raise InvalidInput(f"upload {upload.key} has another digest or size: send it again")
    rules = import_rules(submission.data.rules).to_json()
    blob = events_pb2.Blob(key=stored.key, digest=stored.digest, size_bytes=stored.size_bytes)
    return events_pb2.DataSource(
        upload=blob, name=submission.name, rules_json=canonical_json(rules) if rules else ""
    )
