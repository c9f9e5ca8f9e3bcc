"""How far something that follows the log is behind it."""

from dataclasses import dataclass
from datetime import datetime

from perdure.eventlog.port import EventLog, ReadModels


@dataclass(frozen=True)
class Lag:
    """`head` is the log's last position, `position` where the follower has got to.

    `seconds` is the age of the oldest event that it has not dealt with, 0 when there is none.
    """

    head: int
    position: int
    seconds: float

    @property
    def events(self) -> int:
        """How many events it has not dealt with."""
        return self.head - self.position


async def lag(log: EventLog, checkpoints: ReadModels, checkpoint: str, now: str) -> Lag:
    """The lag of whoever moves `checkpoint`, at the time `now` (RFC 3339)."""
    # In this order: the checkpoint is never beyond the head that is read after it.
    position = await checkpoints.position(checkpoint)
    head = (await log.head()).position
    waiting = await log.read_all(after=position, limit=1) if head > position else []
    return Lag(head, position, _waited_s(waiting[0].time, now) if waiting else 0.0)


def _waited_s(since: str, now: str) -> float:
    """How long an event of the time `since` has waited; 0 when its writer's clock is ahead."""
    waited = datetime.fromisoformat(now) - datetime.fromisoformat(since)
    return max(0.0, round(waited.total_seconds(), 3))
