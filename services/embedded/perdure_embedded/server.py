"""The embedded server: builds every service from its ports, runs them, and stops them in the right
order.
"""

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from perdure.artifacts import open_store
from perdure.artifacts.port import ObjectStore
from perdure.domain.task import Stage
from perdure.eventlog.leadership import RELAY, while_leading
from perdure.eventlog.port import EventLog, ReadModels
from perdure.eventlog.postgres import open_postgres
from perdure.messaging import topology
from perdure.messaging.local import LocalBus
from perdure.runtime.attempt import AttemptSettings, Craft, child_worker
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.data_folder import emptied
from perdure.runtime.embedded_postgres import EmbeddedPostgres
from perdure.runtime.waiting import set_within
from perdure.runtime.worker import Worker, WorkerSettings
from perdure_data_prep.craft import preparing
from perdure_embedded.folder import DataFolder
from perdure_gateway.bootstrap import build_app
from perdure_gateway.server import GatewayServer
from perdure_gateway.settings import GatewaySettings
from perdure_publisher.craft import publishing
from perdure_relay.relay import Relay
from perdure_scheduler.dead_letters import DeadLetterKeeper
from perdure_scheduler.scheduler import Scheduler
from perdure_trainer_agent.craft import Training

log = logging.getLogger(__name__)

# A stop takes at most 10 s: this much for trainings to finish a step and write a checkpoint, and
# the rest for the servers.
CHILD_STOP_S: Final = 5.0
DRAIN_S: Final = 6.5
SETTLE_S: Final = 1.0
WORKER_NAMES: Final = {
    Stage.PREPARE: "data-prep",
    Stage.TRAIN: "trainer-agent",
    Stage.PUBLISH: "publisher",
}
# A service whose loop ended in an error is started again after this pause.
RESTART_PAUSE_S: Final = 1.0
POSTGRES_POLL_S: Final = 0.5


@dataclass(frozen=True)
class Ports:
    """What the services of one process share."""

    postgres: EmbeddedPostgres
    eventlog: EventLog
    read_models: ReadModels
    bus: LocalBus
    store: ObjectStore
    store_url: str


