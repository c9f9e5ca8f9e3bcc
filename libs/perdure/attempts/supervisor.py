"""The parent's side of an attempt: start the child, keep its pipes empty, stop it, say how it
ended.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.artifacts.credentials import CREDENTIAL_VARIABLES
from perdure.artifacts.files import write_bytes
from perdure.attempts.channel import CHANNEL_VARIABLE, JOB_FILE, STOPPED
from perdure.domain.failures import Failure, classify_exit, failure_of

log = logging.getLogger(__name__)

# From SIGTERM to SIGKILL: time to finish a step and write a checkpoint.
STOP_GRACE_S: Final = 30.0
# A child that says nothing for this long hangs. It is above the longest honest silence: a step, a
# batch of validation, the export of a large model.
MAX_SILENT_S: Final = 600.0
# After the child's end, how long its pipes may stay open through processes that it left behind.
DRAIN_S: Final = 5.0
EXIT_POLL_S: Final = 0.05
READ_BYTES: Final = 65536
# A line of the channel is a few hundred bytes; a result with facts about a model, some thousands.
MAX_LINE_BYTES: Final = 1 << 20
# Settings of the services and of their object store, with their secrets, are not for the children.
_WITHHELD: Final = ("PERDURE_", "AWS_")
Line = dict[str, Any]
OnLine = Callable[[Line], Awaitable[None]]
OnText = Callable[[bytes], None]


@dataclass(frozen=True)
class Outcome:
    """How a child ended. Exactly one of `result` and `failure` is set."""

    result: Mapping[str, Any] | None
    failure: Failure | None
    detail: str
    exit_code: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ChildCommand:
    """What to run: `python -u -m module job_dir`, with `job` in the folder.

    Only a child that `uses_store` sees the keys to the object store.
    """

    module: str
    job: Mapping[str, Any]
    job_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    uses_store: bool = False


class Child:
    """A running child process and what it has said."""

    def __init__(self, process: Process, channel: asyncio.StreamReader) -> None:
        self._process = process
        self._channel = channel
        self._last_word = asyncio.get_running_loop().time()
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._result: Mapping[str, Any] | None = None
        self._failed: tuple[Failure, str] | None = None
        self._facts: dict[str, Any] = {}
        self._ended_by_us: tuple[Failure, str] | None = None

    @property
    def pid(self) -> int:
        """The child's process id, and that of its group."""
        return self._process.pid

    @classmethod
    async def start(cls, command: ChildCommand) -> "Child":
        """Start the child in a session and process group of its own."""
        command.job_dir.mkdir(parents=True, exist_ok=True)
        write_bytes(command.job_dir / JOB_FILE, json.dumps(command.job).encode())
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-u",
                "-P",  # a random.py in somebody's folder is not the one that the child means
                "-m",
                command.module,
                str(command.job_dir),
                stdin=PIPE,
                stdout=PIPE,
                stderr=STDOUT,
                start_new_session=True,
                pass_fds=(write_end,),
                env=_environment(command, write_end),
                cwd=command.job_dir,
                limit=READ_BYTES,
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        return cls(process, reader)

    async def run(self, on_line: OnLine, on_text: OnText) -> Outcome:
        """Read both pipes until the child has ended, and say how.

        Reading never waits for `on_line`: a child must not stand still because its parent stores a
        checkpoint.
        """
        text = asyncio.create_task(self._pump_text(on_text))
        channel = asyncio.create_task(self._pump_channel())
        handled = asyncio.create_task(self._handle_lines(on_line))
        ended = asyncio.create_task(self._exit())
        silence = asyncio.create_task(self._end_when_silent())
        tasks = (text, channel, handled, ended, silence)
        try:
            await asyncio.wait((ended, handled), return_when=asyncio.FIRST_COMPLETED)
            if handled.done() and handled.exception() is not None:
                self._kill_group()  # what it says cannot be taken: it works for nobody
            exit_code = await ended
            self._kill_group()  # whatever the child has left behind
            await asyncio.wait((text, channel), timeout=DRAIN_S)
            channel.cancel()
            await handled
        finally:
            self._kill_group()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._outcome(exit_code)

    async def stop(self, failure: Failure, detail: str, grace_s: float = STOP_GRACE_S) -> None:
        """End the child: SIGTERM to its group, and SIGKILL when it is still there after
        `grace_s`.
        """
        self._ended_by_us = self._ended_by_us or (failure, detail)
        self._signal_group(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._exit(), grace_s)
        except TimeoutError:
            log.warning("child did not stop in time: killed", extra={"pid": self.pid})
            self._kill_group()

    async def _exit(self) -> int:
        """The exit code, once the child itself has ended.

        Not Process.wait: that also waits for the pipes, which a process that the child left behind
        may hold open.
        """
        while (exit_code := self._process.returncode) is None:
            await asyncio.sleep(EXIT_POLL_S)
        return exit_code

    async def _pump_channel(self) -> None:
        try:
            await self._read_channel()
        finally:
            self._lines.put_nowait(None)

    async def _read_channel(self) -> None:
        while True:
            try:
                raw = await self._channel.readline()
            except ValueError:  # longer than MAX_LINE_BYTES: the reader has dropped what it held
                log.warning("a line of the channel was too long", extra={"pid": self.pid})
                continue
            if not raw:
                return
            line = _parse(raw)
            if line is None:
                log.warning("not a line of the channel: %.200r", raw, extra={"pid": self.pid})
                continue
            self._last_word = asyncio.get_running_loop().time()
            self._lines.put_nowait(line)

    async def _handle_lines(self, on_line: OnLine) -> None:
        while (line := await self._lines.get()) is not None:
            match line["kind"]:
                case "result":
                    self._result = line["result"]
                case "failed":
                    self._failed = (failure_of(line["failure"]), str(line["detail"]))
                case "facts":
                    self._facts |= line["facts"]
                case _:
                    await on_line(line)

    async def _pump_text(self, on_text: OnText) -> None:
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(READ_BYTES):
            on_text(data)

    async def _end_when_silent(self) -> None:
        remaining_s = MAX_SILENT_S
        while remaining_s > 0:
            await asyncio.sleep(remaining_s)
            silent_s = asyncio.get_running_loop().time() - self._last_word
            remaining_s = MAX_SILENT_S - silent_s
        await self.stop(Failure.HANG, f"the process made no step for {MAX_SILENT_S:.0f} s")

    def _outcome(self, exit_code: int) -> Outcome:
        if self._result is not None and exit_code == 0:
            return Outcome(self._result, None, "", exit_code, self._facts)
        if self._failed is not None:
            failure, detail = self._failed
        elif self._ended_by_us is not None:
            failure, detail = self._ended_by_us
        elif exit_code == STOPPED:
            failure, detail = Failure.WORKER_STOPPED, "the process was asked to stop"
        else:
            failure, detail = classify_exit(exit_code)
        return Outcome(None, failure, detail, exit_code, self._facts)

    def _kill_group(self) -> None:
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(self._process.pid, number)


def _parse(raw: bytes) -> Line | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None


def _environment(command: ChildCommand, channel: int) -> dict[str, str]:
    needed = CREDENTIAL_VARIABLES if command.uses_store else frozenset[str]()
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_WITHHELD) or name in needed
    }
    return inherited | dict(command.environment) | {CHANNEL_VARIABLE: str(channel)}
