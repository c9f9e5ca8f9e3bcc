"""What the relay tells those who watch: how far it is behind."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from perdure.errors import Unavailable
from perdure.eventlog.lag import Lag, lag
from perdure.eventlog.port import EventLog, ReadModels
from perdure.runtime.clock import Clock
from perdure.runtime.waiting import set_within
from perdure.telemetry import metrics
from perdure.telemetry.metrics import Reading
from perdure_relay.relay import CHECKPOINT

log = logging.getLogger(__name__)

# Three short queries; a Prometheus looks every 15 s.
LOOK_S: Final = 5.0


class Measures:
    """The gauges of the relay that leads in this process, if one does. Made once a process."""

    def __init__(self, eventlog: EventLog, checkpoints: ReadModels, clock: Clock) -> None:
        self._log = eventlog
        self._checkpoints = checkpoints
        self._clock = clock
        self._lag: Lag | None = None
        metrics.observe(
            metrics.RELAY_LAG_EVENTS,
            unit="{event}",
            description="Events of the log that are not published",
            read=lambda: self._reading("events"),
        )
        metrics.observe(
            metrics.RELAY_LAG_SECONDS,
            unit="s",
            description="Age of the oldest event that is not published",
            read=lambda: self._reading("seconds"),
        )

    async def watch(self, stopping: asyncio.Event) -> None:
        """Measure until `stopping` is set."""
        try:
            while not stopping.is_set():
                try:
                    now = self._clock.now()
                    self._lag = await lag(self._log, self._checkpoints, CHECKPOINT, now)
                except Unavailable as error:
                    log.debug("the lag is not measured: %s", error)
                except Exception:
                    # Whatever fails here, events must go on: what leads would end with it.
                    log.exception("the lag was not measured")
                await set_within(stopping, LOOK_S)
        finally:
            self._lag = None  # another relay tells it

    def _reading(self, what: str) -> Iterable[Reading]:
        return [] if self._lag is None else [({}, float(getattr(self._lag, what)))]
