"""A publisher, put together from its ports."""

from perdure.domain.task import Stage
from perdure.runtime.host import Host, Service
from perdure.runtime.worker_service import assemble_worker
from perdure_publisher.craft import publishing
from perdure_publisher.settings import PublisherSettings


async def assemble(settings: PublisherSettings, host: Host) -> Service:
    """A worker for the stage publish."""
    return await assemble_worker(
        settings,
        Stage.PUBLISH,
        lambda ports: publishing(
            ports.store_url,
            ports.cache,
            settings.threads,
            cache_max_bytes=settings.cache_max_bytes,
        ),
        host,
    )
