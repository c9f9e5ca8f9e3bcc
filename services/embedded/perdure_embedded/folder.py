"""The data folder of an embedded server: what lies where, and who holds it."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.artifacts.files import write_bytes
from perdure.errors import AlreadyRunning, InvalidSetting

DATA_DIR_VARIABLE: Final = "PERDURE_DATA_DIR"
SERVER_FILE: Final = "server.json"


@dataclass(frozen=True)
class DataFolder:
    """Where an embedded server keeps everything."""

    root: Path

    @classmethod
    def chosen(cls, root: str | None) -> "DataFolder":
        """`root`, or the folder named by PERDURE_DATA_DIR, or ~/.local/share/perdure.

        Raises InvalidSetting for a name that is empty or cannot be resolved.
        """
        named = root if root is not None else os.environ.get(DATA_DIR_VARIABLE)
        if named is not None and not named.strip():
            raise InvalidSetting(
                f"the data folder's name is empty: see --data-dir and {DATA_DIR_VARIABLE}"
            )
        try:
            path = Path(named or "~/.local/share/perdure").expanduser().absolute()
        except RuntimeError as error:
            raise InvalidSetting(f"the data folder {named} cannot be found: {error}") from error
        try:
            os.fspath(path).encode()
        except UnicodeEncodeError as error:
            raise InvalidSetting(
                "the data folder's name is not UTF-8 text: take another folder"
            ) from error
        return cls(path)

    @property
    def postgres(self) -> Path:
        """The event log."""
        return self.root / "postgres"

    @property
    def store(self) -> Path:
        """The object store."""
        return self.root / "store"

    @property
    def cache(self) -> Path:
        """Data sets laid out for training; may be deleted while no server runs."""
        return self.root / "cache"

    @property
    def work(self) -> Path:
        """Folders of attempts that run."""
        return self.root / "work"

    @property
    def server_log(self) -> Path:
        """The server's own log."""
        return self.root / "server.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder; only one process can.

        Raises AlreadyRunning with the pid of the other.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "server.lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise InvalidSetting(
                f"the data folder {self.root} cannot be used: {error.strerror}. "
                "Give another one with --data-dir"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                pid = lock.read().strip() or "unknown"
                raise AlreadyRunning(
                    f"a Perdure server with pid {pid} holds {self.root}. Use it, stop it with "
                    f"`kill {pid}`, or give another folder with --data-dir",
                    pid=pid,
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    @contextmanager
    def announced(self, url: str) -> Iterator[None]:
        """Tell clients on this machine where the server listens."""
        path = self.root / SERVER_FILE
        write_bytes(path, json.dumps({"url": url, "pid": os.getpid()}).encode())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
