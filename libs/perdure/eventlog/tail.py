"""Follows the log: every event once, in order, without a hole."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.chain import damaged
from perdure.eventlog.port import EventLog

BATCH_EVENTS = 500
POLL_S = 5.0

_logger = logging.getLogger(__name__)


async def tail(
    log: EventLog, after: int, *, batch: int = BATCH_EVENTS, poll_s: float = POLL_S
) -> AsyncIterator[list[RecordedEvent]]:
    """Yield the events above position `after`, in lists of 1 to `batch`, and wait for more without
    end.

    A log that does not answer is asked again, with growing delays up to some seconds. Raises
    DamagedLog when a position is missing.
    """
    delays = retry_delays()
    while True:
        try:
            events = await log.read_all(after=after, limit=batch)
            if not events:
                await log.wait(after=after, timeout_s=poll_s)
        except LogUnavailable as error:
            delay_s = next(delays)
            _logger.warning("cannot follow the log, next try in %g s: %s", delay_s, error.message)
            await asyncio.sleep(delay_s)
            continue
        delays = retry_delays()
        if events:
            check_follows(events, after)
            yield events
            after = events[-1].position


def check_follows(events: Sequence[RecordedEvent], after: int) -> None:
    """Raise DamagedLog unless `events` are at the positions right above `after`."""
    for position, event in enumerate(events, after + 1):
        if event.position != position:
            raise damaged(position, f"it is missing: the next event is at {event.position}")
