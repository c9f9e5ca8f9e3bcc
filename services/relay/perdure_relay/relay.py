"""Publish each event of the log, in order. The checkpoint moves only after the broker's confirm.

Killed between the two, the relay publishes the same events again, and so does one that was stopped
and does not know yet that another has taken over: delivery is at least once, and consumers know an
event by its id. Each of the two publishes in order and leaves nothing out, so that whoever goes by
the first time an event comes sees them in order.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from opentelemetry.trace import SpanKind

from perdure.contracts.codec import to_envelope
from perdure.contracts.envelope import RecordedEvent
from perdure.crash_points import reached
from perdure.errors import DamagedLog, Unavailable
from perdure.eventlog import leadership
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.port import EventLog, ReadModels
from perdure.eventlog.tail import check_follows
from perdure.messaging import topology
from perdure.messaging.port import Bus, Message
from perdure.runtime.waiting import first_of, set_within
from perdure.telemetry import tracing

log = logging.getLogger(__name__)

CHECKPOINT: Final = leadership.RELAY
BATCH: Final = 500  # what one crash repeats at most; the round trips of a batch are few against it
WAIT_S: Final = 5.0
# AMQP takes no more. A stream's name may be longer; nobody binds to the end of one that long.
MAX_ROUTING_KEY_BYTES: Final = 255
# Whoever leads ends a relay that does not lead any more; this is until it has.
NOT_LEADING_PAUSE_S: Final = 0.5


async def _alone() -> bool:
    """A relay that nobody can replace leads."""
    return True


class Relay:
    """Moves events from the log to the broker.

    `leads` is asked before each batch whether this relay is still the one: `Leadership.held`, where
    several may run.
    """

    def __init__(
        self,
        *,
        eventlog: EventLog,
        checkpoints: ReadModels,
        bus: Bus,
        leads: Callable[[], Awaitable[bool]] = _alone,
    ) -> None:
        self._log = eventlog
        self._checkpoints = checkpoints
        self._bus = bus
        self._leads = leads

    async def run(self, stopping: asyncio.Event) -> None:
        """Relay until `stopping` is set; wait while either end is away.

        Raises DamagedLog for a hole in the log: what stands behind it is not published; and for a
        log that ends before what was published: what it gets next would not be published.
        """
        delays = retry_delays()
        while not stopping.is_set():
            try:
                await self._step(stopping)
                delays = retry_delays()
            except Unavailable as error:
                delay_s = next(delays)
                log.warning("the relay stands still, next try in %g s: %s", delay_s, error.message)
                await set_within(stopping, delay_s)

    async def _step(self, stopping: asyncio.Event) -> None:
        position = await self._checkpoints.position(CHECKPOINT)
        events = await self._log.read_all(after=position, limit=BATCH)
        if not events:
            await self._check_reached(position)
            await first_of(self._log.wait(after=position, timeout_s=WAIT_S), stopping.wait())
            return
        check_follows(events, position)
        reached("relay.read")
        if not await self._leads():
            await set_within(stopping, NOT_LEADING_PAUSE_S)
            return
        began_ns = time.time_ns()
        await self._bus.publish_all(topology.EVENTS, [_addressed(event) for event in events])
        reached("relay.published")
        if tracing.exporting():
            _trace(events, began_ns)
        last = events[-1].position
        if await self._checkpoints.commit(CHECKPOINT, expected=position, position=last):
            reached("relay.checkpointed")
        else:
            log.warning("another relay has moved the checkpoint from position %d", position)

    async def _check_reached(self, position: int) -> None:
        head = (await self._log.head()).position  # read after the checkpoint: never behind it
        if head < position:
            raise DamagedLog(
                f"events up to position {position} were published, but the log ends at {head}: "
                "events are gone, as after an older backup was restored. Restore a newer one; or "
                f"go on from there: stop every relay, and put {head} as position into the row "
                f"{CHECKPOINT!r} of the table perdure.projection",
                position=head + 1,
            )


def _trace(events: Sequence[RecordedEvent], began_ns: int) -> None:
    """A span for each event that was published, in the trace that the event belongs to."""
    for event in events:
        tracing.record(
            f"publish {event.type}",
            parent=event.traceparent,
            since_ns=began_ns,
            kind=SpanKind.PRODUCER,
            stream=event.stream,
            position=event.position,
        )


def _addressed(event: RecordedEvent) -> tuple[str, Message]:
    """The routing key and the message of an event."""
    message = Message(
        id=event.id,
        type=event.type,
        body=to_envelope(event).SerializeToString(),
        headers={"traceparent": event.traceparent} if event.traceparent else {},
        source=event.source,
        subject=event.stream,
        time=event.time,
    )
    key = f"{event.type}.{event.stream}".encode()[:MAX_ROUTING_KEY_BYTES]
    return key.decode(errors="ignore"), message
