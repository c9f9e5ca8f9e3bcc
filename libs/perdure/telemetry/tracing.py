"""One trace per task, from the HTTP request to the training process.

The trace context (W3C `traceparent`) is stored with each event, travels with each message, and goes
to child processes in their environment. It is there also when no spans are recorded: log lines
carry its trace id.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from opentelemetry import context, trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

HEADER: Final = "traceparent"
CHILD_VARIABLE: Final = "TRACEPARENT"  # in the environment of a child process

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_TRACER: Final = trace.get_tracer("perdure")


def exporting() -> bool:
    """Whether the environment names a collector."""
    return bool(os.environ.get(ENDPOINT_VARIABLE, "").strip())


def traceparent() -> str:
    """The context of the span that runs, to be passed on; empty when there is none."""
    running = trace.get_current_span().get_span_context()
    if not running.is_valid:
        return ""
    ids = f"{running.trace_id:032x}-{running.span_id:016x}"
    return f"00-{ids}-{running.trace_flags:02x}"


def trace_id() -> str:
    """The trace that runs, 32 hex digits; empty when there is none."""
    running = trace.get_current_span().get_span_context()
    return trace.format_trace_id(running.trace_id) if running.is_valid else ""


@contextmanager
def span(
    name: str,
    *,
    parent: str | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    **attributes: str | int,
) -> Iterator[None]:
    """A piece of work. `parent` is a traceparent; None takes the span that runs.

    An empty `parent`, or one that cannot be read, begins a new trace.
    """
    where = context.get_current() if parent is None else _within(parent)
    begun = _TRACER.start_span(name, where, kind, attributes)
    if not begun.get_span_context().is_valid:  # nobody records spans: there is a trace all the same
        begun = _unrecorded_root()
    with trace.use_span(begun, end_on_exit=True):
        yield


def record(
    name: str, *, parent: str, since_ns: int, kind: SpanKind, **attributes: str | int
) -> None:
    """A piece of work that is done, as a span from `since_ns` (time.time_ns) to now.

    None for a `parent` that is empty or cannot be read.
    """
    where = _within(parent)
    if trace.get_current_span(where).get_span_context().is_valid:
        _TRACER.start_span(name, where, kind, attributes, start_time=since_ns).end()


@lru_cache(maxsize=1024)
def _within(parent: str) -> context.Context:
    """The context of a traceparent. Kept: an attempt's reports, and answers to it, come in one."""
    return _PROPAGATOR.extract({HEADER: parent})


def _unrecorded_root() -> trace.Span:
    """What a new trace begins with while no spans are recorded."""
    return trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=secrets.randbits(128) or 1,
            span_id=secrets.randbits(64) or 1,
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        )
    )
