"""Log lines as JSON, so that a machine can read them, and short for a person at the terminal."""

import json
import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

# What a LogRecord has of itself; the rest came in through `extra`.
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
MAX_FILE_BYTES: Final = 16 << 20
KEPT_FILES: Final = 3


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON text."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _OWN}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


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
    logging.getLogger("httpx").setLevel(logging.WARNING)


class _OneLine(logging.Formatter):
    """No traceback at the terminal: it is in the file."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {record.getMessage()}"
