"""What a publish attempt is asked to do: its job.json, checked."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from perdure.domain.failures import Failure
from perdure.errors import AttemptError, InvalidConfig
from perdure.training.config import TrainConfig


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Checkpoint(_Part):
    """The best weights of the training, in the object store."""

    key: str
    digest: str  # BLAKE3, 64 hex digits
    size_bytes: int


class Gate(_Part):
    """What the model has to reach on the validation split; None is no condition."""

    min_map50: float | None = None


class PublishJob(_Part):
    """The job of one attempt at the publish stage."""

    task_id: str
    fence: int
    stage: Literal["publish"]
    store_url: str
    cache_root: str  # folder that holds the materialised data sets of this node
    cache_max_bytes: int | None = None  # what they may take up; None: a share of the disk
    name: str
    dataset_version: str
    split_id: str
    config_json: str
    config_hash: str
    checkpoint: Checkpoint
    best_epoch: int
    gate: Gate = Gate()
    threads: int | None = None  # of PyTorch and ONNX Runtime; None: one per core

    @property
    def model_id(self) -> str:
        """Return the id of the model that this attempt makes, if it does."""
        return f"{self.task_id}-{self.fence}"

    def key(self, file: str) -> str:
        """Say where a file of the model lies in the object store."""
        return f"models/{self.model_id}/{file}"

    def config(self) -> TrainConfig:
        """Read the training configuration. Raises AttemptError when its hash is another."""
        try:
            config = TrainConfig.from_canonical(self.config_json)
        except InvalidConfig as error:
            raise AttemptError(Failure.CONFIG_INVALID, error.message) from error
        if config.hash != self.config_hash:
            raise AttemptError(
                Failure.CONFIG_INVALID,
                f"the configuration hashes to {config.hash}, not {self.config_hash}: it was "
                "changed on its way here. Submit the task again",
            )
        return config


def read_job(job: dict[str, Any]) -> PublishJob:
    """Check what job.json holds. Raises AttemptError naming the first field that is wrong."""
    try:
        return PublishJob.model_validate(job)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise AttemptError(
            Failure.UNKNOWN, f"job.json is wrong at {field}: {first['msg']}. Report it with the log"
        ) from error
