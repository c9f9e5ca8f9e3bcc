"""A task's trace begins with the request that submitted it."""

import httpx
import pytest

from perdure.contracts.v1 import work_pb2
from perdure.domain.task import task_stream
from perdure.messaging.port import Delivery
from perdure.runtime.messages import handling, wrap
from perdure.telemetry import tracing
from perdure.telemetry.logging_context import about, log_fields
from tests.builders.gateway import VERSION, World

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", True),
        ("", False),
        ("00-zz-no-trace", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
    ],
)
async def test_a_submission_is_recorded_in_the_callers_trace_or_in_one_of_its_own(
    world: World, http: httpx.AsyncClient, sent: str, kept: bool
) -> None:
    await world.import_dataset()
    answer = await http.post(
        "/v1/tasks",
        json={"goal": "model", "name": "birds", "data": {"dataset_version": VERSION}, "config": {}},
        headers={"traceparent": sent} if sent else {},
    )
    assert answer.status_code == 201, answer.text
    [event] = await world.log.read_stream(task_stream(answer.json()["id"]))
    trace = event.traceparent.split("-")[1]
    assert len(trace) == 32
    assert (trace == TRACE) is kept


def test_a_message_carries_the_trace_of_its_sender_to_the_handler_and_its_log_lines() -> None:
    with tracing.span("send", parent=f"00-{TRACE}-b7ad6b7169203331-01"):
        message = wrap("m", work_pb2.Assignment())
    assert tracing.trace_id() == ""
    with handling(Delivery(message, "w", 1)), about(task="t1", attempt=2):
        assert log_fields() == {"task": "t1", "attempt": 2, "trace": TRACE}
    assert log_fields() == {}


def test_a_message_outside_any_trace_begins_none() -> None:
    with handling(Delivery(wrap("m", work_pb2.Heartbeat()), "w", 1)):
        assert log_fields() == {}
