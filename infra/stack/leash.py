"""Processes that end with this one, however it ends: also when it is killed with SIGKILL.

The kernel sends the signal (PR_SET_PDEATHSIG). For it, the parent is the *thread* that started the
child. So all are started by one thread, which lives as long as this process.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from infra.stack.output import opened
from perdure.errors import InvalidSetting

OWNER_ONLY: Final = 0o077  # the mode bits that files and folders do not get

Result = TypeVar("Result")

_starter: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
# A parent that died before the signal was set sends none: then the program is not begun.
_IF_PARENT_LIVES: Final = '[ "$PPID" = "$0" ] && exec "$@"'


def leashed(command: Sequence[str | Path], number: signal.Signals = signal.SIGKILL) -> list[str]:
    """`command` as a process that gets the signal `number` when its parent dies.

    It has to be started through `in_starter`, and must not change its user afterwards: the kernel
    then forgets the signal. The process id stays that of the process that is started.

    Raises InvalidSetting where this cannot be had.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    if setpriv is None:
        raise InvalidSetting(
            "the program setpriv (Linux, package util-linux) is missing: without it, servers "
            "would be left behind when the launcher is killed"
        )
    name = number.name.removeprefix("SIG")
    check = ["/bin/sh", "-c", _IF_PARENT_LIVES, str(os.getpid())]
    return [setpriv, f"--pdeathsig={name}", *check, *(str(part) for part in command)]


def in_starter(start: Callable[[], Result]) -> Result:
    """Call `start` in the thread that starts processes, and give what it gives."""
    return _starter.submit(start).result()


def start(
    command: Sequence[str | Path], *, environment: Mapping[str, str], folder: Path, output: Path
) -> subprocess.Popen[bytes]:
    """Start `command` in `folder`, on the leash, in a session of its own, so that Ctrl-C in our
    terminal is for us to act on, in order. What it prints is added to the file `output`. That, and
    all that it makes, only its owner can read.
    """
    with opened(output) as sink:
        return in_starter(
            lambda: subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
                umask=OWNER_ONLY,
            )
        )
