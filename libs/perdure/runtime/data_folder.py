"""A folder that one process has for itself."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from perdure.errors import AlreadyRunning, InvalidSetting

LOCK_FILE: Final = "server.lock"


@contextmanager
def held(root: Path, *, otherwise: str) -> Iterator[None]:
    """Hold the folder `root`, which is made when it is missing; only one process can.

    `otherwise` says how to give another folder. Raises AlreadyRunning with the pid of the other
    process, and InvalidSetting when the folder cannot be used. The kernel lets go of it when the
    process ends, however it ends.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / LOCK_FILE).open("a+", encoding="utf-8")
    except OSError as error:
        raise InvalidSetting(
            f"the data folder {root} cannot be used: {error.strerror}. "
            f"Give another one with {otherwise}"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            raise AlreadyRunning(
                f"a Perdure server with pid {pid} holds {root}. Use it, stop it with "
                f"`kill {pid}`, or give another folder with {otherwise}",
                pid=pid,
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
