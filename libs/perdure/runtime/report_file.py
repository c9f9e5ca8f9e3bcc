"""Reports on disk, in order, until the scheduler has recorded them: one SQLite file a worker.

Everything here blocks: call it in a thread.
"""

import logging
import sqlite3
import threading
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from perdure.contracts.v1 import work_pb2

log = logging.getLogger(__name__)

FILE: Final = "reports.sqlite"
# Another process holds the file for the length of a write at most.
BUSY_TIMEOUT_S: Final = 5.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS report (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL
)
"""


class ReportFile:
    """What a worker has said and nobody has recorded yet. It outlives the process."""

    def __init__(self, folder: Path) -> None:
        """A file that cannot be read is set aside, and a new one begun: work goes before reports.

        Raises OSError when the folder cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        path = folder / FILE
        try:
            self._connection = _open(path)
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            log.error("reports on disk cannot be read (%s): set aside as %s", error, aside)
            self._connection = _open(path)

    def all(self) -> list[work_pb2.Report]:
        """What is there, oldest first."""
        with self._lock:
            rows = self._connection.execute("SELECT body FROM report ORDER BY number").fetchall()
        reports = []
        for (body,) in rows:
            try:
                reports.append(work_pb2.Report.FromString(body))
            except DecodeError:
                log.error("a report on disk cannot be read: %d bytes passed over", len(body))
        return reports

    def add(self, report: work_pb2.Report) -> None:
        """Keep a report. Raises sqlite3.Error, e.g. on a full disk."""
        with self._lock, self._connection:
            self._connection.execute(
                "INSERT OR IGNORE INTO report (id, body) VALUES (?, ?)",
                (report.id, report.SerializeToString()),
            )

    def remove(self, ids: list[str]) -> None:
        """Forget reports. Raises sqlite3.Error."""
        with self._lock, self._connection:
            self._connection.executemany("DELETE FROM report WHERE id = ?", [(i,) for i in ids])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # on disk before it is sent
        connection.execute(_SCHEMA)
        connection.commit()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
