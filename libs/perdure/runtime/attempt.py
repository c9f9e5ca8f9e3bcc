"""Carry out an attempt in a child process: the part that data-prep, trainer-agent and publisher
share.
"""

import asyncio
import contextlib
import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from google.protobuf import json_format

from perdure.artifacts.port import ObjectStore
from perdure.attempts.spool import Spool
from perdure.attempts.supervisor import STOP_GRACE_S, Child, ChildCommand, Line, Outcome
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.failures import failure_of
from perdure.errors import AttemptError, Damaged, StoreDenied, StoreUnavailable
from perdure.messaging.port import Bus
from perdure.runtime.clock import Clock, NewId
from perdure.runtime.report_file import ReportFile
from perdure.runtime.worker import (
    AttemptContext,
    Ending,
    StopRequest,
    Worker,
    WorkerSettings,
    failed_ending,
)
from perdure.telemetry import tracing

log = logging.getLogger(__name__)

# Between two tries at a store that does not answer; each try takes half a minute.
STORE_RETRY_S: Final = 5.0

CheckStop = Callable[[], None]
OnCheckpoint = Callable[[AttemptContext, Line], Awaitable[None]]


class AskedToStop(Exception):
    """The attempt is to stop while its job is still being prepared."""

    def __init__(self, request: StopRequest) -> None:
        super().__init__(request.detail)
        self.request = request


@dataclass(frozen=True)
class Craft:
    """What one kind of worker does differently from the others.

    `job` prepares the folder and gives the child's job (blocking); it calls its last argument
    between steps, which raises when the attempt is to stop. `result` turns the child's
    result into the report of success (blocking). `checkpoint` takes care of a checkpoint that the
    child has written. A child that `uses_store` is given the keys to the object store. `ended`
    lets go of what `job` has taken for the attempt, however it ended (blocking).
    """

    module: str
    job: Callable[[work_pb2.Assignment, Path, CheckStop], Mapping[str, Any]]
    result: Callable[[work_pb2.Assignment, Mapping[str, Any]], events_pb2.AttemptSucceeded]
    checkpoint: OnCheckpoint | None = None
    uses_store: bool = False
    ended: Callable[[work_pb2.Assignment], None] | None = None


@dataclass(frozen=True)
class AttemptSettings:
    """Where attempts run, and how long a child may take to stop."""

    work_root: Path
    stop_grace_s: float = STOP_GRACE_S


# Progress fields that a child may set; the rest is the worker's.
_PROGRESS_FIELDS: Final = frozenset(
    {"phase", "epoch", "epochs", "step", "steps", "box_loss", "cls_loss", "dfl_loss", "map50",
     "samples_per_s", "eta_s"}
)  # fmt: skip


def child_worker(
    who: WorkerSettings,
    craft: Craft,
    attempts: AttemptSettings,
    *,
    bus: Bus,
    store: ObjectStore,
    clock: Clock,
    new_id: NewId,
    outbox: Path | None = None,
) -> Worker:
    """A worker that runs each attempt as a child process of its own.

    `outbox` is the folder where it keeps reports that are not recorded yet.
    """

    async def execute(context: AttemptContext) -> Ending:
        return await _Attempt(craft, attempts, store, clock, context).run()

    reports = ReportFile(outbox) if outbox is not None else None
    return Worker(who, execute, bus=bus, clock=clock, new_id=new_id, reports=reports)


