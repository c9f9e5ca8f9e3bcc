"""What the command's exit codes mean, and which one an error ends it with."""

from enum import IntEnum
from typing import Final

from perdure.errors import InvalidDataset, InvalidInput, PerdureError, Unavailable


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    NEGATIVE = 1
    MISUSE = 2
    UNAVAILABLE = 3
    BUG = 70  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130  # as a shell tells of SIGINT


MEANINGS: Final[dict[ExitCode, str]] = {
    ExitCode.DONE: "done",
    ExitCode.NEGATIVE: "no: findings, a failed task, nothing of that name",
    ExitCode.MISUSE: "misuse: a wrong option, setting, configuration or path",
    ExitCode.UNAVAILABLE: "the server, or what it needs, does not answer: try again",
    ExitCode.BUG: "a bug in Perdure: the last line names the traceback's file",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C",
}


def exit_code(error: PerdureError) -> ExitCode:
    """What a command ends with after this error."""
    match error:
        case Unavailable():
            return ExitCode.UNAVAILABLE
        case InvalidDataset():  # misuse is a wrong command; this is an answer about the data
            return ExitCode.NEGATIVE
        case InvalidInput():
            return ExitCode.MISUSE
        case _:
            return ExitCode.NEGATIVE


def listed() -> str:
    """All exit codes, one a line, for the end of a help page."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