class EmbeddedServer:
    """All services in this process. The caller holds the data folder."""

    def __init__(
        self, folder: DataFolder, *, host: str, port: int, cache_max_bytes: int | None = None
    ) -> None:
        """`cache_max_bytes` is what the cache of data sets may take up; None: part of the disk."""
        self._folder = folder
        self._cache_max_bytes = cache_max_bytes
        self._host = host
        self._port = port
        self._clock = SystemClock()

    async def run(self, stopping: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Serve until `stopping` is set.

        `ready` is called with the URL once requests are answered.
        """
        async with AsyncExitStack() as stack:
            ports = await self._open(stack)
            # Without what an earlier server was taking when it was killed.
            await asyncio.to_thread(emptied, self._folder.spool)
            gateway = self._gateway(ports)
            stack.push_async_callback(gateway.stop)
            url = await gateway.start()
            control, data_plane = asyncio.Event(), asyncio.Event()
            async with asyncio.TaskGroup() as services:
                kept = [
                    services.create_task(_kept_running(name, run, control), name=name)
                    for name, run in self._control_plane(ports).items()
                ]
                workers = [
                    services.create_task(worker.run(data_plane, DRAIN_S), name=f"worker {stage}")
                    for stage, worker in self._workers(ports).items()
                ]
                with self._folder.announced(url):
                    ready(url)
                    await stopping.wait()
                data_plane.set()
                await asyncio.wait(workers, timeout=DRAIN_S + SETTLE_S)
                await ports.bus.settled(SETTLE_S)
                control.set()
                _, late = await asyncio.wait(kept, timeout=SETTLE_S)
                for service in late:
                    service.cancel()

    async def _open(self, stack: AsyncExitStack) -> Ports:
        postgres = EmbeddedPostgres(self._folder.postgres)
        stack.push_async_callback(asyncio.to_thread, postgres.stop)
        await asyncio.to_thread(postgres.start)
        eventlog, read_models = await open_postgres(postgres.dsn)
        stack.push_async_callback(eventlog.close)
        bus = LocalBus()
        stack.push_async_callback(bus.close)
        for queue in topology.CONTROL_QUEUES:
            await bus.declare(queue)  # before anybody speaks: nothing said is missed
        store_url = self._folder.store.as_uri()
        return Ports(postgres, eventlog, read_models, bus, open_store(store_url), store_url)

    def _control_plane(self, ports: Ports) -> dict[str, Callable[[asyncio.Event], Awaitable[None]]]:
        def scheduler(stopping: asyncio.Event) -> Awaitable[None]:
            # Built anew at each start: what it knew is in the log.
            return Scheduler(
                eventlog=ports.eventlog, bus=ports.bus, clock=self._clock, new_id=new_id
            ).run(stopping)

        def postgres(stopping: asyncio.Event) -> Awaitable[None]:
            return _keep_postgres(ports.postgres, stopping)

        def relay(stopping: asyncio.Event) -> Awaitable[None]:
            # It is alone, but takes the lock: who asks whether a relay is active looks there.
            relay = Relay(eventlog=ports.eventlog, checkpoints=ports.read_models, bus=ports.bus)
            return while_leading(ports.postgres.dsn, RELAY, relay.run, stopping)

        keeper = DeadLetterKeeper(ports.eventlog, ports.bus, self._clock)
        return {
            "postgres": postgres,
            "scheduler": scheduler,
            "dead letters": keeper.run,
            "relay": relay,
        }

    def _workers(self, ports: Ports) -> dict[Stage, Worker]:
        cache, max_bytes = self._folder.cache, self._cache_max_bytes
        training = Training(ports.store, cache, cache_max_bytes=max_bytes)
        crafts = {
            Stage.PREPARE: preparing(ports.store_url),
            Stage.TRAIN: training.craft(),
            Stage.PUBLISH: publishing(ports.store_url, cache, cache_max_bytes=max_bytes),
        }
        return {stage: self._worker(stage, craft, ports) for stage, craft in crafts.items()}

    def _worker(self, stage: Stage, craft: Craft, ports: Ports) -> Worker:
        node = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
        name = WORKER_NAMES[stage]
        return child_worker(
            WorkerSettings(f"{node}-{name}", (stage,), capacity=1),
            craft,
            AttemptSettings(self._folder.work, CHILD_STOP_S),
            bus=ports.bus,
            store=ports.store,
            clock=self._clock,
            new_id=new_id,
            outbox=self._folder.outbox / name,
        )

    def _gateway(self, ports: Ports) -> GatewayServer:
        app = build_app(
            log=ports.eventlog,
            read_models=ports.read_models,
            store=ports.store,
            bus=ports.bus,
            clock=self._clock,
            new_id=new_id,
            settings=GatewaySettings(spool_dir=self._folder.spool),
        )
        return GatewayServer(app, host=self._host, port=self._port)


async def _keep_postgres(postgres: EmbeddedPostgres, stopping: asyncio.Event) -> None:
    """Start the event log's server again, at the same address, when it has died."""
    while not stopping.is_set():
        if postgres.pid is None:
            log.error("PostgreSQL has died: it is started again")
            await asyncio.to_thread(postgres.start)
        await set_within(stopping, POSTGRES_POLL_S)


async def _kept_running(
    name: str, run: Callable[[asyncio.Event], Awaitable[None]], stopping: asyncio.Event
) -> None:
    """Run a service; start it again when it fails.

    What it did not finish, it finds again in the log.
    """
    while not stopping.is_set():
        try:
            await run(stopping)
        except Exception:
            log.exception("%s failed and is started again", name)
            await asyncio.sleep(RESTART_PAUSE_S)
