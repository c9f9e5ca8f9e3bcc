"""A service of the stack as a process of its own: started, asked whether it is ready, stopped,
killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import httpx
import psutil

from infra.stack import leash
from infra.stack.output import last_lines
from perdure.errors import Unavailable

READY_TIMEOUT_S: Final = 120.0  # importing torch on a busy machine takes a while
STOP_TIMEOUT_S: Final = 60.0  # above the longest drain of a service, which is 30 s by default
END_TIMEOUT_S: Final = 30.0
PROBE_TIMEOUT_S: Final = 5.0  # above what a service allows its own checks
POLL_S: Final = 0.1
LAST_LINES: Final = 20
LOG_LIMIT_BYTES: Final = 16 * 1024 * 1024  # at a start, a larger log becomes NAME.log.1

# What a service may have of the launcher's environment, besides OTEL_* (where traces and metrics
# go). All else is given to it by name.
INHERITED: Final = frozenset(
    {
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",  # for the GPU's libraries, as the next ones
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "YOLO_CONFIG_DIR",
        "YOLO_OFFLINE",
        "YOLO_AUTOINSTALL",
    }
)


class ServiceProcess:
    """`perdure service NAME` with an environment of its own, started as often as one likes.

    `name` is the service, `label` this process among others of the same service. What it prints is
    added to `output`.
    """

    def __init__(
        self,
        name: str,
        label: str,
        *,
        environment: Mapping[str, str],
        health_port: int,
        output: Path,
    ) -> None:
        self.name = name
        self.label = label
        self.environment = dict(environment)
        self.output = output
        self.health_url = f"http://127.0.0.1:{health_port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the last start ended (negative: by a signal), None while it runs."""
        return None if self._process is None else self._process.poll()

    def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Start it if it does not run, without waiting until it is ready.

        `extra`, such as a PERDURE_CRASH_AT, is in the environment of this one start only.
        """
        if self.pid is not None:
            return
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith("OTEL_")
        }
        self.output.parent.mkdir(parents=True, exist_ok=True)
        if self.output.exists() and self.output.stat().st_size > LOG_LIMIT_BYTES:
            self.output.replace(self.output.with_name(f"{self.output.name}.1"))
        self._process = leash.start(
            [sys.executable, "-m", "perdure", "service", self.name],
            environment=inherited | self.environment | dict(extra or {}),
            folder=self.output.parent,
            output=self.output,
        )

    def is_ready(self) -> bool:
        """Whether its /readyz says so."""
        try:
            answer = httpx.get(
                f"{self.health_url}/readyz", timeout=PROBE_TIMEOUT_S, trust_env=False
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    def await_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until it is ready. Raises Unavailable, with its last lines, when it ends first or
        is not ready in time.
        """
        if not _within(timeout_s, lambda: self.pid is None or self.is_ready()):
            raise Unavailable(f"{self.label} is not ready after {timeout_s:.0f} s{self._said()}")
        if self.pid is None:
            raise Unavailable(f"{self.label} ended with {self.exit_code}{self._said()}")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Stop it as an operator would (SIGTERM), and give its exit code: -9 when it had to be
        killed after `timeout_s`, None when it was never started.
        """
        self.terminate()
        return self.end(timeout_s)

    def terminate(self) -> None:
        """Ask it to stop, without waiting. A second time means: at once, without a drain."""
        self._send(signal.SIGTERM)

    def end(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Wait until it has ended, kill it if it has not after `timeout_s`; gives its exit code."""
        if not _within(timeout_s, lambda: self.pid is None):
            self.kill()
        return self.exit_code

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is gone, and what it has started with it."""
        family = self.children()
        self._send(signal.SIGKILL)
        self.await_end(END_TIMEOUT_S)
        _, left = psutil.wait_procs(family, timeout=END_TIMEOUT_S)
        if left:
            raise Unavailable(f"{self.label} is gone, but these are not: {left}")

    def await_end(self, timeout_s: float) -> int | None:
        """Wait until it has ended by itself, and give its exit code.

        Raises Unavailable when it still runs after `timeout_s`.
        """
        if not _within(timeout_s, lambda: self.pid is None):
            raise Unavailable(f"{self.label} still runs after {timeout_s:.0f} s{self._said()}")
        return self.exit_code

    def children(self) -> list[psutil.Process]:
        """The processes that it has started, and theirs."""
        try:
            return psutil.Process(self.pid).children(recursive=True) if self.pid else []
        except psutil.NoSuchProcess:
            return []

    def last_lines(self) -> str:
        """The end of what it printed."""
        return "\n".join(last_lines(self.output, LAST_LINES))

    def _said(self) -> str:
        return f"; the last lines of {self.output}:\n{self.last_lines()}"

    def _send(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile
                self._process.send_signal(number)


def _within(timeout_s: float, condition: Callable[[], bool]) -> bool:
    """Wait until the condition holds; False when it does not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
