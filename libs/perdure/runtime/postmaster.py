"""The process of a PostgreSQL server: whether it runs on a folder, and how it is stopped."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from perdure.errors import LogUnavailable

FAST_STOP_S = 6.0  # a whole `perdure up` has 10 s to stop
IMMEDIATE_STOP_S = 2.0  # after it, the next start replays the write-ahead log: nothing is lost
KILL_S = 5.0
ORPHANS_S = 10.0  # backends notice the death of their postmaster within a second or so
POLL_S = 0.01

_FIELDS = 8  # lines of a complete postmaster.pid


@dataclass(frozen=True)
class Notes:
    """What a server wrote into its postmaster.pid."""

    pid: int
    socket_dir: Path | None
    shared_memory_id: int | None
    ready: bool


def read(data: Path) -> Notes | None:
    """The notes of the server that runs, or ran last, on `data`; None after a clean stop."""
    try:
        lines = (data / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    lines += [""] * (_FIELDS - len(lines))
    memory = lines[6].split()
    return Notes(
        pid=int(lines[0]),
        socket_dir=Path(lines[4].strip()) if lines[4].strip() else None,
        shared_memory_id=int(memory[1]) if len(memory) > 1 else None,
        ready=lines[7].strip() == "ready",
    )


def retire(data: Path, *, keep: Path | None = None) -> None:
    """Bring an end to what an earlier owner, killed without a chance to stop, left on `data`.

    The folder of its socket goes too, unless it is `keep`, which is only emptied. Raises
    LogUnavailable when processes of it hold on to the folder.
    """
    notes = read(data)
    if notes is not None:
        if _serves(notes.pid, data):
            stop(notes.pid, lambda: None if _serves(notes.pid, data) else 0)
        _await_detached(notes, data)
        if notes.socket_dir is not None and notes.socket_dir.is_dir():
            for left in notes.socket_dir.glob(".s.PGSQL.*"):
                left.unlink(missing_ok=True)
            if notes.socket_dir != keep:
                notes.socket_dir.rmdir()
    # The pid in it may by now be some other program's, which PostgreSQL would take for a server.
    (data / "postmaster.pid").unlink(missing_ok=True)


def stop(pid: int, ended: Callable[[], int | None]) -> None:
    """Stop the server `pid`: in order, at once, by force. `ended` is not None when it is gone."""
    for number, patience_s in (
        (signal.SIGINT, FAST_STOP_S),
        (signal.SIGQUIT, IMMEDIATE_STOP_S),
        (signal.SIGKILL, KILL_S),
    ):
        if ended() is not None:
            return
        os.kill(pid, number)
        deadline = time.monotonic() + patience_s
        while ended() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
    if ended() is None:
        raise LogUnavailable(f"the PostgreSQL process {pid} does not end, even when killed")


def _serves(pid: int, data: Path) -> bool:
    """Whether process `pid` is a server on `data`, and not some other program with a reused id."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        command = process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
    return str(data) in command and "-D" in command


def _await_detached(notes: Notes, data: Path) -> None:
    """Wait until no backend uses the server's shared memory any more: two servers would destroy
    the data.
    """
    deadline = time.monotonic() + ORPHANS_S
    while _attached(notes.shared_memory_id):
        if time.monotonic() > deadline:
            raise LogUnavailable(
                f"processes of an earlier PostgreSQL server (pid {notes.pid}) still use {data}: "
                "end them first"
            )
        time.sleep(POLL_S)


def _attached(shared_memory_id: int | None) -> bool:
    try:
        rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    except FileNotFoundError:
        return False
    # columns: key shmid perms size cpid lpid nattch ...
    return any(row.split()[1] == str(shared_memory_id) and row.split()[6] != "0" for row in rows)
