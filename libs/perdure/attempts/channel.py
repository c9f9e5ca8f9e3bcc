"""The child's side of an attempt: read the job, say what happens, notice that it should stop.

An attempt runs as `python -u -P -m MODULE JOB_DIR`, in that folder. JOB_DIR/job.json holds the job.
What the child has to say goes as JSON Lines into the pipe whose descriptor is named by
PERDURE_CHANNEL_FD; stdout and stderr are only log text. The child's standard input is a pipe from
its parent that carries nothing: its end means that the parent is gone.

Exit codes: 0 after `result`, 1 after `failed`, STOPPED after a stop that was asked for with
SIGTERM.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from perdure.domain.failures import failure_behind
from perdure.errors import PerdureError
from perdure.telemetry.child import Phases, attempt_traced

CHANNEL_VARIABLE: Final = "PERDURE_CHANNEL_FD"
JOB_FILE: Final = "job.json"
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
STOPPED: Final = 75  # EX_TEMPFAIL: stopped as asked; the work can go on elsewhere


class Stopped(Exception):
    """The attempt was asked to stop and has stopped at a safe place."""


class Channel:
    """Where a child says what happens. Thread-safe: a line is written whole."""

    def __init__(self, descriptor: int) -> None:
        self._out = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.phases: Phases | None = None  # traced, when somebody collects traces

    @property
    def stop_requested(self) -> bool:
        """Whether the parent asked the child to stop: save, then raise Stopped."""
        return self._stop.is_set()

    def request_stop(self) -> None:
        """Make `stop_requested` true (called by the SIGTERM handler)."""
        self._stop.set()

    def say(self, kind: str, **fields: Any) -> None:
        """Send one line. `fields` are JSON values; a number that is not finite is sent as null."""
        line = json.dumps({"kind": kind, **_finite(fields)}, allow_nan=False)
        with self._lock:
            self._out.write(line + "\n")
            self._out.flush()

    def started(self, *, resumed_from_epoch: int | None = None) -> None:
        """The work begins; `resumed_from_epoch` is the number of completed epochs it goes on
        from.
        """
        self.say("started", resumed_from_epoch=resumed_from_epoch)

    def progress(self, phase: str, **fields: Any) -> None:
        """What goes on: fields of perdure.v1.AttemptProgress.

        Each call counts as a step of work done.
        """
        self.say("progress", phase=phase, **fields)
        if self.phases is not None:
            self.phases.enter(phase)

    def epoch(self, **fields: Any) -> None:
        """An epoch is complete: fields of perdure.v1.EpochCompleted."""
        self.say("epoch", **fields)

    def checkpoint(self, path: Path, *, digest: str, epoch: int, step: int, best: bool) -> None:
        """A checkpoint lies whole at `path`, until two newer ones have been written."""
        self.say("checkpoint", path=str(path), digest=digest, epoch=epoch, step=step, best=best)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Facts about the data set or the model, as fields of perdure.v1.Findings or
        perdure.v1.ModelFacts.

        They travel with the attempt's last report, whether it succeeds or fails; later fields are
        added to earlier.
        """
        self.say("facts", facts=dict(facts))

    def result(self, result: Mapping[str, Any]) -> None:
        """The attempt's result. The child exits with 0 after it."""
        self.say("result", result=dict(result))

    def failed(self, failure: str, detail: str) -> None:
        """The attempt failed; `failure` is a class of perdure.domain.failures."""
        self.say("failed", failure=failure, detail=detail)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


Work = Callable[[dict[str, Any], Path, Channel], Mapping[str, Any]]


def run_child(work: Work) -> NoReturn:
    """Run `work(job, job_dir, channel)` as the whole life of a child process, and end it.

    `work` returns the result, or raises AttemptError (with its failure class), Stopped, or
    anything else, which is reported as the failure class "unknown" with the last line of its
    traceback; the traceback goes to the log.
    """
    code = _run(work)
    sys.stdout.flush()
    sys.stderr.flush()
    # What there was to say is said. Taking a process with torch in it apart takes a second.
    os._exit(code)


def _run(work: Work) -> int:
    _die_with_parent()
    job_dir = Path(sys.argv[1])
    job = json.loads((job_dir / JOB_FILE).read_text(encoding="utf-8"))
    descriptor = os.environ.pop(CHANNEL_VARIABLE, "")
    channel = Channel(int(descriptor) if descriptor else os.dup(1))

    def on_sigterm(_signal: int, _frame: FrameType | None) -> None:
        channel.request_stop()

    signal.signal(signal.SIGTERM, on_sigterm)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    try:
        with attempt_traced(
            _service_of(work), job.get("task_id", ""), job.get("fence", 0)
        ) as phases:
            channel.phases = phases
            channel.result(work(job, job_dir, channel))
    except Stopped:
        return STOPPED
    except Exception as error:  # noqa: BLE001  the boundary of the process: recorded with its class
        traceback.print_exc()
        said = error.message if isinstance(error, PerdureError) else _in_a_line(error)
        channel.failed(failure_behind(error), said)
        return 1
    return 0


def _service_of(work: Work) -> str:
    """The service whose child this is, by the place of its code."""
    module = sys.modules[work.__module__]
    package = module.__spec__.name if module.__spec__ else module.__name__
    return package.partition(".")[0].removeprefix("perdure_").replace("_", "-")


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent dies, whatever this process is doing
    then.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_parent() -> None:
    """End this process when the parent's end of standard input closes: the parent died without a
    word.
    """
    if not os.isatty(0):
        while os.read(0, 4096):
            continue
        os._exit(STOPPED)
