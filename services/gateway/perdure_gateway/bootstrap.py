"""The gateway, put together from its ports."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import perdure
from perdure.artifacts.port import ObjectStore
from perdure.eventlog.port import EventLog, ReadModels
from perdure.messaging.port import Bus
from perdure.runtime.clock import Clock, NewId, SystemClock
from perdure.runtime.clock import new_id as random_id
from perdure.runtime.data_folder import emptied
from perdure.runtime.health import Checks, database
from perdure.runtime.health import store as store_check
from perdure.runtime.host import Host, Service
from perdure.runtime.waiting import first_of
from perdure_gateway import (
    audit,
    blobs,
    datasets,
    dead_letters,
    health,
    logs,
    models,
    probes,
    problems,
    reconcile,
    relay,
    results,
    stream,
    tasks,
    uploads,
)
from perdure_gateway.answering import Answering
from perdure_gateway.context import Gateway
from perdure_gateway.guard import Guard
from perdure_gateway.live import LiveFeed
from perdure_gateway.projectors import Projectors
from perdure_gateway.server import GatewayServer
from perdure_gateway.settings import LOOPBACK_HOSTS, GatewayServiceSettings, GatewaySettings
from perdure_gateway.tracing import Traced
from perdure_gateway.version_images import VersionImages

_logger = logging.getLogger(__name__)

ROUTERS = (
    uploads,
    blobs,
    tasks,
    logs,
    results,
    stream,
    datasets,
    probes,
    models,
    audit,
    dead_letters,
    reconcile,
    relay,
    health,
)


def build_app(
    *,
    log: EventLog,
    read_models: ReadModels,
    store: ObjectStore,
    bus: Bus,
    clock: Clock | None = None,
    new_id: NewId = random_id,
    settings: GatewaySettings | None = None,
) -> FastAPI:
    """The gateway as an ASGI app. Its lifespan runs the projections and the live feed.

    The ports stay open when the app ends: whoever made them closes them.
    """
    settings = settings or GatewaySettings()
    projectors = Projectors(log, read_models)
    gateway = Gateway(
        log=log,
        read_models=read_models,
        store=store,
        images=VersionImages(store),
        bus=bus,
        live=LiveFeed(bus, name=new_id()),
        clock=clock or SystemClock(),
        new_id=new_id,
        settings=settings,
        settled=projectors.settled,
        check_projections=projectors.check,
    )
    # Each asked for by itself: what hangs keeps only those waiting who need it.
    checks = {
        "checks": Checks(health.readiness(gateway)),
        "database": Checks({"database": database(log)}),
        "store": Checks({"store": store_check(store)}),
    }

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with projectors.running():
            await gateway.live.start()
            try:
                yield
            finally:
                for asked in checks.values():
                    await asked.close()
                await gateway.live.close()

    app = FastAPI(
        title="Perdure",
        version=perdure.__version__,
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        telemetry={"tracing": False, "logs": False},  # `Traced` is ours: also without a collector
    )
    app.state.gateway = gateway
    for name, asked in checks.items():
        setattr(app.state, name, asked)
    app.add_middleware(Traced)
    app.add_middleware(
        Guard,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=settings.max_body_bytes,
        max_upload_bytes=settings.max_upload_bytes,
        max_blob_bytes=settings.max_blob_bytes,
    )
    app.add_middleware(Answering)
    problems.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    return app


async def assemble(settings: GatewayServiceSettings, host: Host) -> Service:
    """The gateway as a service of its own."""
    spool = await _spool(settings.data_dir, host)
    store = await host.store(settings.store_url)
    eventlog, read_models = await host.log(settings.log_url)
    bus = await host.bus(settings.bus_url)
    app = build_app(
        log=eventlog,
        read_models=read_models,
        store=store,
        bus=bus,
        settings=GatewaySettings(
            allowed_hosts=(*LOOPBACK_HOSTS, *settings.allowed_hosts),
            spool_dir=spool,
        ),
    )
    server = GatewayServer(
        app,
        host=settings.http_host,
        port=settings.http_port,
        trusted_network=settings.trusted_network,
    )
    with host.listening("http"):
        server.take_port()

    async def run(stopping: asyncio.Event) -> None:
        try:
            with host.listening("http"):
                url = await server.start()
            _logger.info("the API is at %s", url, extra={"url": url})
            await first_of(server.ended(), stopping.wait())
        finally:
            await server.stop()

    return Service(run, health.readiness(app.state.gateway))


async def _spool(data_dir: Path | None, host: Host) -> Path | None:
    """Where uploads are gathered, without those that an earlier, killed gateway has left there."""
    if data_dir is None:
        return None
    spool = data_dir / "spool"
    with host.data_dir(data_dir):
        await asyncio.to_thread(emptied, spool)
    return spool
