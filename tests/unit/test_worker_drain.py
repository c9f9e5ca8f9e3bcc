"""A worker that is told to stop while what its attempts need is away."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from perdure.contracts.v1 import work_pb2
from perdure.domain.failures import Failure
from perdure.messaging import topology
from perdure.messaging.local import LocalBus
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.messages import wrap
from perdure.runtime.report_file import ReportFile
from perdure.runtime.worker import AttemptContext, Ending, Worker, WorkerSettings
from tests.builders.tasks import NOW

AGES_S = 600.0
DRAIN_S = 4.0
DEADLINE_S = 20.0


class Waits:
    """An attempt that waits for a store that is away: for a checkpoint, and at its end for each of
    two logs.
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, _context: AttemptContext) -> Ending:
        async with contextlib.AsyncExitStack() as at_end:
            for _ in range(2):
                at_end.push_async_callback(asyncio.sleep, AGES_S)
            self.begun.set()
            await asyncio.sleep(AGES_S)
        raise AssertionError("it waits for ages")


async def incarnation(bus: LocalBus, heard: asyncio.Queue[work_pb2.Heartbeat]) -> str:
    async def hear(delivery) -> None:
        heard.put_nowait(work_pb2.Heartbeat.FromString(delivery.message.body))

    await bus.consume(topology.SCHEDULER_HEARTBEATS, hear)
    return (await heard.get()).worker.incarnation


async def test_attempts_that_do_not_end_are_cut_off_and_told_of_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bus, execute, stopping = LocalBus(), Waits(), asyncio.Event()
    worker = Worker(
        WorkerSettings("node-1", ("train",), 1),
        execute,
        bus=bus,
        clock=SystemClock(),
        new_id=new_id,
        reports=ReportFile(tmp_path),
    )
    caplog.set_level(logging.WARNING, "perdure.runtime.worker")
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run(stopping, DRAIN_S))
        offer = work_pb2.Assignment(
            task_id="t1",
            stage="train",
            fence=1,
            worker_id="node-1",
            incarnation=await incarnation(bus, asyncio.Queue()),
        )
        message = wrap(new_id(), offer, source="scheduler", subject="t1", time=NOW)
        await bus.publish(topology.WORK, "node-1", message)
        await execute.begun.wait()
        stopping.set()
        began = asyncio.get_running_loop().time()
        await running
        took_s = asyncio.get_running_loop().time() - began
    # What a service gives its work is nine tenths of PERDURE_DRAIN_S: it has not been cut off yet.
    assert took_s < DRAIN_S / 0.9
    (kept,) = ReportFile(tmp_path).all()
    assert (kept.task_id, kept.failed.failure) == ("t1", Failure.WORKER_STOPPED)
    (told,) = caplog.messages
    assert told.startswith("left behind: 1 reports that are not recorded yet")
    assert "1 attempts that were cut off" in told
