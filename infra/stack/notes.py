"""What the folder of a stack remembers from one start to the next: ports and secrets."""

import json
import secrets
from pathlib import Path
from typing import Final

from infra.stack.ports import free_port, is_free
from perdure.errors import InvalidSetting

FILE: Final = "notes.json"
SECRET_BYTES: Final = 24


class Notes:
    """Ports and secrets by name, made when they are first asked for, in a file that only its owner
    can read.
    """

    def __init__(self, folder: Path) -> None:
        """Raises InvalidSetting when the file of an earlier start is not whole."""
        self._path = folder / FILE
        self._ports: dict[str, int] = {}
        self._chosen: set[str] = set()
        self._secrets: dict[str, str] = {}
        if self._path.exists():
            try:
                noted = json.loads(self._path.read_text(encoding="utf-8"))
                self._ports, self._secrets = noted["ports"], noted["secrets"]
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidSetting(
                    f"{self._path} is damaged ({error!r}): without its passwords the data beside "
                    "it cannot be used; take another folder"
                ) from error

    def port(self, name: str) -> int:
        """The port of `name`: the one of the last start, if nobody else has taken it since."""
        if name not in self._chosen:
            self._chosen.add(name)
            if name not in self._ports or not is_free(self._ports[name]):
                self._ports[name] = free_port()
                self._write()
        return self._ports[name]

    def secret(self, name: str) -> str:
        """The password or key of `name`."""
        if name not in self._secrets:
            self._secrets[name] = secrets.token_urlsafe(SECRET_BYTES)
            self._write()
        return self._secrets[name]

    def _write(self) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps({"ports": self._ports, "secrets": self._secrets}, indent=1))
        fresh.replace(self._path)
