"""What a trainer-agent can be told."""

from pydantic import Field

from perdure.runtime.settings import DataDir, Port
from perdure.runtime.worker_service import (
    CacheBytes,
    Threads,
    WorkerId,
    WorkerServiceSettings,
    default_data_dir,
    default_worker_id,
)

NAME = "trainer-agent"


class TrainerAgentSettings(WorkerServiceSettings):
    """Settings of a trainer-agent, from environment variables."""

    worker_id: WorkerId = Field(default_factory=lambda: default_worker_id(NAME))
    data_dir: DataDir = Field(default=default_data_dir(NAME), validate_default=True)
    threads: Threads = None
    cache_max_bytes: CacheBytes = None
    health_port: Port = 7424
