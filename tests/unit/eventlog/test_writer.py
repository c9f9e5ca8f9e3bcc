"""Which connection appends go through: the same one, for as long as it is good."""

from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from perdure.errors import LogUnavailable
from perdure.eventlog.request import request_of
from perdure.eventlog.writer import Writer
from tests.builders.events import event, to


class Connection:
    """Stands for a connection: gives places to what it is asked to append, or fails."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.taken_back = False
        self.terminated = False

    def is_closed(self) -> bool:
        if self.taken_back:  # so does asyncpg, when a connection was lost while it lay idle
            raise asyncpg.InterfaceError("connection has been released back to the pool")
        return False

    def terminate(self) -> None:
        self.terminated = True

    async def fetch(self, _statement: str, *columns: Any) -> Sequence[dict[str, Any]]:
        if self.failure is not None:
            raise self.failure
        count = len(columns[3])
        placed = {"request": None, "positions": range(1, count + 1), "hashes": ["f" * 64] * count}
        return [placed]


class Pool:
    """Stands for a pool of two connections."""

    def __init__(self) -> None:
        self.free = [Connection(), Connection()]

    async def acquire(self, *, timeout: float) -> Connection:
        return self.free.pop(0)

    async def release(self, connection: Connection) -> None:
        self.free.append(connection)


REQUEST = request_of([to("task-1", 0, event())])


async def test_one_connection_is_kept_from_append_to_append() -> None:
    pool = Pool()
    first, second = pool.free
    writer = Writer(pool)

    await writer.write([REQUEST])
    await writer.write([REQUEST])
    assert pool.free == [second]

    await writer.close()
    assert pool.free == [second, first]


@pytest.mark.parametrize(
    ("failure", "raised", "terminated"),
    [
        (TimeoutError("no answer"), LogUnavailable, True),
        (asyncpg.InterfaceError("closed under us"), LogUnavailable, False),
        (asyncpg.CheckViolationError("refused"), asyncpg.CheckViolationError, False),
    ],
)
async def test_after_a_failure_another_connection_is_taken(
    failure: Exception, raised: type[Exception], terminated: bool
) -> None:
    pool = Pool()
    first, _ = pool.free
    first.failure = failure
    writer = Writer(pool)

    with pytest.raises(raised):
        await writer.write([REQUEST])
    ((recorded,),) = await writer.write([REQUEST])

    assert recorded.position == 1
    assert pool.free == [first]
    assert first.terminated is terminated


async def test_a_connection_that_was_lost_meanwhile_is_replaced() -> None:
    pool = Pool()
    first, _ = pool.free
    writer = Writer(pool)
    await writer.write([REQUEST])

    first.taken_back = True
    ((recorded,),) = await writer.write([REQUEST])

    assert recorded.position == 1
    assert pool.free == []
