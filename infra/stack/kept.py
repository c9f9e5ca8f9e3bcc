"""A process of the stack that is started again when it has died, and what a person is told."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from infra.stack.output import last_lines
from perdure.errors import PerdureError

# Between the death of something and its next start: it doubles, so that what dies at once each time
# does not keep a core busy, and begins anew for what has lived for a while.
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
LONG_LIFE_S: Final = 60.0
SHOWN_CHARACTERS: Final = 300  # of a log's last line, which may be a whole JSON object


class Process(Protocol):
    """A server or a service."""

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by a signal), None while it runs."""

    @property
    def output(self) -> Path:
        """The file of what it prints."""

    def start(self) -> object:
        """Start it if it does not run."""


@dataclass
class Kept:
    """A process that is started again when it has died."""

    name: str
    process: Process
    tell: Callable[[str], None]
    pause_s: float = FIRST_PAUSE_S
    started_at: float = float("-inf")  # again, by us
    died_at: float | None = None

    def look(self, now: float) -> None:
        """Start it again if it has died and its pause is over, and say so."""
        if self.process.pid is not None:
            self.died_at = None
            return
        if self.died_at is None:
            self.died_at = now
            lived_long = now - self.started_at > LONG_LIFE_S
            self.pause_s = FIRST_PAUSE_S if lived_long else min(2 * self.pause_s, LONGEST_PAUSE_S)
            self.tell(
                f"{self.name} {ending(self.process.exit_code)}: it is started again in "
                f"{self.pause_s:.0f} s{self._printed()}"
            )
        elif now - self.died_at >= self.pause_s:
            self.died_at, self.started_at = None, now
            try:
                self.process.start()
            except PerdureError as error:
                self.tell(f"{self.name} could not be started: {error.message}")
            else:
                self.tell(f"{self.name} is started again, pid {self.process.pid}")

    def _printed(self) -> str:
        """Where its log is, and the last line of it that is not empty."""
        lines = [line.strip() for line in last_lines(self.process.output, 20) if line.strip()]
        last = lines[-1][:SHOWN_CHARACTERS] if lines else "(nothing)"
        return f"\n    its log: {self.process.output}\n    which ends: {last}"


def ending(exit_code: int | None) -> str:
    """How a process ended, in words."""
    if exit_code is None:
        return "does not run"
    if exit_code >= 0:
        return f"has ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-exit_code}"


def say(line: str) -> None:
    """Tell the person at the terminal what happens, and when."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
