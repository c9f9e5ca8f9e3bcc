"""A data-prep worker, put together from its ports."""

from perdure.domain.task import Stage
from perdure.runtime.host import Host, Service
from perdure.runtime.worker_service import assemble_worker
from perdure_data_prep.craft import preparing
from perdure_data_prep.settings import DataPrepSettings


async def assemble(settings: DataPrepSettings, host: Host) -> Service:
    """A worker for the stage prepare."""
    return await assemble_worker(
        settings, Stage.PREPARE, lambda ports: preparing(ports.store_url), host
    )
