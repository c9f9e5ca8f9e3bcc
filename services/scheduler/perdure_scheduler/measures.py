"""What the scheduler tells those who watch: waiting tasks, silent workers, queues."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from perdure.domain.task import Stage, Status
from perdure.errors import NotFound, Unavailable
from perdure.messaging import topology
from perdure.messaging.port import Bus, QueueView
from perdure.runtime.clock import Clock
from perdure.runtime.health import inspected
from perdure.runtime.waiting import set_within
from perdure.telemetry import metrics
from perdure.telemetry.metrics import Reading
from perdure_scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

# A look at each queue is a round trip to the broker; a person or a Prometheus looks every 15 s.
QUEUE_LOOK_S: Final = 10.0


class Measures:
    """The gauges of the scheduler that leads in this process, if one does.

    Made once a process; `watch` follows one scheduler after the other.
    """

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._scheduler: Scheduler | None = None
        self._queues: dict[str, QueueView] = {}
        metrics.observe(
            metrics.TASKS_WAITING,
            unit="{task}",
            description="Tasks whose stage waits for a worker or for the time of its retry",
            read=self._waiting,
        )
        metrics.observe(
            metrics.HEARTBEAT_AGE,
            unit="s",
            description="Seconds since the last heartbeat of each live worker",
            read=self._heartbeat_ages,
        )
        metrics.observe(
            metrics.QUEUE_MESSAGES,
            unit="{message}",
            description="Messages that wait in the broker's queues",
            read=lambda: [({"queue": n}, float(v.messages)) for n, v in self._queues.items()],
        )
        metrics.observe(
            metrics.QUEUE_CONSUMERS,
            unit="{consumer}",
            description="Consumers of the broker's queues, as the broker counts them",
            read=lambda: [({"queue": n}, float(v.consumers)) for n, v in self._queues.items()],
        )

    async def watch(self, scheduler: Scheduler, stopping: asyncio.Event) -> None:
        """Measure `scheduler` until `stopping` is set."""
        self._scheduler = scheduler
        try:
            while not stopping.is_set():
                try:
                    await self._look(scheduler)
                except Exception:
                    # Whatever fails here, tasks must go on: what leads would end with it.
                    log.exception("the queues were not measured")
                await set_within(stopping, QUEUE_LOOK_S)
        finally:
            self._scheduler = None
            self._queues = {}

    async def _look(self, scheduler: Scheduler) -> None:
        workers = [view.registration.worker_id for view in scheduler.workers.all()]
        looked: dict[str, QueueView] = {}
        for queue in (*topology.CONTROL_QUEUES, *map(topology.work_queue, workers)):
            try:
                looked[queue.name] = await inspected(self._bus, queue)
            except (Unavailable, NotFound) as error:
                log.debug("queue %s not measured: %s", queue.name, error)
        self._queues = looked

    def _waiting(self) -> Iterable[Reading]:
        if self._scheduler is None:
            return []
        waits = (Status.QUEUED, Status.WAITING)
        counts = Counter(task.stage for task in self._scheduler.tasks if task.status in waits)
        return [({"stage": stage}, float(counts[stage])) for stage in Stage]

    def _heartbeat_ages(self) -> Iterable[Reading]:
        if self._scheduler is None:
            return []
        now = self._clock.monotonic()
        return [
            ({"worker": view.registration.worker_id}, now - view.heard_at)
            for view in self._scheduler.workers.all()
        ]
