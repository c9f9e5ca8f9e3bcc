"""Reports on their way to the broker: in order, and kept until the broker has confirmed them."""

import asyncio
import logging
from typing import Final

from perdure.contracts.v1 import work_pb2
from perdure.errors import BusUnavailable
from perdure.messaging import topology
from perdure.messaging.port import Bus
from perdure.runtime.messages import wrap

log = logging.getLogger(__name__)

# Between two tries at a broker that does not answer.
RETRY_S: Final = 1.0


class Outbox:
    """Sends reports one after another.

    `run` sends; `flushed` waits until all that came before is confirmed.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: asyncio.Queue[work_pb2.Report] = asyncio.Queue()

    def put(self, report: work_pb2.Report) -> None:
        """Take in a report."""
        self._waiting.put_nowait(report)

    async def flushed(self, timeout_s: float) -> bool:
        """Wait until everything is confirmed; False when that takes longer than `timeout_s`."""
        try:
            await asyncio.wait_for(self._waiting.join(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Send, until cancelled."""
        while True:
            report = await self._waiting.get()
            await self._send(report)
            self._waiting.task_done()

    async def _send(self, report: work_pb2.Report) -> None:
        while True:
            try:
                await self._bus.publish(topology.REPORTS, report.stage, wrap(report.id, report))
            except BusUnavailable as error:
                log.warning("report waits for the broker: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return
