"""Records every message that was given up, so that none is lost and somebody can replay it."""

import asyncio
import logging
from typing import Final

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import envelope_pb2, events_pb2
from perdure.crash_points import reached
from perdure.domain.dead_letter import (
    MAX_BODY_BYTES,
    REPLAY_HEADER,
    dead_letter_id,
    dead_letter_stream,
    death_id,
    plain_text,
)
from perdure.domain.message_effect import decoded, task_of
from perdure.errors import EventIdReused, Unavailable
from perdure.eventlog.port import EventLog, StreamAppend
from perdure.messaging import topology
from perdure.messaging.port import Bus, Consumer, Death, Delivery, Message
from perdure.runtime.clock import Clock
from perdure.runtime.waiting import set_within
from perdure.telemetry import tracing
from perdure_scheduler.tasks import SOURCE

log = logging.getLogger(__name__)

MAX_DELIVERIES: Final = 2**31  # numbers come from outside, too; this one fits its field
# Between two tries at a broker that does not answer.
UNAVAILABLE_PAUSE_S: Final = 1.0


class DeadLetterKeeper:
    """Moves dead letters from their queue into the log.

    It takes whatever comes: one that it could not take would keep all others waiting.
    """

    def __init__(self, eventlog: EventLog, bus: Bus, clock: Clock) -> None:
        self._log = eventlog
        self._bus = bus
        self._clock = clock

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep dead letters until `stopping` is set."""
        consumer = await self._consumer(stopping)
        if consumer is None:
            return
        try:
            await stopping.wait()
        finally:
            await consumer.cancel()

    async def _consumer(self, stopping: asyncio.Event) -> Consumer | None:
        while not stopping.is_set():
            try:
                return await self._bus.consume(topology.DEAD_LETTERS, self._keep)
            except Unavailable as error:
                log.warning("waiting: %s", error)
                await set_within(stopping, UNAVAILABLE_PAUSE_S)
        return None

    async def _keep(self, delivery: Delivery) -> None:
        message = delivery.message
        stream = dead_letter_stream(dead_letter_id(message.id, message.body))
        death = delivery.death or _untold(delivery)
        event = self._event(stream, message, death)
        told = {"stream": stream, "queue": death.queue, "message_type": message.type}
        if _tells_of_a_dead_letter(message):
            # It stands in the log as it is. Recorded again it would be published again, and a
            # consumer that fails on every event would make the log grow without end.
            log.error("an event about a dead letter failed, and is let go", extra=told)
            return
        if await self._recorded(stream, event):
            log.error("dead letter: %s", death.error or death.reason, extra=told)
        reached("keeper.recorded")

    async def _recorded(self, stream: str, event: NewEvent) -> bool:
        """Append `event`; False when it was recorded before.

        Raises VersionConflict when a replay is recorded at the same time: the delivery comes again.
        """
        version = len(await self._log.read_stream(stream))
        try:
            await self._log.append(StreamAppend(stream, version, (event,)))
        except EventIdReused:  # the same death, recorded at another time of day
            return False
        return True

    def _event(self, stream: str, message: Message, death: Death) -> NewEvent:
        data = dead_lettered(message, death)
        return NewEvent(
            id=death_id(stream, message.type, message.body, data.queue, data.replay),
            data=data,
            time=self._clock.now(),
            correlation_id=data.task_id or stream,
            causation_id=data.message_id,
            source=SOURCE,
            traceparent=data.headers.get(tracing.HEADER, ""),
        )


def dead_lettered(message: Message, death: Death) -> events_pb2.MessageDeadLettered:
    """The fact that `message` died. A body above MAX_BODY_BYTES is left out."""
    text = plain_text
    return events_pb2.MessageDeadLettered(
        message_id=text(message.id),
        message_type=text(message.type),
        queue=text(death.queue),
        exchange=text(death.exchange),
        routing_key=text(death.routing_key),
        reason=text(death.reason),
        error=text(death.error),
        deliveries=min(max(death.deliveries, 0), MAX_DELIVERIES),
        body=message.body if len(message.body) <= MAX_BODY_BYTES else b"",
        body_bytes=len(message.body),
        headers={text(name): text(value) for name, value in message.headers.items()},
        task_id=task_of(decoded(message.type, message.body), text(message.subject)),
        source=text(message.source),
        subject=text(message.subject),
        time=text(message.time),
        replay=_replay(message.headers.get(REPLAY_HEADER, "")),
    )


def _replay(header: str) -> int:
    """The number in the header of a replayed message; 0 for any other."""
    return int(header) if header.isascii() and header.isdecimal() and len(header) < 9 else 0


def _untold(delivery: Delivery) -> Death:
    """What can be said of a message that came here by another way than by failing."""
    key = delivery.routing_key
    return Death(key, "", key, "unknown", "", delivery.attempt)


def _tells_of_a_dead_letter(message: Message) -> bool:
    event = decoded(message.type, message.body)
    return isinstance(event, envelope_pb2.Envelope) and event.stream.startswith(
        dead_letter_stream("")
    )
