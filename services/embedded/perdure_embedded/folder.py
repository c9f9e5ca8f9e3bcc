"""The data folder of an embedded server: what lies where, and who holds it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.artifacts.files import write_bytes
from perdure.errors import InvalidSetting
from perdure.runtime.data_folder import held

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
    def outbox(self) -> Path:
        """Reports of the workers that are not recorded yet."""
        return self.root / "outbox"

    @property
    def spool(self) -> Path:
        """Uploads that are on their way to the store."""
        return self.root / "spool"

    @property
    def server_log(self) -> Path:
        """The server's own log."""
        return self.root / "server.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder; only one process can.

        Raises AlreadyRunning with the pid of the other.
        """
        with held(self.root, otherwise="--data-dir"):
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
