"""The spans of an attempt's process: one for the whole, and one for each phase it goes through."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context, trace

from perdure.telemetry import tracing

_TRACER: Final = trace.get_tracer("perdure.child")


class Phases:
    """The phase that runs, as a span. A new one ends the one before. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = context.get_current()
        self._name = ""
        self._span: trace.Span | None = None

    def enter(self, name: str) -> None:
        """`name` begins, unless it runs already."""
        with self._lock:
            if name != self._name:
                self._end()
                self._name, self._span = name, _TRACER.start_span(name, self._within)

    def close(self) -> None:
        """The last phase is over."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._span is not None:
            self._span.end()
            self._name, self._span = "", None


@contextmanager
def attempt_traced(service: str, task_id: str, fence: int) -> Iterator[Phases | None]:
    """The span of this process within its task's trace, while a collector is named; else None."""
    if not tracing.exporting():
        yield None
        return
    from perdure.telemetry.setup import Telemetry  # half a second of imports

    telemetry = Telemetry(service, prometheus=False)
    try:
        parent = os.environ.get(tracing.CHILD_VARIABLE, "")
        with tracing.span(f"process {service}", parent=parent, task=task_id, attempt=fence):
            phases = Phases()
            try:
                yield phases
            finally:
                phases.close()
    finally:
        telemetry.close()
