"""What only the log on PostgreSQL can show: tampering, group commit, lost connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from perdure.errors import DamagedLog, LogUnavailable, VersionConflict
from perdure.eventlog import postgres
from perdure.eventlog.memory import MemoryLog
from perdure.eventlog.postgres import PostgresLog, open_postgres
from tests.builders.events import epoch, event, to

DEADLINE_S = 20.0


@pytest.fixture
async def admin(database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


async def eventually(check: Callable[[], Awaitable[bool]]) -> None:
    """Return once `check` holds; TimeoutError if it never does."""
    async with asyncio.timeout(DEADLINE_S):
        while not await check():
            await asyncio.sleep(0.01)


async def test_both_backends_give_the_same_chain(postgres_log: PostgresLog) -> None:
    memory = MemoryLog()
    appends = [
        (to("task-1", 0, epoch(1), event()), to("worker-1", 0, event())),
        (to("task-1", 2, epoch(2, source="Zoë")),),
    ]

    for backend in (memory, postgres_log):
        for append in appends:
            await backend.append(*append)

    assert await memory.read_all(after=0) == await postgres_log.read_all(after=0)
    assert await memory.verify() == await postgres_log.verify()


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE perdure.event_log SET data = '{}'",
        "UPDATE perdure.event_log SET data = '{}' WHERE false",
        "DELETE FROM perdure.event_log",
        "TRUNCATE perdure.event_log",
        "UPDATE perdure.log_head SET position = 0",
        "UPDATE perdure.log_head SET hash = repeat('f', 64)",
        "DELETE FROM perdure.log_head",
        "TRUNCATE perdure.log_head",
    ],
)
async def test_what_is_recorded_cannot_be_changed(
    postgres_log: PostgresLog, admin: asyncpg.Connection, change: str, role: str
) -> None:
    await postgres_log.append(to("task-1", 0, event()))
    await admin.execute(f"SET session_replication_role = {role}")

    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await admin.execute(change)


@pytest.mark.parametrize(
    ("tampering", "position"),
    [
        ("UPDATE perdure.event_log SET data = replace(data, '0.5', '0.4') WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET metadata = '{}' WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET stream = 'task-2' WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET version = 30 WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET type = 'TaskCancelled' WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET event_id = 'other' WHERE position = 3", 3),
        ("UPDATE perdure.event_log SET hash = repeat('0', 64) WHERE position = 3", 3),
        ("DELETE FROM perdure.event_log WHERE position = 3", 3),
        ("DELETE FROM perdure.event_log WHERE position = 1", 1),
        ("DELETE FROM perdure.event_log WHERE position = 5", 5),
        ("DELETE FROM perdure.event_log", 1),
        ("UPDATE perdure.log_head SET position = 4", 5),
        ("UPDATE perdure.log_head SET position = 6", 6),
        ("UPDATE perdure.log_head SET hash = repeat('f', 64)", 5),
        ("DELETE FROM perdure.log_head", 1),
        ("UPDATE perdure.event_log SET position = position + 10 WHERE position > 3", 4),
    ],
)
@pytest.mark.parametrize("page", [2, 1000])
async def test_verify_names_the_first_position_that_is_wrong(
    postgres_log: PostgresLog,
    admin: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    tampering: str,
    position: int,
    page: int,
) -> None:
    monkeypatch.setattr(postgres, "VERIFY_PAGE_EVENTS", page)
    await postgres_log.append(to("task-1", 0, *(epoch(n) for n in range(1, 6))))
    assert (await postgres_log.verify()).events == 5

    await admin.execute("ALTER TABLE perdure.event_log DISABLE TRIGGER USER")
    await admin.execute("ALTER TABLE perdure.log_head DISABLE TRIGGER USER")
    await admin.execute(tampering)

    with pytest.raises(DamagedLog) as found:
        await postgres_log.verify()
    assert found.value.details["position"] == position


async def test_the_payload_can_be_queried(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await postgres_log.append(to("task-1", 0, epoch(1), epoch(2, correlation_id="task-\x00")))

    found = await admin.fetch(
        "SELECT version, metadata->>'correlation_id' FROM perdure.events"
        " WHERE (data->>'epoch')::int = 2"
    )

    assert [tuple(row) for row in found] == [(2, "task-\ufffd")]


async def test_appends_at_the_same_time_share_one_transaction(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await asyncio.gather(*(postgres_log.append(to(f"task-{n}", 0, event())) for n in range(50)))

    transactions = await admin.fetchval("SELECT count(DISTINCT xmin::text) FROM perdure.event_log")
    assert transactions == 1


async def test_a_refused_append_does_not_fail_its_group(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    known = to("task-0", 0, event(), event())
    first = await postgres_log.append(known)
    reused_id = event(id=known.events[0].id, source="elsewhere")

    results = await asyncio.gather(
        postgres_log.append(to("task-1", 0, event())),
        postgres_log.append(to("task-2", 7, event())),
        postgres_log.append(to("task-3", 0, reused_id)),
        postgres_log.append(to("task-4", 0, event()), to("task-5", 0, event())),
        postgres_log.append(known),
        postgres_log.append(to("task-6", 0)),
        return_exceptions=True,
    )

    kinds = [type(result).__name__ for result in results]
    assert kinds == ["tuple", "VersionConflict", "EventIdReused", "tuple", "tuple", "tuple"]
    assert results[4] == first
    positions = [[e.position for e in r] for r in results if isinstance(r, tuple)]
    assert positions == [[3], [4, 5], [1, 2], []]
    assert (await postgres_log.verify()).events == 5
    transactions = await admin.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM perdure.event_log WHERE position > 2"
    )
    assert transactions == 1


async def test_a_known_id_at_the_expected_version_does_not_fail_its_group(
    postgres_log: PostgresLog,
) -> None:
    known = event()
    (first,) = await postgres_log.append(to("task-0", 0, known))

    (again,), (other,) = await asyncio.gather(
        postgres_log.append(to("task-0", 1, known)), postgres_log.append(to("task-1", 0, event()))
    )

    assert again == first
    assert other.position == 2


async def test_a_request_that_the_database_refuses_does_not_fail_its_group(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await admin.execute(
        "ALTER TABLE perdure.event_log ADD CHECK (stream <> 'task-bad')"  # any refusal will do
    )

    results = await asyncio.gather(
        *(postgres_log.append(to(f"task-{n}", 0, event())) for n in (1, "bad", 2)),
        return_exceptions=True,
    )

    assert [type(r).__name__ for r in results] == ["tuple", "LogUnavailable", "tuple"]
    assert (await postgres_log.verify()).events == 2


async def test_a_cancelled_appender_does_not_disturb_its_group(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM perdure.log_head FOR UPDATE")  # holds all appends up
        tasks = [
            asyncio.create_task(postgres_log.append(to(f"task-{n}", 0, event()))) for n in range(3)
        ]
        await eventually(lambda: _an_append_waits(admin))
        tasks[1].cancel()
        late = [
            asyncio.create_task(postgres_log.append(to(f"late-{n}", 0, event()))) for n in range(2)
        ]
        await asyncio.sleep(0)  # lets them get in the queue
        late[0].cancel()

    results = await asyncio.gather(*tasks, *late, return_exceptions=True)

    assert [type(r).__name__ for r in results] == [
        "tuple",
        "CancelledError",
        "tuple",
        "CancelledError",
        "tuple",
    ]
    # The one that was on its way is recorded; the one that was still in the queue is not.
    recorded = [e.stream for e in await postgres_log.read_all(after=0)]
    assert recorded == ["task-0", "task-1", "task-2", "late-1"]


async def _an_append_waits(admin: asyncpg.Connection) -> bool:
    await admin.execute("SELECT pg_stat_clear_snapshot()")  # or it stays as it was in a transaction
    waiting = await admin.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND query LIKE '%append_events%'"
    )
    return bool(waiting)


async def test_a_lost_connection_is_unavailable_once_and_then_replaced(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    pair = to("task-1", 0, event(), event())
    async with admin.transaction():
        await admin.execute("SELECT 1 FROM perdure.log_head FOR UPDATE")
        tasks = [asyncio.create_task(postgres_log.append(pair))]
        await eventually(lambda: _an_append_waits(admin))
        tasks.append(asyncio.create_task(postgres_log.append(to("task-1", 2, event()))))
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with pytest.raises(LogUnavailable):
            await tasks[0]

    # What was in the queue goes over a new connection; it cannot go before what it depends on.
    with pytest.raises(VersionConflict):
        await tasks[1]
    assert [e.position for e in await postgres_log.append(pair)] == [1, 2]
    assert (await postgres_log.verify()).events == 2


async def test_a_connection_that_is_lost_between_appends_is_replaced(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await postgres_log.append(to("task-1", 0, event()))
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    async def appended() -> bool:
        try:
            await postgres_log.append(to("task-1", 1, after))
        except LogUnavailable:  # the loss had not been noticed yet
            return False
        return True

    after = event()
    await eventually(appended)
    assert (await postgres_log.verify()).events == 2


async def test_listening_is_taken_up_again_after_a_lost_connection(
    postgres_log: PostgresLog,
    admin: asyncpg.Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "POLL_S", 3600.0)  # so that only a notification can wake

    async def listener() -> int:
        return await admin.fetchval(
            "SELECT coalesce(max(pid), 0) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
        )

    async def listens_again() -> bool:
        return await listener() not in (0, before)

    before = 0
    assert await postgres_log.wait(after=0, timeout_s=0) is False  # begins to listen
    await eventually(listens_again)
    before = await listener()
    await admin.execute("SELECT pg_terminate_backend($1)", before)
    await eventually(listens_again)

    other, _ = await open_postgres(database)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(postgres_log.wait(after=0, timeout_s=3600.0))
        group.create_task(other.append(to("task-1", 0, event())))
    await other.close()

    assert waiting.result() is True


async def test_who_only_appends_does_not_listen(
    postgres_log: PostgresLog, admin: asyncpg.Connection
) -> None:
    await postgres_log.append(to("task-1", 0, event()))

    assert (
        await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        == 1
    )


async def test_polling_finds_what_no_notification_told(
    postgres_log: PostgresLog, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "POLL_S", 0.05)
    monkeypatch.setattr(postgres_log._listener, "wake", lambda: None)
    other, _ = await open_postgres(database)

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(postgres_log.wait(after=0, timeout_s=3600.0))
        group.create_task(other.append(to("task-1", 0, event())))
    await other.close()

    assert waiting.result() is True


async def test_writers_in_several_processes_leave_no_hole(
    postgres_log: PostgresLog, database: str
) -> None:
    others = [(await open_postgres(database))[0] for _ in range(3)]
    seen: list[int] = []

    async def write(log: PostgresLog, name: str) -> None:
        for version in range(30):
            await log.append(to(name, version, event()))

    async def follow() -> None:
        while len(seen) < 4 * 4 * 30:
            after = seen[-1] if seen else 0
            seen.extend(e.position for e in await postgres_log.read_all(after=after))

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(follow())
        for number, log in enumerate((postgres_log, *others)):
            for writer in range(4):
                group.create_task(write(log, f"task-{number}-{writer}"))
    for log in others:
        await log.close()

    assert seen == list(range(1, 4 * 4 * 30 + 1))
    assert (await postgres_log.verify()).events == len(seen)


async def test_closing_writes_what_waits(database: str) -> None:
    log, _ = await open_postgres(database)
    append = asyncio.create_task(log.append(to("task-1", 0, event())))
    await asyncio.sleep(0)  # lets it get in the queue

    await log.close()

    assert len(await append) == 1
