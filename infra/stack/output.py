"""What a process of the stack prints: a file that only its owner can read, and its end."""

import os
from pathlib import Path
from typing import BinaryIO, Final

LAST_BYTES: Final = 32_768
PRIVATE: Final = 0o600  # a server may print addresses and keys


def opened(file: Path) -> BinaryIO:
    """Open `file` to add to it; only its owner can read it, also when it was there before."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    os.fchmod(fd, PRIVATE)
    return os.fdopen(fd, "ab")


def last_lines(file: Path, count: int) -> list[str]:
    """The last lines of `file`, at most `count`; none when there is no such file."""
    try:
        with file.open("rb") as printed:
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - LAST_BYTES))
            text = printed.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:]
