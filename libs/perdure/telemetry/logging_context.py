"""What the log lines of a piece of work are about: task, attempt, trace."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from perdure.telemetry.tracing import trace_id

_about: ContextVar[dict[str, str | int] | None] = ContextVar("about", default=None)


@contextmanager
def about(**fields: str | int) -> Iterator[None]:
    """Within the block, log lines carry these fields, e.g. `task` and `attempt`."""
    token = _about.set({**(_about.get() or {}), **fields})
    try:
        yield
    finally:
        _about.reset(token)


def log_fields() -> dict[str, str | int]:
    """The fields that a log line written here carries."""
    fields = dict(_about.get() or {})
    trace = trace_id()
    if trace:
        fields["trace"] = trace
    return fields
