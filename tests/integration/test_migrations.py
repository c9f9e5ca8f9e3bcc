"""Migrations: each applied once, in order, under a lock, and never changed afterwards."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from perdure.contracts.v1.events_pb2 import TaskCancelRequested
from perdure.errors import InvalidSetting, LogUnavailable, SchemaMismatch
from perdure.eventlog.migrations import Migration, bundled, migrate
from perdure.eventlog.postgres import open_postgres
from perdure.runtime.embedded_postgres import EmbeddedPostgres
from tests.builders.events import event, to

FIRST = Migration(1, "first", "CREATE TABLE first (n int)")
SECOND = Migration(2, "second", "INSERT INTO first VALUES (2); ALTER TABLE first ADD COLUMN m int")

# The definitions of everything in the schema, whatever it took to get there.
SCHEMA = """
SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
    || ' ' || a.attnotnull || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'perdure'::regnamespace
UNION ALL SELECT 'view', viewname, '', definition FROM pg_views WHERE schemaname = 'perdure'
UNION ALL SELECT 'index', indexname, '', indexdef FROM pg_indexes WHERE schemaname = 'perdure'
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'perdure'::regnamespace
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) || tgenabled::text
FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'perdure.%'
UNION ALL
SELECT 'function', proname, pg_get_function_identity_arguments(oid), pg_get_functiondef(oid)
FROM pg_proc WHERE pronamespace = 'perdure'::regnamespace
ORDER BY 1, 2, 3, 4
"""
# Two events as version 0.1 recorded them, before migration 3. The hashes are those of sha256sum.
OLD_APPEND = """
SELECT * FROM perdure.append_events(
    ARRAY[1], ARRAY['task-1'], ARRAY[0::bigint], ARRAY[1, 1], ARRAY['task-1', 'task-1'],
    ARRAY[1::bigint, 2], ARRAY['TaskCancelRequested', 'TaskCancelRequested'], ARRAY['a-1', 'a-2'],
    ARRAY['{"requested_by":"ann"}', '{"requested_by":"Änne"}'], array_fill(
        '{"causation_id":"report-1","correlation_id":"task-1","source":"tests",'
        '"time":"2026-01-02T03:04:05.000006+00:00"}'::text, ARRAY[2]
    )
)
"""
OLD_HASHES = [
    "a40b87afe63bc930e63dd6cca4038978aad6e04870e9696a88af2fb6446b63d1",
    "b38291c1159f9023191f021d197ff5bd93e27073ad1a8dd9060c6cbb76ee7c3c",
]


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


@pytest.mark.parametrize("from_number", range(len(bundled())))
async def test_an_upgraded_database_equals_a_fresh_one(
    server: str, admin: asyncpg.Connection, from_number: int
) -> None:
    await migrate(server)
    fresh = await admin.fetch(SCHEMA)
    await admin.execute("DROP SCHEMA perdure CASCADE")

    await migrate(server, bundled()[:from_number])
    if from_number in (1, 2):
        await admin.execute(OLD_APPEND)
    await migrate(server)

    assert await admin.fetch(SCHEMA) == fresh


async def test_what_an_older_version_recorded_stays_as_it_is(
    server: str, admin: asyncpg.Connection
) -> None:
    await migrate(server, bundled()[:2])
    await admin.execute(OLD_APPEND)

    log, _ = await open_postgres(server)
    known = to(
        "task-1", 0, event(id="a-1"), event(TaskCancelRequested(requested_by="Änne"), id="a-2")
    )
    again = await log.append(known)
    (new,) = await log.append(to("task-1", 2, event(id="a-3")))

    assert [e.hash for e in again] == OLD_HASHES
    assert (new.position, new.version) == (3, 3)
    assert await log.read_stream("task-1") == [*again, new]
    assert (await log.verify()).events == 3
    await log.close()


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
