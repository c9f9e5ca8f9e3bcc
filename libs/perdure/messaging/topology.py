"""Exchanges and queues, declared in one place."""

from typing import Final

from perdure.messaging.port import Queue

EVENTS: Final = "perdure.events"  # from the relay alone; routing key: event type, then stream
WORK: Final = "perdure.work"  # assignments and cancels; routing key: worker id
REPORTS: Final = "perdure.reports"  # routing key: stage
TELEMETRY: Final = "perdure.telemetry"  # routing key: worker id


SCHEDULER_REPORTS: Final = Queue("scheduler.reports", REPORTS, ("#",))
SCHEDULER_HEARTBEATS: Final = Queue("scheduler.heartbeats", TELEMETRY, ("#",))
CONTROL_QUEUES: Final = (SCHEDULER_REPORTS, SCHEDULER_HEARTBEATS)


def work_queue(worker_id: str) -> Queue:
    """The queue of a worker's assignments and cancels."""
    return Queue(f"work.{worker_id}", WORK, (worker_id,))


def live_queues(name: str) -> tuple[Queue, Queue]:
    """The queues that feed a gateway's live pages: events and telemetry."""
    return (
        Queue(f"live.{name}.events", EVENTS, ("#",), transient=True),
        Queue(f"live.{name}.telemetry", TELEMETRY, ("#",), transient=True),
    )
