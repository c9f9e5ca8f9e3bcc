"""Exchanges and queues, declared in one place."""

from typing import Final

from perdure.messaging.port import Queue

EVENTS: Final = "perdure.events"  # from the relay alone; routing key: event type, then stream
WORK: Final = "perdure.work"  # assignments, cancels, answers to reports; routing key: worker id
REPORTS: Final = "perdure.reports"  # routing key: stage
TELEMETRY: Final = "perdure.telemetry"  # routing key: worker id
DEAD: Final = "perdure.dead-letters"  # routing key: the queue where the message failed
EXCHANGES: Final = (EVENTS, WORK, REPORTS, TELEMETRY, DEAD)

# A heartbeat says how things are now; an old one would only say that we did not listen.
HEARTBEAT_TTL_S: Final = 30.0

# A worker that comes back after a week is told everything anew. Most that are away so long do not.
WORKER_GONE_S: Final = 7 * 86_400.0

SCHEDULER_REPORTS: Final = Queue("scheduler.reports", REPORTS, ("#",))
SCHEDULER_HEARTBEATS: Final = Queue(
    "scheduler.heartbeats", TELEMETRY, ("#",), ttl_s=HEARTBEAT_TTL_S
)
DEAD_LETTERS: Final = Queue("dead-letters", DEAD, ("#",), delivery_limit=None)
# Whoever connects declares these: what is sent to them waits, also before there is a consumer.
CONTROL_QUEUES: Final = (SCHEDULER_REPORTS, SCHEDULER_HEARTBEATS, DEAD_LETTERS)


def work_queue(worker_id: str) -> Queue:
    """The queue of what a worker is told."""
    return Queue(f"work.{worker_id}", WORK, (worker_id,), unused_s=WORKER_GONE_S)


def live_queues(name: str) -> tuple[Queue, Queue]:
    """The queues that feed a gateway's live pages: events and telemetry."""
    return (
        Queue(f"live.{name}.events", EVENTS, ("#",), transient=True),
        Queue(f"live.{name}.telemetry", TELEMETRY, ("#",), transient=True),
    )
