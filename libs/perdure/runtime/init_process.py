"""What the first process of a container owes the others, when nobody else is there to do it.

The kernel treats PID 1 unlike all others: it inherits every process whose parent has died, and a
process that nobody waits for stays as a zombie; and signals whose handler is the default, SIGKILL
from inside among them, do nothing to it. So PID 1 only passes signals on and waits, and the service
is its child.
"""

import os
import signal
from typing import Final

# What is for the service to act on. Of the others PID 1 takes SIGCHLD, and none means it.
_PASSED_ON: Final = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
_KILLED: Final = 128  # plus the signal's number, as a shell says it


def be_init_if_first() -> None:
    """Return in the process that is to do the work: this one, or a child of it when this is PID 1.

    PID 1 stays here, and ends with its child and that one's exit code. Call it before there are
    threads.
    """
    if os.getpid() != 1:
        return
    # Blocked signals wait to be taken; those with a default handler would be lost on PID 1.
    waited_for = _PASSED_ON | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    service = os.fork()
    if service == 0:
        # A session of its own: Ctrl-C at a container's terminal comes once, passed on, not twice.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(waited_for)
        if number in _PASSED_ON:
            os.kill(service, number)
            continue
        code = _reaped(service)
        if code is not None:
            os._exit(code)


def _reaped(service: int) -> int | None:
    """Take the end of every child that has ended; the exit code of `service` if it is one."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # none is left
            return code
        if pid == 0:
            return code
        if pid == service:
            ended = os.waitstatus_to_exitcode(status)
            code = ended if ended >= 0 else _KILLED - ended
