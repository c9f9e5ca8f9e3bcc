"""Publish each event of the log, in order. The checkpoint moves only after the broker's confirm.

Killed between the two, the relay publishes the same events again: delivery is at least once, and
consumers know an event by its id.
"""

import asyncio
import logging
from typing import Final

from perdure.contracts.codec import to_envelope
from perdure.contracts.envelope import RecordedEvent
from perdure.errors import Unavailable
from perdure.eventlog.port import EventLog, ReadModels
from perdure.messaging import topology
from perdure.messaging.port import Bus, Message
from perdure.runtime.waiting import first_of

log = logging.getLogger(__name__)

CHECKPOINT: Final = "relay"
BATCH: Final = 200
WAIT_S: Final = 5.0
UNAVAILABLE_PAUSE_S: Final = 1.0


class Relay:
    """Moves events from the log to the broker."""

    def __init__(self, *, eventlog: EventLog, checkpoints: ReadModels, bus: Bus) -> None:
        self._log = eventlog
        self._checkpoints = checkpoints
        self._bus = bus

    async def run(self, stopping: asyncio.Event) -> None:
        """Relay until `stopping` is set; wait while either end is away."""
        while not stopping.is_set():
            try:
                await self._step(stopping)
            except Unavailable as error:
                log.warning("waiting: %s", error)
                await asyncio.sleep(UNAVAILABLE_PAUSE_S)

    async def _step(self, stopping: asyncio.Event) -> None:
        position = await self._checkpoints.position(CHECKPOINT)
        events = await self._log.read_all(after=position, limit=BATCH)
        if not events:
            await first_of(self._log.wait(after=position, timeout_s=WAIT_S), stopping.wait())
            return
        for event in events:
            await self._bus.publish(topology.EVENTS, f"{event.type}.{event.stream}", _wrap(event))
        last = events[-1].position
        if not await self._checkpoints.commit(CHECKPOINT, expected=position, position=last):
            log.warning("another relay has moved the checkpoint from position %d", position)


def _wrap(event: RecordedEvent) -> Message:
    return Message(id=event.id, type=event.type, body=to_envelope(event).SerializeToString())
