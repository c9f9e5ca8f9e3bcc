"""Migrations: each applied once, in order, under a lock, and never changed afterwards."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from perdure.errors import InvalidSetting, LogUnavailable, SchemaMismatch
from perdure.eventlog.migrations import Migration, bundled, migrate
from perdure.runtime.embedded_postgres import EmbeddedPostgres

FIRST = Migration(1, "first", "CREATE TABLE first (n int)")
SECOND = Migration(2, "second", "INSERT INTO first VALUES (2); ALTER TABLE first ADD COLUMN m int")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("postgres") / "server"
    with EmbeddedPostgres(folder, durable=False) as postgres:
        yield postgres.dsn


@pytest.fixture
async def admin(server: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server)
    await connection.execute("DROP SCHEMA IF EXISTS perdure CASCADE; DROP TABLE IF EXISTS first")
    yield connection
    await connection.close()


async def _applied(admin: asyncpg.Connection) -> list[int]:
    rows = await admin.fetch("SELECT number FROM perdure.migration ORDER BY applied_at, number")
    return [row["number"] for row in rows]


async def test_what_is_missing_is_applied_in_order(server: str, admin: asyncpg.Connection) -> None:
    assert await migrate(server, [FIRST]) == 1
    assert await migrate(server, [FIRST, SECOND]) == 1
    assert await migrate(server, [FIRST, SECOND]) == 0

    assert await _applied(admin) == [1, 2]
    assert await admin.fetchval("SELECT array_agg(n) FROM first") == [2]


async def test_many_at_once_apply_each_migration_once(
    server: str, admin: asyncpg.Connection
) -> None:
    counts = await asyncio.gather(*(migrate(server) for _ in range(8)))

    assert sorted(counts) == [0] * 7 + [len(bundled())]
    assert await _applied(admin) == [migration.number for migration in bundled()]


async def test_a_migration_that_fails_leaves_nothing_behind(
    server: str, admin: asyncpg.Connection
) -> None:
    broken = Migration(2, "broken", "ALTER TABLE first ADD COLUMN m int; SELECT 1 / 0")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(server, [FIRST, broken])

    assert await admin.fetchval("SELECT to_regclass('first')") is None
    assert await migrate(server, [FIRST, SECOND]) == 2


async def test_a_migration_that_was_changed_is_refused(
    server: str, admin: asyncpg.Connection
) -> None:
    await migrate(server, [FIRST])

    with pytest.raises(SchemaMismatch, match="0001_first"):
        await migrate(server, [Migration(1, "first", "CREATE TABLE first (n bigint)"), SECOND])

    assert await _applied(admin) == [1]


async def test_a_database_of_a_newer_version_is_refused(
    server: str, admin: asyncpg.Connection
) -> None:
    await migrate(server, [FIRST, SECOND])

    with pytest.raises(SchemaMismatch, match="0002_second"):
        await migrate(server, [FIRST])


async def test_a_database_without_utf8_is_refused(server: str, admin: asyncpg.Connection) -> None:
    await admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")

    with pytest.raises(InvalidSetting, match="UTF-8"):
        await migrate(server.replace("/postgres?", "/latin?"))


async def test_an_account_without_rights_needs_none_when_nothing_is_missing(
    server: str, admin: asyncpg.Connection
) -> None:
    await migrate(server)
    await admin.execute(
        "SET default_transaction_read_only = off; ALTER DATABASE postgres SET"
        " default_transaction_read_only = on"
    )
    try:
        assert await migrate(server) == 0
    finally:
        await admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")


async def test_a_wrong_address_says_so(server: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="nowhere"):
        await migrate(server.replace("/postgres?", "/nowhere?"))
    with pytest.raises(LogUnavailable):
        await migrate(f"postgresql://perdure@/postgres?host={tmp_path}")
