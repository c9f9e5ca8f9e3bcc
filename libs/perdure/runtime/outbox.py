"""Reports on their way into the log: kept until the scheduler says that it has recorded them.

The broker's confirm is not enough: a broker can be wiped, a queue deleted, a message parked. What
is not answered is sent again, in order. The scheduler takes each report once.
"""

import asyncio
import logging
import sqlite3
from dataclasses import dataclass
from typing import Final

from perdure.contracts.v1 import work_pb2
from perdure.crash_points import reached
from perdure.errors import BusUnavailable
from perdure.messaging import topology
from perdure.messaging.port import Bus
from perdure.runtime.clock import Clock
from perdure.runtime.messages import wrap
from perdure.runtime.report_file import ReportFile
from perdure.runtime.waiting import set_within

log = logging.getLogger(__name__)

# Between two tries at a broker or a disk that does not answer.
RETRY_S: Final = 1.0
# An answer takes some milliseconds. Later, something was lost on the way, or the scheduler is away:
# then each time after twice as long, so that it does not find heaps of the same report.
FIRST_RESEND_S: Final = 10.0
LAST_RESEND_S: Final = 300.0

AttemptOf = tuple[str, int, str]  # task id, fence, incarnation


@dataclass
class _Kept:
    report: work_pb2.Report
    spooled: bool  # on disk, or not to be had there
    sent_at: float | None = None  # monotonic time
    sent: int = 0


class Outbox:
    """Sends reports one after another, and again until they are answered.

    Without a `file` they are kept in memory only.
    """

    def __init__(self, bus: Bus, clock: Clock, file: ReportFile | None = None) -> None:
        self._bus = bus
        self._clock = clock
        self._file = file
        self._kept: list[_Kept] = []
        self._changed = asyncio.Event()
        self._answered = asyncio.Event()
        self._waiting = False  # for a broker that is away
        self.reaches_broker = asyncio.Event()  # set once a first report was confirmed

    def __len__(self) -> int:
        """How many reports are not answered."""
        return len(self._kept)

    async def load(self) -> None:
        """Take in what an earlier start of this worker has left."""
        if self._file is not None:
            left = await asyncio.to_thread(self._file.all)
            self._kept = [_Kept(report, spooled=True) for report in left] + self._kept
            if left:
                log.info("%d reports of an earlier start are sent again", len(left))

    def put(self, report: work_pb2.Report) -> None:
        """Take in a report."""
        self._kept.append(_Kept(report, spooled=self._file is None))
        self._changed.set()

    async def answered(self, answer: work_pb2.ReportsRecorded) -> None:
        """The scheduler has recorded an attempt's reports up to one."""
        of = (answer.task_id, answer.fence, answer.incarnation)
        done: list[_Kept] = []
        left: list[_Kept] = []
        for kept in self._kept:
            known = _attempt(kept) == of and kept.report.seq <= answer.seq
            (done if known else left).append(kept)
        self._kept = left
        if not self._kept:
            self._answered.set()
        await self._forget([k.report.id for k in done])

    async def flushed(self, timeout_s: float) -> bool:
        """Wait until everything is answered; False when that takes longer than `timeout_s`."""
        deadline = self._clock.monotonic() + timeout_s
        while self._kept:
            self._answered.clear()
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0 or not await set_within(self._answered, left_s):
                return not self._kept
        return True

    async def keep(self) -> None:
        """Put on disk what is not there yet, also while `run` waits for a broker."""
        for kept in [k for k in self._kept if not k.spooled]:
            await self._spool(kept)

    async def run(self) -> None:
        """Send, until cancelled."""
        while True:
            self._changed.clear()
            await self.keep()
            unsent = next((k for k in self._kept if k.sent_at is None), None)
            if unsent is not None:
                await self._send(unsent)
            else:
                await set_within(self._changed, self._due_s())
                self._send_again()

    async def _send(self, kept: _Kept) -> None:
        report = kept.report
        message = wrap(
            report.id,
            report,
            source=report.worker_id,
            subject=report.task_id,
            time=report.time,
            traceparent=report.traceparent,
        )
        try:
            await self._bus.publish(topology.REPORTS, report.stage, message)
        except BusUnavailable as error:
            if not self._waiting:  # once, not per try
                log.warning("reports wait for the broker: %s", error)
            self._waiting = True
            await set_within(self._changed, RETRY_S)  # what is new is kept on disk meanwhile
            return
        reached("worker.sent")
        if self._waiting:
            log.info("reports reach the broker again; %d are not recorded yet", len(self))
        self._waiting = False
        self.reaches_broker.set()
        kept.sent_at = self._clock.monotonic()
        kept.sent += 1

    def _due_s(self) -> float:
        """How long until the first unanswered report is to be sent again."""
        now = self._clock.monotonic()
        return max(0.0, min((_due(k) - now for k in self._kept), default=LAST_RESEND_S))

    def _send_again(self) -> None:
        """Let an attempt's reports go out anew, all of them in order, once the first is due."""
        now = self._clock.monotonic()
        late = {_attempt(k) for k in self._kept if k.sent_at is not None and _due(k) <= now}
        for kept in self._kept:
            if _attempt(kept) in late:
                kept.sent_at = None
        if late:
            log.info("reports without an answer are sent again", extra={"attempts": len(late)})

    async def _spool(self, kept: _Kept) -> None:
        assert self._file is not None
        try:
            await asyncio.to_thread(self._file.add, kept.report)
        except sqlite3.Error as error:
            # It is sent all the same: the disk is the second net.
            task_id = kept.report.task_id
            log.error("a report cannot be kept on disk: %s", error, extra={"task": task_id})
        kept.spooled = True
        reached("worker.spooled")

    async def _forget(self, ids: list[str]) -> None:
        if self._file is None or not ids:
            return
        try:
            await asyncio.to_thread(self._file.remove, ids)
        except sqlite3.Error as error:  # it will be sent again at the next start, and known
            log.warning("recorded reports cannot be removed from the disk: %s", error)


def _attempt(kept: _Kept) -> AttemptOf:
    report = kept.report
    return (report.task_id, report.fence, report.incarnation)


def _due(kept: _Kept) -> float:
    if kept.sent_at is None:
        return 0.0
    waits_s: float = FIRST_RESEND_S * 2 ** min(kept.sent - 1, 10)
    return kept.sent_at + min(waits_s, LAST_RESEND_S)
