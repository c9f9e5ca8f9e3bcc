"""The operating-system account that a PostgreSQL server runs under: it refuses to run as root."""

import os
import pwd
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.errors import InvalidSetting

CANDIDATES = ("postgres", "nobody")  # accounts that a system has anyway: none is made
# Without this bit, access(2), with which PostgreSQL looks for its programs, ignores capabilities.
SECUREBITS = ("--securebits=+no_setuid_fixup",)


@dataclass(frozen=True)
class Account:
    """The user and group that own a data folder and run its server."""

    uid: int
    gid: int

    def give(self, folder: Path) -> None:
        """Make `folder` exist, private to this account."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.uid != os.geteuid():
            os.chown(folder, self.uid, self.gid)
        folder.chmod(0o700)

    def write(self, file: Path, text: str) -> None:
        """Write a file of this account."""
        file.write_text(text)
        if self.uid != os.geteuid():
            os.chown(file, self.uid, self.gid)

    def command(self, command: Sequence[str | Path], *, touches: Sequence[Path]) -> list[str]:
        """`command` as this account, able to enter the folders `touches`.

        Folders on the way (such as /root) may be closed to the account. Their modes are left
        alone: the command then keeps root's right to pass them, as an ambient capability.
        """
        plain = [str(part) for part in command]
        if self.uid == os.geteuid():
            return plain
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise InvalidSetting(
                "PostgreSQL does not run as root, and the program setpriv (package util-linux), "
                "which starts it under another account, is missing: install it, or run perdure "
                "as a normal user"
            )
        drop = [setpriv, f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups"]
        if all(self._can_enter(folder) for folder in touches):
            return [*drop, *plain]
        passing = "-all,+dac_override"
        return [*drop, *SECUREBITS, f"--inh-caps={passing}", f"--ambient-caps={passing}", *plain]

    def _can_enter(self, folder: Path) -> bool:
        return all(self._can_search(step) for step in (folder.resolve(), *folder.resolve().parents))

    def _can_search(self, folder: Path) -> bool:
        status = folder.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def for_folder(folder: Path) -> Account:
    """The account for a server on `folder`: ours; when we are root, the folder's owner or a system
    account.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if folder.exists() and folder.stat().st_uid != 0:
        status = folder.stat()
        return Account(status.st_uid, status.st_gid)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise InvalidSetting(
        "PostgreSQL does not run as root, and none of the accounts "
        f"{', '.join(CANDIDATES)} exists: run perdure as a normal user"
    )


def own_name() -> str:
    """The name of the user that runs this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise InvalidSetting(
            f"user id {os.geteuid()} has no name in /etc/passwd, which PostgreSQL needs: add an "
            "entry for it"
        ) from None
