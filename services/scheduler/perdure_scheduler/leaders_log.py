"""The event log in a leader's hands: it takes nothing from one who does not lead any more."""

from collections.abc import Callable
from typing import Any, cast

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog.port import EventLog, StreamAppend


def leaders_log(log: EventLog, leads: Callable[[], bool]) -> EventLog:
    """`log`, to which is appended only while `leads` says so; else it raises LogUnavailable.

    A leader that stood still knows old heartbeats and reports when it goes on, before it knows that
    another leads. What it would decide on them stands at the right version once it has caught up
    with the log: the version alone would not refuse it.
    """
    return cast(EventLog, _LeadersLog(log, leads))


class _LeadersLog:
    def __init__(self, log: EventLog, leads: Callable[[], bool]) -> None:
        self._log = log
        self._leads = leads

    async def append(self, *appends: StreamAppend) -> tuple[RecordedEvent, ...]:
        if not self._leads():
            raise LogUnavailable("nothing is appended: this process does not lead any more")
        return await self._log.append(*appends)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
