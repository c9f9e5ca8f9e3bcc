"""What goes on right now: wakes whoever watches a task, and keeps each attempt's latest telemetry.

Nothing here is a fact. Watchers read facts from the log; the bus only tells them when to look.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from perdure.contracts.v1 import envelope_pb2, work_pb2
from perdure.domain.task import TaskState, task_stream
from perdure.messaging.port import Bus, Consumer, Delivery
from perdure.messaging.topology import live_queues
from perdure_gateway.wire import to_plain

# Far more attempts than any fleet runs at once; the longest silent one goes first.
MAX_TRACKED_TASKS: Final = 10_000
# After these, the attempt's last telemetry says nothing any more.
_ENDING: Final = frozenset(
    {"AttemptFailed", "AttemptSucceeded", "TaskCancelled", "TaskFailed", "TaskSucceeded"}
)


class LiveFeed:
    """Listens to events and telemetry on the bus, by two transient queues."""

    def __init__(self, bus: Bus, *, name: str) -> None:
        self._bus = bus
        self.queues = live_queues(name)
        self._consumers: list[Consumer] = []
        self._progress: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._closing = asyncio.Event()

    @property
    def closing(self) -> bool:
        """Whether the server is about to stop: event streams should end, so that it can."""
        return self._closing.is_set()

    async def start(self) -> None:
        """Begin to listen."""
        events, telemetry = self.queues
        self._consumers.append(await self._bus.consume(events, self._on_event))
        self._consumers.append(await self._bus.consume(telemetry, self._on_telemetry))

    def release(self) -> None:
        """End all event streams. Their clients come back to the next server."""
        self._closing.set()
        for watchers in self._watchers.values():
            for wake in watchers:
                wake.set()

    async def close(self) -> None:
        """End all event streams and stop listening."""
        self.release()
        for consumer in self._consumers:
            await consumer.cancel()
        self._consumers.clear()

    def progress(self, task: TaskState) -> dict[str, Any] | None:
        """The latest telemetry of the task's current attempt; None when there is none.

        Fields of AttemptProgress, and `worker_id` and `time` of the heartbeat that brought it.
        """
        latest, attempt = self._progress.get(task.id), task.current_attempt
        # A heartbeat that was on its way when its attempt ended says nothing about the next one.
        if latest is None or attempt is None or latest["fence"] != attempt.fence:
            return None
        return latest

    @contextmanager
    def watch(self, task_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when there is something new about the task, or the server stops."""
        wake = asyncio.Event()
        self._watchers.setdefault(task_id, set()).add(wake)
        try:
            yield wake
        finally:
            watchers = self._watchers[task_id]
            watchers.discard(wake)
            if not watchers:
                del self._watchers[task_id]

    def _wake(self, task_id: str) -> None:
        for wake in self._watchers.get(task_id, ()):
            wake.set()

    async def _on_event(self, delivery: Delivery) -> None:
        envelope = envelope_pb2.Envelope.FromString(delivery.message.body)
        prefix = task_stream("")
        if envelope.stream.startswith(prefix):
            task_id = envelope.stream.removeprefix(prefix)
            if envelope.type in _ENDING:
                self._progress.pop(task_id, None)
            self._wake(task_id)

    async def _on_telemetry(self, delivery: Delivery) -> None:
        heartbeat = work_pb2.Heartbeat.FromString(delivery.message.body)
        for attempt in heartbeat.attempts:
            self._progress[attempt.task_id] = {
                **to_plain(attempt),
                "worker_id": heartbeat.worker.worker_id,
                "time": heartbeat.time,
            }
            self._progress.move_to_end(attempt.task_id)
            self._wake(attempt.task_id)
        while len(self._progress) > MAX_TRACKED_TASKS:
            self._progress.popitem(last=False)
