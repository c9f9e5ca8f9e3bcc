"""Following the log: nothing is done about what stands after a hole."""

from collections.abc import Sequence

from perdure.contracts.envelope import RecordedEvent
from perdure.eventlog.chain import damaged


def check_follows(events: Sequence[RecordedEvent], after: int) -> None:
    """Raise DamagedLog unless `events` are at the positions right above `after`."""
    for position, event in enumerate(events, after + 1):
        if event.position != position:
            raise damaged(position, f"it is missing: the next event is at {event.position}")
