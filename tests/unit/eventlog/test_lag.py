"""How far a follower of the log is behind."""

import pytest

from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.eventlog.lag import lag
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import StreamAppend

WROTE = "2026-01-02T03:04:05.25+00:00"


@pytest.mark.parametrize(
    ("now", "seconds"),
    [("2026-01-02T03:04:07Z", 1.75), ("2026-01-02T03:04:01+00:00", 0.0)],
    ids=["later", "a clock that is behind the writer's"],
)
async def test_the_lag_is_the_age_of_the_oldest_event_that_is_not_dealt_with(
    now: str, seconds: float
) -> None:
    log, read_models = MemoryLog(), MemoryReadModels()
    data = events_pb2.TaskCancelRequested(requested_by="someone")
    event = NewEvent("e1", data, WROTE, "", "", "test")
    await log.append(StreamAppend("task-1", 0, (event,)))

    behind = await lag(log, read_models, "relay", now)
    assert (behind.head, behind.position, behind.events, behind.seconds) == (1, 0, 1, seconds)

    await read_models.commit("relay", expected=0, position=1)
    behind = await lag(log, read_models, "relay", now)
    assert (behind.events, behind.seconds) == (0, 0.0)
