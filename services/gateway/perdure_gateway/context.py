"""What the routes work with, and how they write to the log."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Path, Request
from google.protobuf.message import Message

from perdure.artifacts.port import ObjectStore
from perdure.contracts.envelope import NewEvent, RecordedEvent, derived_id
from perdure.domain.task import TaskState, task_stream
from perdure.domain.task_evolution import replay
from perdure.errors import NotFound
from perdure.eventlog.port import Document, EventLog, ReadModels, StreamAppend
from perdure.messaging.port import Bus
from perdure.runtime.clock import Clock, NewId
from perdure.telemetry import tracing
from perdure_gateway.live import LiveFeed
from perdure_gateway.settings import GatewaySettings
from perdure_gateway.version_images import VersionImages

SOURCE: Final = "gateway"
TASKS: Final = "tasks"
DATASETS: Final = "datasets"
MODELS: Final = "models"
DEAD_LETTERS: Final = "dead-letters"

Settled = Callable[[str, int, float], Awaitable[None]]


@dataclass(frozen=True)
class Gateway:
    """The gateway's ports. `settled(projection, position, timeout_s)` waits for a projection to get
    there.
    """

    log: EventLog
    read_models: ReadModels
    store: ObjectStore
    images: VersionImages
    bus: Bus
    live: LiveFeed
    clock: Clock
    new_id: NewId
    settings: GatewaySettings
    settled: Settled
    check_projections: Callable[[], None]

    async def append(
        self, task_id: str, *, expected_version: int, cause: str, events: tuple[Message, ...]
    ) -> tuple[RecordedEvent, ...]:
        """Append to a task's stream.

        The ids of the events follow from `cause`. Raises what EventLog.append does.
        """
        time, trace = self.clock.now(), tracing.traceparent()
        new = tuple(
            NewEvent(derived_id(cause, index), data, time, task_id, cause, SOURCE, trace)
            for index, data in enumerate(events)
        )
        append = StreamAppend(task_stream(task_id), expected_version, new)
        return await self.log.append(append)

    async def settle(self, projection: str) -> None:
        """Wait until a projection contains all that is in the log now: readers see what they wrote.

        When it does not get there in time, it is behind or stands still; then what it shows is old.
        """
        head = await self.log.head()
        await self.settled(projection, head.position, self.settings.projection_wait_s)

    async def document(self, projection: str, key: str) -> Document | None:
        """A document of a projection, as of now."""
        await self.settle(projection)
        return await self.read_models.get(projection, key)

    async def task(self, task_id: str, *, to_version: int | None = None) -> TaskState:
        """A task as its events tell it, replayed. Raises NotFound."""
        state = replay(await self.log.read_stream(task_stream(task_id), to_version=to_version))
        if state is None:
            raise NotFound(f"there is no task {task_id}", task_id=task_id)
        return state


def of(request: Request) -> Gateway:
    """The gateway of the app that a request came to."""
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayOf = Annotated[Gateway, Depends(of)]
# Ids end in streams, keys and queries: nothing but these characters ever reaches them.
Id = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
