"""One training on the real stack, as those see it who watch: its trace, its log lines, what is
measured; and that docs/telemetry.md tells of all of it.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from infra.stack.stack import SERVICES
from perdure.client import Task
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.collector import Collector, Span
from tests.builders.services import CONFIG, Services

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TELEMETRY = Path(__file__).resolve().parents[2] / "docs/telemetry.md"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"  # the span of whoever sends the request
STAGES = {"prepare": "data-prep", "train": "trainer-agent", "publish": "publisher"}
TRAIN_S = 400.0
MEASURED_S = 60.0  # gauges are looked at every 10 s
POLL_S = 0.5

Line = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A metric as docs/telemetry.md lists it."""

    name: str
    prometheus: str
    labels: frozenset[str]
    services: frozenset[str]


@dataclass(frozen=True)
class Watched:
    """A training, and all that was to be seen of it."""

    task: Task
    events: list[dict[str, Any]]
    spans: list[Span]  # those of the task's trace
    lines: dict[str, list[Line]]  # of the log of each service
    measured: dict[str, dict[str, Metric]]  # of each service, by Prometheus' name
    exported: set[str]  # names of metrics that came to the collector


def metric_rows() -> list[Row]:
    found = re.findall(
        r"^\| `(perdure[.a-z]+)` \| `(\w+)` \|([^|]*)\|([^|]*)\|",
        TELEMETRY.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    return [
        Row(name, prometheus, *(frozenset(re.findall(r"[\w-]+", text)) for text in (labels, told)))
        for name, prometheus, labels, told in found
    ]


def span_names() -> list[tuple[str, re.Pattern[str]]]:
    """Kinds of spans and what their names look like. A word in capitals stands for any word."""
    found = re.findall(
        r"^\| `([^`]+)` \| (server|producer|consumer|internal) \|",
        TELEMETRY.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    return [(kind, re.compile(re.sub(r"[A-Z]+", r"[\\w-]+", name))) for name, kind in found]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("stack")
    data = draw_bird_dataset(folder / "birds", images=16, size_px=64)
    with Collector() as collector:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "2000",
        }
        with Services(folder / "stack", environment=dict.fromkeys(SERVICES, variables)) as services:
            task = services.succeeded(submitted(services, data), TRAIN_S)
            events = list(services.client.events(task.id))
            measured = await_measured(services)
            outputs = {name: service.output for name, service in services.services.items()}
        # With the services' end all that they had to tell has come.
    lines = {
        name: [json.loads(line) for line in output.read_text().splitlines()]
        for name, output in outputs.items()
    }
    spans = [span for span in collector.spans if span.trace_id == TRACE]
    return Watched(task, events, spans, lines, measured, collector.metrics)


def submitted(services: Services, data: Path) -> Task:
    """A training, sent by somebody who has a trace of their own."""
    answer = httpx.post(
        f"{services.url}/v1/tasks",
        json={
            "goal": "model",
            "name": "birds",
            "data": {"upload": services.client.upload(data)},
            "config": CONFIG | {"epochs": 2},
        },
        headers={"traceparent": f"00-{TRACE}-{CALLER}-01"},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text
    return Task.of(answer.json())


def await_measured(services: Services) -> dict[str, dict[str, Metric]]:
    """The pages /metrics, once each shows all that is documented of it, for a minute at most."""
    deadline = time.monotonic() + MEASURED_S
    while True:
        pages = {name: page(service.health_url) for name, service in services.services.items()}
        missing = {(r.name, s) for r in metric_rows() for s in r.services if not has(pages[s], r)}
        if not missing or time.monotonic() > deadline:
            return pages
        time.sleep(POLL_S)


def page(health_url: str) -> dict[str, Metric]:
    text = httpx.get(f"{health_url}/metrics", timeout=10, trust_env=False).text
    return {
        s.name: metric for metric in text_string_to_metric_families(text) for s in metric.samples
    }


def has(measured: dict[str, Metric], row: Row) -> bool:
    return row.prometheus in measured


def readings(measured: dict[str, Metric], name: str) -> dict[tuple[str, ...], float]:
    """The values of a metric, by the values of its labels in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in measured[name].samples
        if sample.name == name
    }


def way_up(spans: Iterable[Span], span: Span) -> list[Span]:
    """The span, the one within which it began, and so on; those that did not arrive end it."""
    by_id = {s.span_id: s for s in spans}
    way = [span]
    while way[-1].parent_id in by_id:
        way.append(by_id[way[-1].parent_id])
    return way


def test_every_span_of_the_task_leads_up_to_the_request(watched: Watched) -> None:
    (request,) = [span for span in watched.spans if span.parent_id == CALLER]
    assert (request.service, request.name) == ("perdure-gateway", "POST /v1/tasks")
    tops = {way_up(watched.spans, span)[-1] == request for span in watched.spans}
    assert tops == {True}
    assert {span.service for span in watched.spans} == {f"perdure-{name}" for name in SERVICES}


def test_the_way_from_the_request_to_the_training_is_in_its_parents(watched: Watched) -> None:
    for stage, service in STAGES.items():
        (process,) = [span for span in watched.spans if span.name == f"process {service}"]
        phases = [span for span in watched.spans if span.parent_id == process.span_id]
        assert phases, service
        assert [span.name for span in way_up(watched.spans, phases[0])[1:]] == [
            f"process {service}",
            f"attempt {stage}",
            "handle Assignment",
            f"offer {stage}",
            "POST /v1/tasks",
        ]
    (process,) = [span for span in watched.spans if span.name == "process trainer-agent"]
    assert process.attributes == {"task": watched.task.id, "attempt": 2}
    assert {"training", "validating", "saving"} <= {
        span.name for span in watched.spans if span.parent_id == process.span_id
    }


def test_each_event_of_the_task_is_in_its_trace_and_has_a_span_of_the_relay(
    watched: Watched,
) -> None:
    assert {event["traceparent"].split("-")[1] for event in watched.events} == {TRACE}
    published = [span for span in watched.spans if span.name.startswith("publish ")]
    assert {(span.service, span.kind) for span in published} == {("perdure-relay", "PRODUCER")}
    told = Counter(
        (span.name.removeprefix("publish "), span.attributes["position"])
        for span in published
        if span.attributes["stream"] == f"task-{watched.task.id}"
    )
    assert told == Counter((event["type"], event["position"]) for event in watched.events)
    parents = {span.attributes["position"]: span.parent_id for span in published}
    for event in watched.events:
        assert parents[event["position"]] == event["traceparent"].split("-")[2]


def test_log_lines_about_the_task_carry_its_trace_and_attempt(watched: Watched) -> None:
    def about_it(service: str) -> list[Line]:
        return [line for line in watched.lines[service] if line.get("task") == watched.task.id]

    for fence, service in enumerate(STAGES.values(), start=1):
        lines = about_it(service)
        assert {(line["trace"], line["attempt"]) for line in lines} == {(TRACE, fence)}
        assert next(line["message"] for line in lines) == "attempt begins"
        assert "attempt ended: succeeded" in [line["message"] for line in lines]
    lines = about_it("scheduler")
    assert {line["trace"] for line in lines} == {TRACE}
    recorded = {(line["message"], line["attempt"]) for line in lines}
    assert recorded >= {
        (event["type"], event["data"]["fence"])
        for event in watched.events
        if event["type"] in ("AttemptStarted", "EpochCompleted", "AttemptSucceeded")
    }


def test_every_documented_metric_is_on_the_page_of_each_service_that_tells_it(
    watched: Watched,
) -> None:
    rows = metric_rows()
    assert len(rows) >= 10
    for row in rows:
        assert row.services <= SERVICES.keys()
        for service in row.services:
            measured = watched.measured[service]
            assert has(measured, row), (row.name, service)
            samples = [s for s in measured[row.prometheus].samples if s.name == row.prometheus]
            assert {frozenset(sample.labels) for sample in samples} == {row.labels}
    # Further ones of ours, on pages that the documentation does not name for them, are not there.
    for service, measured in watched.measured.items():
        ours = {name for name in measured if name.startswith("perdure_")}
        created = {name for name in ours if name.endswith("_created")}
        assert ours - created == {row.prometheus for row in rows if service in row.services}
    assert {row.name for row in rows} <= watched.exported


def test_what_is_measured_is_what_happened(watched: Watched) -> None:
    scheduler, gateway, relay = (watched.measured[n] for n in ("scheduler", "gateway", "relay"))
    happened = Counter(event["type"] for event in watched.events)
    appended = readings(scheduler, "perdure_events_appended_total")
    for kind in ("AttemptAssigned", "EpochCompleted", "CheckpointSaved", "TaskSucceeded"):
        assert appended[kind,] == happened[kind]
    assert readings(gateway, "perdure_events_appended_total") == {("TaskSubmitted",): 1}
    ended = readings(scheduler, "perdure_attempts_ended_total")
    assert ended == {("", "succeeded", stage): 1 for stage in STAGES}
    assert readings(scheduler, "perdure_tasks_waiting") == {(stage,): 0 for stage in STAGES}
    ages = readings(scheduler, "perdure_worker_heartbeat_age_seconds")
    assert ages.keys() == {(service,) for service in STAGES.values()}
    assert all(0 <= age < 30 for age in ages.values())
    consumers = readings(scheduler, "perdure_queue_consumers")
    assert consumers == {
        (queue,): 1
        for queue in (
            "scheduler.reports",
            "scheduler.heartbeats",
            "dead-letters",
            *(f"work.{service}" for service in STAGES.values()),
        )
    }
    assert readings(relay, "perdure_relay_lag_events") == {(): 0}
    assert readings(relay, "perdure_relay_lag_seconds") == {(): 0}
    for service in STAGES.values():
        assert readings(watched.measured[service], "perdure_reports_unanswered") == {(service,): 0}
    sent = readings(relay, "perdure_messages_published_total")
    assert sent["perdure.events",] == sum(
        value
        for measured in (scheduler, gateway)
        for value in readings(measured, "perdure_events_appended_total").values()
    )


def test_every_span_is_documented(watched: Watched) -> None:
    patterns = span_names()
    assert len(patterns) >= 8
    for span in watched.spans:
        kinds = {kind for kind, pattern in patterns if pattern.fullmatch(span.name)}
        assert span.kind.lower() in kinds, (span.name, span.kind)
