"""The measures of all services, in one place. Names are those of docs/telemetry.md.

Each is a no-op until `setup.start` was called in the process.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

_METER: Final = metrics.get_meter("perdure")

EVENTS_APPENDED: Final = _METER.create_counter(
    "perdure.events.appended", unit="{event}", description="Events this process appended, by type"
)
ATTEMPTS_ENDED: Final = _METER.create_counter(
    "perdure.attempts.ended",
    unit="{attempt}",
    description="Attempts that ended, by stage, outcome and failure class",
)
MESSAGES_PUBLISHED: Final = _METER.create_counter(
    "perdure.messages.published", unit="{message}", description="Messages the broker confirmed"
)
RELAY_LAG_EVENTS: Final = "perdure.relay.lag.events"
RELAY_LAG_SECONDS: Final = "perdure.relay.lag.seconds"
TASKS_WAITING: Final = "perdure.tasks.waiting"
QUEUE_MESSAGES: Final = "perdure.queue.messages"
QUEUE_CONSUMERS: Final = "perdure.queue.consumers"
HEARTBEAT_AGE: Final = "perdure.worker.heartbeat.age"
REPORTS_UNANSWERED: Final = "perdure.reports.unanswered"

# Label values, and the value that holds now.
Reading = tuple[Mapping[str, str], float]


def observe(
    name: str, *, unit: str, description: str, read: Callable[[], Iterable[Reading]]
) -> None:
    """Have `read` called whenever somebody asks for the metric `name`. It must not block."""

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(labels)) for labels, value in read()]

    _METER.create_observable_gauge(name, [callback], unit=unit, description=description)