class _Attempt:
    def __init__(
        self,
        craft: Craft,
        settings: AttemptSettings,
        store: ObjectStore,
        clock: Clock,
        context: AttemptContext,
    ) -> None:
        assignment = context.assignment
        name = f"{assignment.task_id}/{assignment.fence:04d}-{assignment.stage}"
        self._craft = craft
        self._settings = settings
        self._clock = clock
        self._context = context
        self._folder = settings.work_root / name
        self._log = Spool(store, f"logs/{name}", "log")
        self._metrics = Spool(store, f"metrics/{name}", "jsonl")
        self._pid = 0

    async def run(self) -> Ending:
        async with contextlib.AsyncExitStack() as at_end:
            at_end.push_async_callback(asyncio.to_thread, self._remove_folder)
            if self._craft.ended is not None:
                assignment = self._context.assignment
                at_end.push_async_callback(asyncio.to_thread, self._craft.ended, assignment)
            for spool in (self._log, self._metrics):
                spool.start()
                at_end.push_async_callback(spool.close)
            return await self._run()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another attempt of the task has its folder in there
            self._folder.parent.rmdir()

    async def _run(self) -> Ending:
        assignment = self._context.assignment
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        await asyncio.to_thread(self._folder.mkdir, parents=True)
        try:
            job = await asyncio.to_thread(
                self._craft.job, assignment, self._folder, self._raise_when_asked_to_stop
            )
        except AskedToStop as asked:
            return failed_ending(asked.request.failure, asked.request.detail)
        except AttemptError as error:
            log.warning("not begun: %s", error, extra={"task": assignment.task_id})
            self._log_end(error.failure, error.message)
            return failed_ending(failure_of(error.failure), error.message)
        child = await Child.start(
            ChildCommand(
                self._craft.module,
                job,
                self._folder,
                environment={tracing.CHILD_VARIABLE: tracing.traceparent()},
                uses_store=self._craft.uses_store,
            )
        )
        self._pid = child.pid
        stopper = asyncio.create_task(self._stop_when_asked(child))
        try:
            outcome = await child.run(self._on_line, self._log.write)
        finally:
            stopper.cancel()
            await asyncio.gather(stopper, return_exceptions=True)
        return await self._ending(outcome)

    def _raise_when_asked_to_stop(self) -> None:
        if self._context.stop.done():
            raise AskedToStop(self._context.stop.result())

    async def _stop_when_asked(self, child: Child) -> None:
        request = await asyncio.shield(self._context.stop)
        await child.stop(request.failure, request.detail, self._settings.stop_grace_s)

    async def _result(self, result: Mapping[str, Any]) -> events_pb2.AttemptSucceeded:
        """The report of success. While the store is away, try again: the work is done.

        Raises StoreUnavailable when the attempt is asked to stop meanwhile.
        """
        while True:
            try:
                return await asyncio.to_thread(self._craft.result, self._context.assignment, result)
            except StoreDenied:
                raise
            except StoreUnavailable as error:
                log.warning("the result waits for the store: %s", error)
                stopped, _ = await asyncio.wait({self._context.stop}, timeout=STORE_RETRY_S)
                if stopped:
                    raise

    async def _ending(self, outcome: Outcome) -> Ending:
        assignment = self._context.assignment
        findings, model = _facts(assignment.stage, outcome.facts)
        if outcome.result is not None:
            try:
                success = await self._result(outcome.result)
            except (KeyError, ValueError, json_format.ParseError) as error:
                module = self._craft.module
                raise Damaged(f"the result of {module} cannot be read: {error}") from error
            return Ending(success, findings, model)
        assert outcome.failure is not None
        self._log_end(outcome.failure, outcome.detail)
        failed = events_pb2.AttemptFailed(
            failure=outcome.failure, detail=outcome.detail, exit_code=outcome.exit_code
        )
        return Ending(failed, findings, model)

    def _log_end(self, failure: str, detail: str) -> None:
        self._log.write(f"[attempt ended: {failure}: {detail}]\n".encode())

    async def _on_line(self, line: Line) -> None:
        kind = line.pop("kind")
        record = {"time": self._clock.now(), "kind": kind, **line}
        self._metrics.write(json.dumps(record).encode() + b"\n")
        match kind:
            case "started":
                resumed = line.get("resumed_from_epoch")
                self._context.report(
                    events_pb2.AttemptStarted(pid=self._pid, resumed_from_epoch=resumed)
                )
            case "progress":
                self._on_progress(line)
            case "epoch":
                self._context.report(json_format.ParseDict(line, events_pb2.EpochCompleted()))
            case "checkpoint" if self._craft.checkpoint is not None:
                await self._craft.checkpoint(self._context, line)
            case _:
                log.warning("the child said something unknown: %s", kind)

    def _on_progress(self, line: Line) -> None:
        progress = self._context.progress
        fields = {k: v for k, v in line.items() if k in _PROGRESS_FIELDS and v is not None}
        json_format.ParseDict(fields, progress)
        progress.memory_bytes = _resident_bytes(self._pid)
        progress.last_step_time = self._clock.now()


def _facts(
    stage: str, facts: Mapping[str, Any]
) -> tuple[work_pb2.Findings | None, work_pb2.ModelFacts | None]:
    if not facts:
        return None, None
    if stage == "prepare":
        return json_format.ParseDict(dict(facts), work_pb2.Findings()), None
    return None, json_format.ParseDict(dict(facts), work_pb2.ModelFacts())


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0
