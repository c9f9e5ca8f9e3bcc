"""Where the server is."""

import json
import os
from pathlib import Path
from typing import Final

from perdure.errors import ServerUnreachable

URL_VARIABLE: Final = "PERDURE_URL"
DATA_DIR_VARIABLE: Final = "PERDURE_DATA_DIR"
DEFAULT_URL: Final = "http://127.0.0.1:7412"
SERVER_FILE: Final = "server.json"


def data_dir() -> Path:
    """The folder of the local server."""
    named = os.environ.get(DATA_DIR_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".local" / "share" / "perdure"


def server_url() -> str:
    """PERDURE_URL, else what the local server wrote into server.json, else the default address.

    Raises ServerUnreachable when a data folder is named and no server runs on it: what answers at
    the default address then is somebody else's.
    """
    named = os.environ.get(URL_VARIABLE)
    if named:
        return named
    try:
        url = json.loads((data_dir() / SERVER_FILE).read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        if os.environ.get(DATA_DIR_VARIABLE):
            raise ServerUnreachable(
                f"no Perdure server runs on {data_dir()}: start one with: perdure up"
            ) from None
        return DEFAULT_URL
    return url if isinstance(url, str) else DEFAULT_URL
