"""Who does not lead any more appends nothing."""

import pytest

from perdure.errors import LogUnavailable
from perdure.eventlog.memory import MemoryLog
from perdure_scheduler.leaders_log import leaders_log
from tests.builders.events import event, to


async def test_only_a_leader_appends_and_everybody_reads() -> None:
    log = MemoryLog()
    leads = True
    ours = leaders_log(log, lambda: leads)
    await ours.append(to("a", 0, event()))
    leads = False
    with pytest.raises(LogUnavailable, match="does not lead any more"):
        await ours.append(to("a", 1, event()))
    assert (await ours.head()).position == 1
    assert len(await ours.read_stream("a")) == 1
