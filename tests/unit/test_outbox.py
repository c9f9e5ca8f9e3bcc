"""Reports are kept until somebody has recorded them, whatever happens on the way."""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.contracts.v1 import work_pb2
from perdure.errors import BusUnavailable, PerdureError
from perdure.messaging.port import Message
from perdure.runtime import outbox as outboxes
from perdure.runtime import report_file
from perdure.runtime.clock import SystemClock
from perdure.runtime.outbox import Outbox
from perdure.runtime.report_file import FILE, ReportFile

DEADLINE_S = 5.0


class Wire:
    """A bus that takes what is published, or does not answer."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.away = False
        self.moved = asyncio.Event()

    async def publish(self, _exchange: str, _key: str, message: Message) -> None:
        if self.away:
            raise BusUnavailable("away")
        self.sent.append(work_pb2.Report.FromString(message.body).seq)
        self.moved.set()

    async def has(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.sent) < number:
                self.moved.clear()
                await self.moved.wait()


def report(seq: int, task_id: str = "t") -> work_pb2.Report:
    return work_pb2.Report(
        id=f"{task_id}-{seq}", task_id=task_id, fence=1, incarnation="i", seq=seq, stage="train"
    )


def answer(seq: int, task_id: str = "t") -> work_pb2.ReportsRecorded:
    return work_pb2.ReportsRecorded(task_id=task_id, fence=1, incarnation="i", seq=seq)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "FIRST_RESEND_S", 0.1)
    monkeypatch.setattr(outboxes, "RETRY_S", 0.01)


@asynccontextmanager
async def running(wire: Wire, file: ReportFile | None = None) -> AsyncIterator[Outbox]:
    outbox = Outbox(wire, SystemClock(), file)  # type: ignore[arg-type]
    await outbox.load()
    task = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_is_not_answered_goes_out_again_from_the_first_that_is_missing() -> None:
    wire = Wire()
    async with running(wire) as outbox:
        for seq in (1, 2, 3):
            outbox.put(report(seq))
        await wire.has(3)
        await outbox.answered(answer(1))
        await wire.has(5)
        assert wire.sent[:5] == [1, 2, 3, 2, 3]
        await outbox.answered(answer(3))
        assert await outbox.flushed(DEADLINE_S)
        assert len(outbox) == 0


async def test_each_repetition_waits_twice_as_long() -> None:
    wire = Wire()
    async with running(wire) as outbox:
        outbox.put(report(1))
        loop = asyncio.get_running_loop()
        at = []
        for number in (1, 2, 3, 4):
            await wire.has(number)
            at.append(loop.time())
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert waits[0] >= 0.1
    assert waits[1] >= 0.2
    assert waits[2] >= 0.4


async def test_an_answer_about_another_start_of_the_worker_forgets_nothing() -> None:
    wire = Wire()
    async with running(wire) as outbox:
        outbox.put(report(1))
        other = answer(1)
        other.incarnation = "another"
        await outbox.answered(other)
        await outbox.answered(answer(1, task_id="another"))
        assert len(outbox) == 1


async def test_while_the_broker_is_away_the_order_is_kept_and_the_log_says_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Wire()
    wire.away = True
    async with running(wire) as outbox:
        for seq in (1, 2, 3):
            outbox.put(report(seq))
        assert not await outbox.flushed(0.05)
        wire.away = False
        await wire.has(3)
    assert wire.sent[:3] == [1, 2, 3]
    assert caplog.text.count("reports wait for the broker") == 1


async def test_the_next_start_sends_what_was_left(tmp_path: Path) -> None:
    wire = Wire()
    file = ReportFile(tmp_path)
    async with running(wire, file) as outbox:
        for seq in (1, 2, 3):
            outbox.put(report(seq))
        await wire.has(3)
        await outbox.answered(answer(2))
    file.close()

    later = Wire()
    async with running(later, ReportFile(tmp_path)) as outbox:
        await later.has(1)
        assert later.sent == [3]
        await outbox.answered(answer(3))
    assert ReportFile(tmp_path).all() == []


async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    wire = Wire()
    async with running(wire, ReportFile(tmp_path)) as outbox:
        outbox.put(report(1))
        await wire.has(1)
    assert "set aside" in caplog.text
    assert (tmp_path / "reports.damaged-1").exists()
    assert [r.seq for r in ReportFile(tmp_path).all()] == [1]


async def test_a_full_disk_holds_no_report_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_self: ReportFile, _report: work_pb2.Report) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(ReportFile, "add", full)
    wire = Wire()
    async with running(wire, ReportFile(tmp_path)) as outbox:
        outbox.put(report(1))
        await wire.has(1)
    assert "disk is full" in caplog.text


def test_of_a_file_with_damaged_pages_what_can_be_read_is_taken_over(tmp_path: Path) -> None:
    file = ReportFile(tmp_path)
    for seq in range(1, 301):
        file.add(report(seq))
    file.close()
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:12288] + b"\xa5" * (len(whole) - 12288))

    taken_over = [r.seq for r in ReportFile(tmp_path).all()]
    assert taken_over == list(range(1, len(taken_over) + 1))
    assert (tmp_path / "reports.damaged-1").read_bytes()[:12288] == whole[:12288]


def test_a_second_damage_leaves_the_first_file_alone(tmp_path: Path) -> None:
    for content in (b"first" * 1000, b"second" * 1000):
        (tmp_path / FILE).write_bytes(content)
        ReportFile(tmp_path).close()
    assert (tmp_path / "reports.damaged-1").read_bytes().startswith(b"first")
    assert (tmp_path / "reports.damaged-2").read_bytes().startswith(b"second")


def test_a_file_that_only_cannot_be_opened_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ReportFile(tmp_path)
    file.add(report(1))
    file.close()

    def full(_path: Path) -> sqlite3.Connection:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(report_file, "_open", full)
        with pytest.raises(PerdureError, match="disk has room"):
            ReportFile(tmp_path)
    assert [r.seq for r in ReportFile(tmp_path).all()] == [1]
    assert not list(tmp_path.glob("*.damaged*"))
