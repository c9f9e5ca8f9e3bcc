"""Traces and metrics leave the process, and nothing of it is there when nobody asks."""

import os
import socket
import subprocess
import sys
import time

import pytest

from perdure.domain.task import Status, task_stream
from tests.builders.collector import Collector
from tests.builders.stack import Stack, succeed, until_stopped

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
CHILD = """
import sys
from perdure.telemetry.child import attempt_traced
with attempt_traced("trainer-agent", "t1", 2) as phases:
    if phases:
        for phase in ("starting", "training", "training", "saving", "training"):
            phases.enter(phase)
sys.stdout.write("sdk" if "opentelemetry.sdk.trace" in sys.modules else "none")
"""
SERVICE = """
import sys
from perdure.telemetry import metrics, tracing
from perdure.telemetry.setup import Telemetry, prometheus_text
metrics.observe("perdure.test.age", unit="s", description="an age", read=lambda: [({"w": "a"}, 7)])
telemetry = Telemetry("relay", prometheus=True)
metrics.EVENTS_APPENDED.add(3, {"type": "TaskSubmitted"})
with tracing.span("outer"), tracing.span("inner"):
    pass
sys.stdout.write(prometheus_text().decode())
telemetry.close()
"""


def run(code: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_childs_phases_are_spans_in_the_trace_of_its_task() -> None:
    with Collector() as collector:
        run(CHILD, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, TRACEPARENT=PARENT)
    whole = next(span for span in collector.spans if span.name == "process trainer-agent")
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert whole.parent_id == "b7ad6b7169203331"
    phases = [span for span in collector.spans if span is not whole]
    assert [span.name for span in phases] == ["starting", "training", "saving", "training"]
    assert {span.parent_id for span in phases} == {whole.span_id}
    assert {span.service for span in collector.spans} == {"perdure-trainer-agent"}


def test_without_a_collector_a_child_loads_no_telemetry() -> None:
    assert run(CHILD, TRACEPARENT=PARENT) == "none"


def test_a_collector_that_does_not_answer_holds_nothing_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        started = time.monotonic()
        assert run(CHILD, OTEL_EXPORTER_OTLP_ENDPOINT=url, TRACEPARENT=PARENT) == "sdk"
        # It is given two seconds; the exporter itself would wait for ten.
        assert time.monotonic() - started < 8


@pytest.mark.parametrize("exported", [True, False])
def test_metrics_are_there_for_prometheus_and_go_to_a_collector_that_is_named(
    exported: bool,
) -> None:
    with Collector() as collector:
        text = run(SERVICE, **({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url} if exported else {}))
    lines = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    assert "perdure_events_appended_total" in lines
    assert "perdure_test_age_seconds" in lines
    assert ("perdure.events.appended" in collector.metrics) is exported
    assert len(collector.spans) == (2 if exported else 0)
    assert len({span.trace_id for span in collector.spans}) == (1 if exported else 0)


def test_a_new_trace_has_a_root_and_is_sampled_as_the_environment_says() -> None:
    with Collector() as collector:
        run(SERVICE, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        inner, outer = sorted(collector.spans, key=lambda span: span.name)
        assert (inner.parent_id, outer.parent_id) == (outer.span_id, "")
        run(
            SERVICE,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0",
        )
        assert len(collector.spans) == 2  # none has come


async def test_a_task_whose_worker_is_lost_stays_in_its_trace() -> None:
    stack = Stack()
    async with stack.scheduler():
        task_id = await stack.submit("dataset", traceparent=PARENT)
        async with stack.worker(until_stopped) as worker:
            await stack.until(task_id, lambda state: state.status is Status.RUNNING)
            worker._outbox.put = lambda report: None  # its last words are lost
        async with stack.worker(succeed):
            await stack.ended(task_id)
    events = await stack.log.read_stream(task_stream(task_id))
    assert {"AttemptFailed", "RetryScheduled", "TaskSucceeded"} <= {e.type for e in events}
    assert {e.traceparent.split("-")[1] for e in events} == {TRACE}
