"""Brings a database to this version's schema: numbered SQL files, applied once, in order."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from perdure.errors import SchemaMismatch
from perdure.eventlog.connection import answering, configured, connect
from perdure.eventlog.statements import statement

LOCK = 7_305_808_869_229_538  # an arbitrary number, Perdure's own: one migrates, others wait
LOCK_TIMEOUT_S = 60

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


@dataclass(frozen=True)
class Migration:
    """One numbered change of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL, hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def bundled() -> tuple[Migration, ...]:
    """The migrations of this version, in order."""
    found = []
    for file in (resources.files("perdure.eventlog") / "sql" / "migrations").iterdir():
        match = _FILE_NAME.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.number)
    assert [m.number for m in found] == list(range(1, len(found) + 1)), "migrations are not 1..n"
    return tuple(found)


async def migrate(dsn: str, migrations: Sequence[Migration] | None = None) -> int:
    """Apply what the database `dsn` does not have yet, all or nothing, and give the number applied.

    Any number of processes may call this at once. Raises SchemaMismatch when the database has a
    migration that this version does not know, or knows with other content; LogUnavailable;
    InvalidSetting.
    """
    wanted = bundled() if migrations is None else migrations
    with configured():
        connection = await connect(dsn)
    try:
        with configured():
            async with connection.transaction():
                return await _apply(connection, wanted)
    finally:
        with answering():
            await connection.close()


async def _apply(connection: Any, wanted: Sequence[Migration]) -> int:
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
    if await connection.fetchval("SELECT to_regclass('perdure.migration') IS NULL"):
        await connection.execute(statement("create_migration_table"))
    applied = await connection.fetch(statement("read_migrations"))
    _check(applied, wanted)
    missing = wanted[len(applied) :]
    for migration in missing:
        await connection.execute(migration.sql)
        await connection.execute(
            statement("record_migration"), migration.number, migration.name, migration.checksum
        )
    return len(missing)


def _check(applied: Sequence[Any], wanted: Sequence[Migration]) -> None:
    for row, migration in zip(applied, wanted, strict=False):
        if (row["number"], row["checksum"]) != (migration.number, migration.checksum):
            raise SchemaMismatch(
                f"migration {row['number']:04d}_{row['name']} was applied to this database with "
                "other content than it has in this version: a migration that was applied must not "
                "be changed, add a new one"
            )
    if len(applied) > len(wanted):
        newest = applied[-1]
        raise SchemaMismatch(
            f"this database has migration {newest['number']:04d}_{newest['name']}, which this "
            "version of Perdure does not know: run one at least as new as the one that applied it"
        )
