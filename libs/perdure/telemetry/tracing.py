"""One trace per task, from the HTTP request to the training process.

The trace context (W3C `traceparent`) is stored with each event, travels with each message, and goes
to child processes in their environment. It is there also when no spans are recorded: log lines
carry its trace id.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
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
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(HEADER, "")


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
    where = context.get_current() if parent is None else _PROPAGATOR.extract({HEADER: parent})
    if not trace.get_current_span(where).get_span_context().is_valid:
        where = _new_trace(where)
    with _TRACER.start_as_current_span(name, where, kind, attributes):
        yield


def _new_trace(where: context.Context) -> context.Context:
    """A root of our own, so that there is a trace also while nobody records spans."""
    root = trace.SpanContext(
        trace_id=secrets.randbits(128) or 1,
        span_id=secrets.randbits(64) or 1,
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(root), where)
