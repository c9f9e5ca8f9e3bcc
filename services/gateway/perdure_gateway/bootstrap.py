"""The gateway, put together from its ports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

import perdure
from perdure.artifacts.port import ObjectStore
from perdure.eventlog.port import EventLog, ReadModels
from perdure.messaging.port import Bus
from perdure.runtime.clock import Clock, NewId, SystemClock
from perdure.runtime.clock import new_id as random_id
from perdure_gateway import (
    audit,
    datasets,
    health,
    logs,
    models,
    problems,
    stream,
    tasks,
    uploads,
)
from perdure_gateway.context import Gateway
from perdure_gateway.guard import Guard
from perdure_gateway.live import LiveFeed
from perdure_gateway.projectors import Projectors
from perdure_gateway.settings import GatewaySettings

ROUTERS = (uploads, tasks, logs, stream, datasets, models, audit, health)


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
        live=LiveFeed(bus, name=new_id()),
        clock=clock or SystemClock(),
        new_id=new_id,
        settings=settings,
        settled=projectors.settled,
        check_projections=projectors.check,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with projectors.running():
            await gateway.live.start()
            try:
                yield
            finally:
                await gateway.live.close()

    app = FastAPI(
        title="Perdure",
        version=perdure.__version__,
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.gateway = gateway
    app.add_middleware(
        Guard,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=settings.max_body_bytes,
        max_upload_bytes=settings.max_upload_bytes,
    )
    problems.install(app)
    for module in ROUTERS:
        app.include_router(module.router)
    return app
