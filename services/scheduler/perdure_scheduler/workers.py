"""The workers as their heartbeats show them.

Kept in memory: after a restart the next heartbeats bring it back.
"""

from dataclasses import dataclass, field
from typing import Final

from perdure.contracts.v1 import events_pb2, work_pb2

# Six heartbeats: fewer, and a busy machine looks like a lost one.
LEASE_S: Final = 30.0

AttemptKey = tuple[str, int]  # task id, fence


@dataclass
class WorkerView:
    """What is known of one worker. `heard_at` is monotonic time, `said_at` the worker's time of
    day.
    """

    registration: events_pb2.WorkerRegistered
    heard_at: float
    said_at: str
    draining: bool = False
    attempts: frozenset[AttemptKey] = field(default_factory=frozenset)

    @property
    def incarnation(self) -> str:
        """Which start of the worker this is."""
        return self.registration.incarnation


class Workers:
    """All workers that are alive, and since when others are silent."""

    def __init__(self, started_at: float) -> None:
        # Nothing is held against a worker for the time in which nobody listened.
        self._grace_from = started_at
        self._views: dict[str, WorkerView] = {}

    def heard(self, heartbeat: work_pb2.Heartbeat, now: float) -> tuple[WorkerView, bool]:
        """Take in a heartbeat; the second value says whether this start of the worker is new.

        One that is older than the last only shows that this start of the worker lives: the broker
        gives those that a former leader had in hand to its successor, late.
        """
        registration = heartbeat.worker
        known = self._views.get(registration.worker_id)
        if known is not None and _is_outdated(heartbeat, known, now):
            if known.incarnation == registration.incarnation:
                known.heard_at = now  # its clock may have been set back
            return known, False
        fresh = known is None or known.incarnation != registration.incarnation
        view = WorkerView(
            registration=registration,
            heard_at=now,
            said_at=heartbeat.time,
            draining=heartbeat.draining,
            attempts=frozenset((a.task_id, a.fence) for a in heartbeat.attempts),
        )
        self._views[registration.worker_id] = view
        return view, fresh

    def forget(self, worker_id: str) -> None:
        """Give no more work to a worker that is lost."""
        self._views.pop(worker_id, None)

    def get(self, worker_id: str) -> WorkerView | None:
        """A worker that is alive."""
        return self._views.get(worker_id)

    def all(self) -> list[WorkerView]:
        """Every worker that is alive."""
        return list(self._views.values())

    def silent_s(self, worker_id: str, now: float) -> float:
        """For how long nothing was heard from a worker while somebody listened."""
        view = self._views.get(worker_id)
        return now - max(view.heard_at if view else self._grace_from, self._grace_from)

    def grace(self, now: float) -> None:
        """Give every lease its full length again, because we could not listen."""
        self._grace_from = now


def _is_outdated(heartbeat: work_pb2.Heartbeat, known: WorkerView, now: float) -> bool:
    """Whether it was said before what is known. After a lease of silence anything is news: the
    worker's clock may have been set back.
    """
    return heartbeat.time < known.said_at and now - known.heard_at <= LEASE_S
