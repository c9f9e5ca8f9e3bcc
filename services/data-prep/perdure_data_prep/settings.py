"""What a data-prep worker can be told."""

from pydantic import Field

from perdure.runtime.settings import DataDir, Port
from perdure.runtime.worker_service import (
    WorkerId,
    WorkerServiceSettings,
    default_data_dir,
    default_worker_id,
)

NAME = "data-prep"


class DataPrepSettings(WorkerServiceSettings):
    """Settings of a data-prep worker, from environment variables."""

    worker_id: WorkerId = Field(default_factory=lambda: default_worker_id(NAME))
    data_dir: DataDir = Field(default=default_data_dir(NAME), validate_default=True)
    health_port: Port = 7423
