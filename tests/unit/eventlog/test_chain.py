"""The chain of the memory log: every field counts, and every hole is found."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import DamagedLog
from perdure.eventlog.chain import EMPTY, netstring, verify_chain
from perdure.eventlog.memory import MemoryLog
from perdure.eventlog.port import Head
from perdure.eventlog.stored import encode
from tests.builders.events import epoch, event, to


async def filled_log() -> MemoryLog:
    log = MemoryLog()
    await log.append(to("task-1", 0, epoch(1), event()), to("task-2", 0, epoch(3)))
    return log


@pytest.mark.parametrize(
    "change",
    [
        {"stream": "task-2"},
        {"version": 9},
        {"type": "TaskCancelled"},
        {"event_id": "other"},
        {"data": "{}"},
        {"metadata": "{}"},
        {"hash": "f" * 64},
        {"position": 7},
    ],
)
async def test_any_change_of_an_event_is_found(change: dict[str, object]) -> None:
    log = await filled_log()
    log.rows[1] = log.rows[1]._replace(**change)

    with pytest.raises(DamagedLog) as found:
        await log.verify()

    assert found.value.details["position"] == 2


@pytest.mark.parametrize("position", [1, 2])
async def test_a_hole_is_found(position: int) -> None:
    log = await filled_log()
    del log.rows[position - 1]

    with pytest.raises(DamagedLog, match="missing") as found:
        await log.verify()

    assert found.value.details["position"] == position


async def test_a_missing_end_is_found() -> None:
    log = await filled_log()
    del log.rows[2]

    with pytest.raises(DamagedLog) as found:
        await log.verify()

    assert found.value.details["position"] == 3


async def test_a_chain_can_be_walked_in_pages() -> None:
    log = await filled_log()

    halfway = verify_chain(log.rows[:2])

    assert verify_chain(log.rows[2:], halfway) == await log.head()
    assert verify_chain([], halfway) == halfway
    assert verify_chain([]) == EMPTY == Head(0, "0" * 64)


def test_a_netstring_counts_bytes() -> None:
    assert netstring("") == b"0:,"
    assert netstring("abc") == b"3:abc,"
    assert netstring("Zoë") == b"4:Zo\xc3\xab,"


@given(st.text(), st.text(), st.text(), st.text())
def test_metadata_is_canonical_json(
    time: str, correlation_id: str, causation_id: str, source: str
) -> None:
    fields = {
        "time": time,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "source": source,
    }

    _, metadata = encode(event(**fields))

    assert metadata == rfc8785.dumps(fields).decode()
