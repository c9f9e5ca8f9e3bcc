"""Reports on disk, in order, until the scheduler has recorded them: one SQLite file a worker.

Everything here blocks: call it in a thread.
"""

import logging
import sqlite3
import threading
from itertools import count
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from perdure.contracts.v1 import work_pb2
from perdure.errors import PerdureError

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
_DAMAGE: Final = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_PRIMARY: Final = 0xFF  # the lower byte of SQLite's extended error codes


class ReportFile:
    """What a worker has said and nobody has recorded yet. It outlives the process."""

    def __init__(self, folder: Path) -> None:
        """A damaged file is set aside, and what can be read of it taken over: work goes before
        reports.

        Raises PerdureError when the folder cannot be used, e.g. on a full disk; then nothing has
        changed.
        """
        self._lock = threading.Lock()
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = _opened(path)
        except (OSError, sqlite3.Error) as error:
            raise PerdureError(
                f"the reports in {path} cannot be opened ({error}): see that the disk has room and "
                "the folder can be written, then start again"
            ) from error

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


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return _open(path)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & _PRIMARY not in _DAMAGE:
            raise  # the file may be well: a full disk, a lock, missing rights
        aside = _set_aside(path)
        rows = _readable(aside)
        log.error(
            "reports on disk are damaged (%s): set aside as %s, %d of them taken over",
            error,
            aside,
            len(rows),
        )
        fresh = _open(path)
        with fresh:
            fresh.executemany("INSERT OR IGNORE INTO report (id, body) VALUES (?, ?)", rows)
        return fresh


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # on disk before it is sent
        connection.execute(_SCHEMA)
        connection.commit()
        [(told,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
        if told != "ok":
            damage = sqlite3.DatabaseError(told)
            damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damage
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _set_aside(path: Path) -> Path:
    """Give the file, and what belongs to it, a name that is free."""
    free = (path.with_name(f"reports.damaged-{number}") for number in count(1))
    aside = next(name for name in free if not name.exists())
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def _readable(path: Path) -> list[tuple[str, bytes]]:
    """The rows of a damaged file, up to the first that cannot be read."""
    rows: list[tuple[str, bytes]] = []
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
    try:
        for row in connection.execute("SELECT id, body FROM report ORDER BY number"):
            rows.append(row)  # noqa: PERF402 - those before the one that fails count
    except sqlite3.Error as error:
        log.warning("of the damaged reports no more can be read: %s", error)
    finally:
        connection.close()
    return rows
