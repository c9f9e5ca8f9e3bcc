"""True folders and regular files at paths of ours, whatever somebody else has put there.

A link is never followed at the path itself: what it leads to is not ours. A FIFO, socket or device
has no business where a file belongs; opening one may wait for ever.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

# For os.open: the file itself, at once.
ITSELF: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_folder(path: Path) -> bool:
    """Whether a folder lies at `path` itself."""
    mode = _mode(path)
    return mode is not None and S_ISDIR(mode)


def is_file(path: Path) -> bool:
    """Whether a regular file lies at `path` itself."""
    mode = _mode(path)
    return mode is not None and S_ISREG(mode)


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError for anything else, and never waits."""
    descriptor = os.open(path, os.O_RDONLY | ITSELF)
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def clear_for_folder(path: Path) -> None:
    """Remove what lies at `path`, unless it is a folder. Raises OSError."""
    _clear(path, S_ISDIR)


def clear_for_file(path: Path) -> None:
    """Remove what lies at `path`, unless it is a regular file. Raises OSError."""
    _clear(path, S_ISREG)


def remove(path: Path) -> None:
    """Remove what lies at `path`, a folder with all that is in it. Raises OSError."""
    if is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _clear(path: Path, belongs: Callable[[int], bool]) -> None:
    if _belongs(path, belongs):
        return
    # One at a time: what another process has just made in its place is not removed.
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not _belongs(path, belongs):
            remove(path)
    finally:
        os.close(descriptor)


def _belongs(path: Path, belongs: Callable[[int], bool]) -> bool:
    mode = _mode(path)
    return mode is None or belongs(mode)


def _mode(path: Path) -> int | None:
    """What lies at `path`, or None when nothing does."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
