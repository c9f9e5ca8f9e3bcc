"""A folder that one process has for itself."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

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
        made(root)
        lock = (root / LOCK_FILE).open("a+", encoding="utf-8", errors="replace")
    except OSError as error:
        raise _unusable(root, error, otherwise) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _holder(lock)
            stop = f"stop it with `kill {pid}`" if pid != "unknown" else "stop it"
            raise AlreadyRunning(
                f"a Perdure server with pid {pid} holds {root}. Use it, {stop}, "
                f"or give another folder with {otherwise}",
                pid=pid,
            ) from None
        except OSError as error:  # a file system without locks
            raise _unusable(root, error, otherwise) from error
        try:
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), str(os.getpid()).encode())
        except OSError as error:  # a full disk
            raise _unusable(root, error, otherwise) from error
        yield


def made(folder: Path) -> None:
    """Make a folder, with those above it, unless it is there (blocking).

    Raises OSError when that fails, and when nothing can be put into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        told = os.strerror(errno.ENOTDIR)
        raise NotADirectoryError(errno.ENOTDIR, told, str(folder)) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        readonly = os.statvfs(folder).f_flag & os.ST_RDONLY
        number = errno.EROFS if readonly else errno.EACCES
        raise OSError(number, os.strerror(number), str(folder))


def emptied(folder: Path) -> None:
    """Make a folder that holds nothing, as far as what lies there lets itself be removed
    (blocking). Raises OSError as `made` does.
    """
    shutil.rmtree(folder, ignore_errors=True)
    made(folder)


def _holder(lock: TextIO) -> str:
    lock.seek(0)
    pid = lock.read(20).strip()
    return pid if pid.isdecimal() else "unknown"


def _unusable(root: Path, error: OSError, otherwise: str) -> InvalidSetting:
    return InvalidSetting(
        f"the data folder {root} cannot be used: {error.strerror}. "
        f"Give another one with {otherwise}"
    )
