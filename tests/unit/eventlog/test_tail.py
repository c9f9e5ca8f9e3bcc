"""Nothing is given out past a hole."""

import pytest

from perdure.errors import DamagedLog
from perdure.eventlog.memory import MemoryLog
from perdure.eventlog.tail import check_follows
from tests.builders.events import event, to


async def test_events_that_follow_are_let_through() -> None:
    log = MemoryLog()
    await log.append(to("task-1", 0, *(event() for _ in range(3))))

    check_follows([], 7)
    check_follows(await log.read_all(after=0), 0)
    check_follows(await log.read_all(after=2), 2)


@pytest.mark.parametrize(("missing", "named"), [(0, 1), (1, 2)])
async def test_the_first_position_that_is_missing_is_named(missing: int, named: int) -> None:
    log = MemoryLog()
    await log.append(to("task-1", 0, *(event() for _ in range(3))))
    del log.rows[missing]

    with pytest.raises(DamagedLog, match=f"position {named}: it is missing") as found:
        check_follows(await log.read_all(after=0), 0)

    assert found.value.details["position"] == named
