"""`make stack`: runs the whole of Perdure on this machine until Ctrl-C."""

import argparse
import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

from infra.stack.proxy import HOST
from infra.stack.stack import Stack
from perdure import __version__
from perdure.errors import PerdureError

DEFAULT_FOLDER: Final = Path("perdure-stack")
POLL_S: Final = 0.5
# Between the death of something and its next start: it doubles, so that what dies at once each time
# does not keep a core busy, and begins anew for what has lived for a while.
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
LONG_LIFE_S: Final = 60.0
FAILED: Final = 1
INTERRUPTED: Final = 130


class Process(Protocol):
    """A server or a service."""

    @property
    def pid(self) -> int | None:
        """The process id, None while it does not run."""

    def start(self) -> object:
        """Start it if it does not run."""


@dataclass
class Kept:
    """A process that is started again when it has died."""

    name: str
    process: Process
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
            say(f"{self.name} has died: it is started again in {self.pause_s:.0f} s")
        elif now - self.died_at >= self.pause_s:
            self.died_at, self.started_at = None, now
            try:
                self.process.start()
            except PerdureError as error:
                say(f"{self.name}: {error.message}")
            else:
                say(f"{self.name} is started again, pid {self.process.pid}")


def main() -> None:
    """Run the stack, and exit."""
    parser = argparse.ArgumentParser(prog="python -m infra.stack", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_FOLDER, help="where everything is kept"
    )
    folder = parser.parse_args().data_dir
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        with Stack(folder) as stack:
            _show(stack)
            _keep(stack)
    except PerdureError as error:
        sys.exit(f"error: {error.message}")
    except KeyboardInterrupt:
        say("stopped; `make stack` goes on where it was")


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Stop in order; at the second time at once: the kernel then ends all that was started."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(INTERRUPTED))
    say("stopping: running trainings write a checkpoint (again: stop at once) ...")
    raise KeyboardInterrupt


def _show(stack: Stack) -> None:
    """One line for each process, and how to use it all."""
    postgres = f"PostgreSQL {stack.postgres.version} from {stack.postgres.source}"
    for name, server in stack.servers.items():
        note = postgres if server is stack.postgres else ""
        say(f"{name:13} {HOST}:{server.port:<5}  pid {server.pid:<7} {note}".rstrip())
    for label, service in stack.services.items():
        say(f"{label:13} {service.health_url.removeprefix('http://')}  pid {service.pid}")
    say(f"Perdure {__version__} is up at {stack.url}  (data and logs: {stack.folder})")
    say(f"in other terminals:  export PERDURE_URL={shlex.quote(stack.url)}")
    say("train with:  perdure train FOLDER --wait   (perdure is in .venv/bin)")
    say("Ctrl-C stops it.")


def _keep(stack: Stack) -> None:
    """Start again whatever dies, for ever."""
    processes: dict[str, Process] = {**stack.servers, **stack.services}
    kept = [Kept(name, process) for name, process in processes.items()]
    while True:
        for process in kept:
            process.look(time.monotonic())
        time.sleep(POLL_S)


def say(line: str) -> None:
    """Tell the person at the terminal."""
    print(line, flush=True)


if __name__ == "__main__":
    main()
