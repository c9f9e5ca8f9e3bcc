"""Log lines as JSON, so that a machine can read them, and short for a person at the terminal."""

import json
import logging
import logging.handlers
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from perdure.telemetry.logging_context import log_fields

# What a LogRecord has of itself; the rest came in through `extra`.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
MAX_FILE_BYTES: Final = 16 << 20
KEPT_FILES: Final = 3
# These say at level info what each request does, and uvicorn that it begins and ends.
_TALKATIVE: Final = ("httpx", "uvicorn")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, service when there is one, logger, message, what the
    work is about (`task`, `attempt`, which is its fence, and `trace`), and the extra fields.
    """

    def __init__(self, service: str = "") -> None:
        super().__init__()
        self._service = {"service": service} if service else {}

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        taken = _OWN | line.keys()
        line |= log_fields()
        line |= {key: value for key, value in vars(record).items() if key not in taken}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_to_stderr(service: str, level: str = "info") -> None:
    """Send the log of this process, that of all its libraries included, to standard error as JSON
    lines. `level` is "debug", "info", "warning" or "error".
    """
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(JsonFormatter(service))
    logging.basicConfig(level=level.upper(), handlers=[to_stderr], force=True)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_end_of_thread
    if level != "debug":
        _quiet()


def log_to_file(path: Path) -> None:
    """Send the log of this process to a file, which is rotated, and warnings to standard error as
    well.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    to_file = logging.handlers.RotatingFileHandler(
        path, maxBytes=MAX_FILE_BYTES, backupCount=KEPT_FILES, encoding="utf-8"
    )
    to_file.setFormatter(JsonFormatter())
    to_terminal = logging.StreamHandler(sys.stderr)
    to_terminal.setLevel(logging.WARNING)
    to_terminal.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[to_file, to_terminal], force=True)
    _quiet()


def _quiet() -> None:
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _log_end_of_thread(end: threading.ExceptHookArgs) -> None:
    if end.exc_value is not None and not isinstance(end.exc_value, SystemExit):
        name = end.thread.name if end.thread else "unknown"
        logging.getLogger(__name__).critical("thread %s failed", name, exc_info=end.exc_value)


class _OneLine(logging.Formatter):
    """No traceback at the terminal: it is in the file."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"
