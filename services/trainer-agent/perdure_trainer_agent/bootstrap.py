"""A trainer-agent, put together from its ports."""

from perdure.domain.task import Stage
from perdure.runtime.host import Host, Service
from perdure.runtime.worker_service import assemble_worker
from perdure_trainer_agent.craft import Training
from perdure_trainer_agent.settings import TrainerAgentSettings


async def assemble(settings: TrainerAgentSettings, host: Host) -> Service:
    """A worker for the stage train."""
    return await assemble_worker(
        settings,
        Stage.TRAIN,
        lambda ports: Training(
            ports.store,
            ports.cache,
            settings.threads,
            cache_max_bytes=settings.cache_max_bytes,
        ).craft(),
        host,
    )
