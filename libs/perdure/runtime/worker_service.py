"""What data-prep, trainer-agent and publisher have in common as processes.

PERDURE_DATA_DIR holds `work/` (folders of running attempts), `cache/` (data sets laid out, may be
deleted while no worker runs) and `outbox/` (reports that nobody has recorded yet).
"""

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from perdure.artifacts.port import ObjectStore
from perdure.domain.identifiers import MAX_WORKER_ID_CHARACTERS, WORKER_ID
from perdure.domain.task import Stage
from perdure.messaging import topology
from perdure.runtime import health
from perdure.runtime.attempt import AttemptSettings, Craft, child_worker
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.data_folder import emptied, made
from perdure.runtime.host import Host, Service
from perdure.runtime.settings import (
    DataDir,
    DrainSeconds,
    ServiceSettings,
    StoreUrl,
    WholeNumber,
)
from perdure.runtime.worker import WorkerSettings
from perdure.telemetry import metrics

MAX_CAPACITY: Final = 64  # attempts at a time; a node with more devices runs several workers
MAX_THREADS: Final = 1024
# Of a drain's time, for the attempts to write a checkpoint; the rest is to report their end.
CHECKPOINT_SHARE: Final = 0.8

WorkerId = Annotated[
    str,
    Field(
        pattern=f"^{WORKER_ID.pattern}$",
        description=f"1 to {MAX_WORKER_ID_CHARACTERS} letters, digits and hyphens, and no other "
        "worker's",
    ),
]
Capacity = Annotated[
    int,
    WholeNumber,
    Field(
        ge=1,
        le=MAX_CAPACITY,
        description=f"a number of attempts at a time, 1 to {MAX_CAPACITY}",
    ),
]
Threads = Annotated[
    int | None,  # None: as many as the libraries choose
    WholeNumber,
    Field(ge=1, le=MAX_THREADS, description=f"a number of threads, 1 to {MAX_THREADS}"),
]


CacheBytes = Annotated[
    int | None,  # None: a share of the disk
    WholeNumber,
    Field(ge=1, description="a number of bytes above 0"),
]


class WorkerServiceSettings(ServiceSettings):
    """What every worker can be told. Each gives `worker_id` and `data_dir` defaults of its own."""

    store_url: StoreUrl
    worker_id: WorkerId
    capacity: Capacity = 1
    data_dir: DataDir
    drain_s: DrainSeconds = 30.0  # a training step, and a checkpoint of some hundred megabytes


def default_worker_id(service: str) -> str:
    """<host name>-<service>, of the characters that a worker's id may have."""
    node = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())
    return f"{node[: MAX_WORKER_ID_CHARACTERS - len(service) - 1]}-{service}"


def default_data_dir(service: str) -> Path:
    """Beside the folder of `perdure up`, and not in it."""
    return Path("~/.local/share/perdure") / service


@dataclass(frozen=True)
class WorkerPorts:
    """What the craft of a worker is made from."""

    store: ObjectStore
    store_url: str
    cache: Path


async def assemble_worker(
    settings: WorkerServiceSettings,
    stage: Stage,
    craft: Callable[[WorkerPorts], Craft],
    host: Host,
) -> Service:
    """A worker for `stage` as a service. Raises InvalidSetting when its folder cannot be used."""
    root = settings.data_dir
    with host.data_dir(root):
        # No attempt runs yet: what lies here is left over from a worker that was killed.
        await asyncio.to_thread(emptied, root / "work")
        await asyncio.to_thread(made, root / "cache")
        await asyncio.to_thread(made, root / "outbox")
    store = await host.store(settings.store_url)
    bus = await host.bus(settings.bus_url)
    ports = WorkerPorts(store, settings.store_url.get_secret_value(), root / "cache")
    worker = child_worker(
        WorkerSettings(settings.worker_id, (stage,), settings.capacity),
        craft(ports),
        AttemptSettings(root / "work", settings.drain_s * CHECKPOINT_SHARE),
        bus=host.pulse.of(bus),
        store=store,
        clock=SystemClock(),
        new_id=new_id,
        outbox=root / "outbox",
    )

    metrics.observe(
        metrics.REPORTS_UNANSWERED,
        unit="{report}",
        description="Reports that the scheduler has not recorded yet",
        read=lambda: [({"worker": settings.worker_id}, float(worker.unanswered))],
    )

    async def run(stopping: asyncio.Event) -> None:
        with host.pulse.expected():
            await worker.run(stopping, settings.work_drain_s)

    checks = {
        "broker": health.consumers(bus, topology.work_queue(settings.worker_id)),
        "store": health.store(store),
    }
    return Service(run, checks)
