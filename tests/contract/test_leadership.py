"""Who holds the lock leads: one at a time, for as long as the server hears of it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import pytest

from perdure.errors import DamagedLog, LogUnavailable
from perdure.eventlog import backoff, leadership
from perdure.eventlog.leadership import Leadership, lock_key, while_leading
from perdure.eventlog.postgres import PostgresLog

DEADLINE_S = 20.0
ROLE = "relay"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same relations, a fifth of the time."""
    for name in ("CAMPAIGN_EVERY_S", "PING_EVERY_S", "PING_TIMEOUT_S", "STOP_S", "IDLE_S"):
        monkeypatch.setattr(leadership, name, getattr(leadership, name) / 5)
    monkeypatch.setattr(leadership, "CANCEL_S", 0.2)
    monkeypatch.setattr(backoff, "FIRST_RETRY_S", 0.02)


@pytest.fixture
async def admin(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


class Member:
    """Stands by, and works while it leads. `told` says what happened, `times` when."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.known = Leadership()
        self.stopping = asyncio.Event()
        self.told: list[str] = []
        self.times: list[float] = []
        self.changed = asyncio.Event()

    def tell(self, what: str) -> None:
        self.told.append(what)
        self.times.append(time.monotonic())
        self.changed.set()

    async def work(self, ending: asyncio.Event) -> None:
        self.tell("began")
        try:
            await ending.wait()
        finally:
            self.tell("ended")

    async def until(self, what: str, count: int = 1) -> float:
        """When `what` happened for the `count`-th time."""
        async with asyncio.timeout(DEADLINE_S):
            while self.told.count(what) < count:
                self.changed.clear()
                await self.changed.wait()
        return [t for t, w in zip(self.times, self.told, strict=True) if w == what][count - 1]

    async def run(self, work: leadership.Work | None = None) -> None:
        await while_leading(self.dsn, ROLE, work or self.work, self.stopping, self.known)


@asynccontextmanager
async def standing_by(*members: Member, work: leadership.Work | None = None) -> AsyncIterator[None]:
    async with asyncio.timeout(2 * DEADLINE_S), asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(member.run(work))
        yield
        for member in members:
            member.stopping.set()


async def holders(admin: asyncpg.Connection) -> list[int]:
    rows = await admin.fetch("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")
    return [row["pid"] for row in rows]


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await check():
            await asyncio.sleep(0.01)


def test_the_lock_of_a_role_is_the_one_that_is_documented() -> None:
    # printf perdure/leader/relay | sha256sum, and perdure/leader/scheduler: the first 16 digits
    assert lock_key("relay") == 0x27B55D2A558B324B
    assert lock_key("scheduler") == 0xDE7E722F575778F0 - 2**64


def test_cut_off_work_has_ended_before_the_server_gives_the_lock_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    noticed_s = leadership.PING_EVERY_S + leadership.PING_TIMEOUT_S
    assert noticed_s + leadership.STOP_S + leadership.CANCEL_S < leadership.IDLE_S


async def test_one_leads_and_the_next_follows_when_it_stops(
    database: str, admin: asyncpg.Connection, postgres_log: PostgresLog
) -> None:
    first, second = Member(database), Member(database)
    assert not await postgres_log.has_leader(ROLE)
    async with standing_by(first):
        await first.until("began")
        async with standing_by(second):
            assert first.known.leads
            assert await first.known.held()
            assert not second.known.leads
            assert not await second.known.held()
            assert len(await holders(admin)) == 1
            assert await postgres_log.has_leader(ROLE)
            assert not await postgres_log.has_leader("scheduler")
            first.stopping.set()
            began = await second.until("began")
            assert began > await first.until("ended")
            assert not first.known.leads
    assert first.told == second.told == ["began", "ended"]
    await eventually(lambda: _nobody(postgres_log))


async def _nobody(log: PostgresLog) -> bool:
    return not await log.has_leader(ROLE)


async def test_the_lock_is_held_until_the_work_has_drained(
    database: str, admin: asyncpg.Connection
) -> None:
    member, may_end = Member(database), asyncio.Event()

    async def drain(ending: asyncio.Event) -> None:
        member.tell("began")
        await ending.wait()
        member.tell("draining")
        await may_end.wait()

    async with standing_by(member, work=drain):
        await member.until("began")
        member.stopping.set()
        await member.until("draining")
        assert len(await holders(admin)) == 1
        assert await member.known.held()
        may_end.set()


async def test_a_leader_whose_session_is_ended_is_replaced_and_stands_by(
    database: str, admin: asyncpg.Connection
) -> None:
    first, second = Member(database), Member(database)
    async with standing_by(first):
        await first.until("began")
        async with standing_by(second):
            (pid,) = await holders(admin)
            await admin.execute("SELECT pg_terminate_backend($1)", pid)
            await first.until("ended")
            # Either may be the next: both ask every CAMPAIGN_EVERY_S.
            await eventually(lambda: _leads_again(first, second))
            assert len(await holders(admin)) == 1
            assert first.known.leads != second.known.leads


async def _leads_again(first: Member, second: Member) -> bool:
    return first.told.count("began") == 2 or "began" in second.told


class Link:
    """A Unix socket in front of the server's, which can swallow everything."""

    def __init__(self, dsn: str, folder: Path) -> None:
        query = parse_qs(urlsplit(dsn).query)
        self._target = f"{query['host'][0]}/.s.PGSQL.5432"
        self._folder = folder
        self.dsn = dsn.replace(quote(query["host"][0], safe=""), quote(str(folder), safe=""))
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def swallow(self) -> None:
        self._open.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            writer.write(data)
        await self._open.wait()
        writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_unix_connection(self._target)
        for way in (self._carry(reader, there_writer), self._carry(there_reader, writer)):
            self._tasks.add(asyncio.create_task(way))

    @asynccontextmanager
    async def up(self) -> AsyncIterator["Link"]:
        server = await asyncio.start_unix_server(self._accept, self._folder / ".s.PGSQL.5432")
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def link(database: str, tmp_path: Path) -> AsyncIterator[Link]:
    async with Link(database, tmp_path).up() as link:
        yield link


@pytest.mark.parametrize("obeys", [True, False])
async def test_work_that_is_cut_off_has_ended_when_the_next_begins(
    database: str, link: Link, obeys: bool
) -> None:
    first, second = Member(link.dsn), Member(database)

    async def work(ending: asyncio.Event) -> None:
        if obeys:
            await first.work(ending)
        else:
            await first.work(asyncio.Event())

    async with standing_by(first, work=work):
        await first.until("began")
        async with standing_by(second):
            link.swallow()
            swallowed = time.monotonic()
            began = await second.until("began")
            assert await first.until("ended") < began
            assert not first.known.leads
            bound_s = leadership.IDLE_S + leadership.CAMPAIGN_EVERY_S
            assert began - swallowed < bound_s + 1.0  # and a second for a busy machine


async def test_no_answer_is_no_leave_to_act(link: Link) -> None:
    member = Member(link.dsn)
    async with standing_by(member):
        await member.until("began")
        assert await member.known.held()
        link.swallow()
        asked = time.monotonic()
        assert not await member.known.held()
        assert time.monotonic() - asked < leadership.PING_TIMEOUT_S + 1.0
        await member.until("ended")


async def test_a_session_without_the_lock_does_not_lead(database: str) -> None:
    member = Member(database)
    async with standing_by(member):
        await member.until("began")
        # As a pooler that shares sessions would do it.
        async with member.known._asking:
            await member.known._session.execute("SELECT pg_advisory_unlock_all()")
        assert not await member.known.held()
        await member.until("ended")


async def test_after_a_sleep_nobody_takes_it_for_granted_that_it_leads(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member(database)
    async with standing_by(member):
        await member.until("began")
        assert member.known.leads
        woken_at = time.monotonic() + leadership.IDLE_S
        with monkeypatch.context() as asleep:
            asleep.setattr(leadership.time, "monotonic", lambda: woken_at)
            assert not member.known.leads


async def test_standing_by_ends_at_once_though_the_server_does_not_answer(link: Link) -> None:
    link.swallow()
    member = Member(link.dsn)
    running = asyncio.create_task(member.run())
    await asyncio.sleep(0)  # lets it begin to connect
    member.stopping.set()
    await asyncio.wait_for(running, 1.0)
    assert member.told == []


def lines_to_the_end(output: IO[str]) -> list[str]:
    lines = [output.readline()]
    while lines[-1] and not lines[-1].endswith("ends\n"):
        lines.append(output.readline())
    return lines


async def test_a_process_that_was_stopped_does_not_act_when_it_wakes_up(database: str) -> None:
    second = Member(database)
    command = [sys.executable, "-m", "tests.children.leader", database, ROLE, "2"]
    # Pipes hold 64 KiB: some thousand lines.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout is not None
            await asyncio.to_thread(first.stdout.readline)
            async with standing_by(second):
                os.kill(first.pid, signal.SIGSTOP)
                stopped = time.monotonic()
                began = await second.until("began")
                assert began - stopped < 2.0 + leadership.CAMPAIGN_EVERY_S + 1.0
                os.kill(first.pid, signal.SIGCONT)
                lines = await asyncio.to_thread(lines_to_the_end, first.stdout)
                assert second.known.leads
        finally:
            first.kill()
    awake = [line.split(maxsplit=1)[1] for line in lines if float(line.split()[0]) > began]
    # What it had been allowed when it was stopped, it may still do; then it asks.
    assert awake.count("acts\n") <= 1
    assert awake[-1] == "ends\n"


async def test_a_killed_leader_is_replaced(database: str) -> None:
    second = Member(database)
    command = [sys.executable, "-m", "tests.children.leader", database, ROLE, "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        await asyncio.to_thread(first.stdout.readline)
        async with standing_by(second):
            first.kill()
            killed = time.monotonic()
            assert await second.until("began") - killed < leadership.CAMPAIGN_EVERY_S + 1.0


async def test_work_that_fails_is_begun_again_after_growing_pauses(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    member = Member(database)

    async def fail(_ending: asyncio.Event) -> None:
        member.tell("began")
        if member.told.count("began") == 3:
            raise LogUnavailable("away")
        raise KeyError("a bug")

    async with standing_by(member, work=fail):
        await member.until("began", 4)
    pauses = [b - a for a, b in zip(member.times, member.times[1:], strict=False)]
    assert pauses[0] >= 0.02
    assert pauses[1] >= 0.04
    assert pauses[2] >= 0.08
    bugs = [r for r in caplog.records if r.exc_info and r.exc_info[0] is KeyError]
    assert len(bugs) == 3
    assert "does not lead as relay: away" in caplog.text


@pytest.mark.parametrize("grouped", [False, True])
async def test_damage_ends_it_and_frees_the_lock(
    database: str, admin: asyncpg.Connection, grouped: bool
) -> None:
    async def find_a_hole(_ending: asyncio.Event) -> None:
        if grouped:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [DamagedLog("a hole")])
        raise DamagedLog("a hole")

    with pytest.raises(DamagedLog, match="a hole"):
        await while_leading(database, ROLE, find_a_hole, asyncio.Event())
    await eventually(lambda: _free(admin))


async def _free(admin: asyncpg.Connection) -> bool:
    return not await holders(admin)


async def test_work_that_returns_ends_it(database: str) -> None:
    async def nothing(_ending: asyncio.Event) -> None:
        return

    async with asyncio.timeout(DEADLINE_S):
        await while_leading(database, ROLE, nothing, asyncio.Event())


async def test_work_that_cannot_be_ended_is_not_run_twice(
    database: str, admin: asyncpg.Connection
) -> None:
    may_end = asyncio.Event()

    async def ignore(_ending: asyncio.Event) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    running = asyncio.create_task(while_leading(database, ROLE, ignore, asyncio.Event()))
    await eventually(lambda: _held(admin))
    await admin.execute("SELECT pg_terminate_backend($1)", (await holders(admin))[0])
    with pytest.raises(RuntimeError, match="does not end"):
        await asyncio.wait_for(running, DEADLINE_S)
    may_end.set()


async def _held(admin: asyncpg.Connection) -> bool:
    return bool(await holders(admin))


async def test_cancelling_ends_the_work_and_frees_the_lock(
    database: str, admin: asyncpg.Connection
) -> None:
    member = Member(database)
    running = asyncio.create_task(member.run())
    await member.until("began")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert member.told == ["began", "ended"]
    await eventually(lambda: _free(admin))


async def test_a_standby_tells_who_leads(database: str) -> None:
    first, second = Member(database), Member(database)
    async with standing_by(first):
        await first.until("began")
        async with standing_by(second):

            async def known() -> bool:
                return second.known.holder is not None

            await eventually(known)
            assert await first.known.check() == "leads"
            assert "another leads (pid " in await second.known.check()
        assert second.known.holder is None


async def test_a_foreign_session_that_holds_the_lock_is_named(
    database: str, admin: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.execute("SET application_name = 'somebody''s script'")
    await admin.execute("SELECT pg_advisory_lock($1)", lock_key(ROLE))
    pid = await admin.fetchval("SELECT pg_backend_pid()")
    member = Member(database)
    async with standing_by(member):

        async def known() -> bool:
            return member.known.holder is not None

        await eventually(known)
        with pytest.raises(LogUnavailable) as told:
            await member.known.check()
        for text in (told.value.message, caplog.text):
            assert f'pid {pid}, application "somebody\'s script", from a local socket' in text
            assert f"pg_terminate_backend({pid})" in text
        await admin.execute("SELECT pg_advisory_unlock_all()")
        await member.until("began")
        assert await member.known.check() == "leads"
