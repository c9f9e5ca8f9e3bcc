"""What dead letters are called, what their events make of them, and what their messages did."""

import re

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import envelope_pb2, events_pb2, work_pb2
from perdure.domain.dead_letter import (
    MAX_TEXT_CHARACTERS,
    DeadLetter,
    dead_letter_id,
    dead_letter_stream,
    death_id,
    from_json,
    plain_text,
    replay,
    to_json,
)
from perdure.domain.message_effect import decoded, effect, effect_stream, task_of
from tests.builders.dead_letters import QUEUE, REPORT, TASK, died, replayed

STREAM = "dead-letter-report-7"
# What the API takes as an id.
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def recorded(data: Message, version: int, stream: str = STREAM, cause: str = "") -> RecordedEvent:
    return RecordedEvent(
        id=f"event-{version}",
        stream=stream,
        version=version,
        position=version + 10,
        type=data.DESCRIPTOR.name,
        data=data,
        time=f"2026-01-01T00:00:{version:02}+00:00",
        correlation_id=TASK,
        causation_id=cause,
        source="test",
        hash="0" * 64,
    )


def letter(*events: Message) -> DeadLetter:
    found = replay(recorded(data, version) for version, data in enumerate(events, 1))
    assert found is not None
    return found


def test_a_message_is_called_by_its_id() -> None:
    assert dead_letter_id("3f2a-9.b_C", b"body") == "3f2a-9.b_C"
    assert dead_letter_stream("3f2a") == "dead-letter-3f2a"


@given(st.text(), st.binary())
def test_every_id_makes_a_name_that_is_safe_in_streams_and_addresses(
    text: str, body: bytes
) -> None:
    name = dead_letter_id(text, body)
    assert ID.fullmatch(name)
    assert dead_letter_id(text, body) == name


@pytest.mark.parametrize("one", ["", "a/b", ".hidden", "x" * 129, "café", "\ud800", "a b\n"])
def test_ids_that_do_not_fit_do_not_meet(one: str) -> None:
    other = one + "?"
    assert dead_letter_id(one, b"body") != dead_letter_id(other, b"body")


def test_a_message_without_an_id_is_known_by_its_body() -> None:
    assert dead_letter_id("", b"one") != dead_letter_id("", b"two")


@pytest.mark.parametrize(
    ("events", "status", "queues", "next_replay"),
    [
        ([died()], "parked", [QUEUE], 1),
        ([died(), replayed()], "replayed", [QUEUE], 2),
        ([died(), replayed(), died(1)], "parked", [QUEUE], 2),
        # It died again before its replay was recorded: it is still dead.
        ([died(), died(1), replayed()], "parked", [QUEUE], 2),
        # The server died before it recorded the first replay; the second one settles both.
        ([died(), died(1), replayed(2)], "replayed", [QUEUE], 3),
        ([died(), died(0, "live.1.events")], "parked", [QUEUE, "live.1.events"], 1),
        # A second copy of what was replayed meanwhile is settled, too.
        ([died(), replayed(), died(0, "live.1.events")], "replayed", [QUEUE], 2),
        ([died(), died(0, "b"), replayed(), died(1, "b")], "parked", ["b"], 2),
    ],
)
def test_deaths_and_replays_make_a_status(
    events: list[Message], status: str, queues: list[str], next_replay: int
) -> None:
    found = letter(*events)
    assert (found.status, list(found.queues)) == (status, queues)
    assert found.next_replay == next_replay
    assert found.version == len(events)


def test_a_dead_letter_says_what_it_is_about_and_why_it_died() -> None:
    found = letter(died(), replayed(), died(1))
    assert (found.id, found.message_id, found.message_type) == ("report-7", "report-7", "Report")
    assert (found.task_id, found.kept) == (TASK, True)
    assert found.body_bytes == len(REPORT.SerializeToString())
    first, last = found.deaths
    assert (first.error, first.deliveries, first.exchange) == (
        "KeyError: 'epoch'",
        5,
        "perdure.reports",
    )
    assert (last.replay, last.version, last.at) == (1, 3, "2026-01-01T00:00:03+00:00")
    assert found.replays[0].requested_by == "ann"


def test_its_json_gives_it_back() -> None:
    found = letter(died(), replayed(), died(1))
    assert from_json(to_json(found)) == found
    assert to_json(found)["status"] == "parked"


def test_a_death_is_known_by_message_queue_replay_and_content() -> None:
    one = death_id(STREAM, "Report", b"body", QUEUE, 0)
    assert death_id(STREAM, "Report", b"body", QUEUE, 0) == one
    others = {
        death_id("dead-letter-other", "Report", b"body", QUEUE, 0),
        death_id(STREAM, "Heartbeat", b"body", QUEUE, 0),
        death_id(STREAM, "Report", b"other", QUEUE, 0),
        death_id(STREAM, "Report", b"body", "other", 0),
        death_id(STREAM, "Report", b"body", QUEUE, 1),
    }
    assert one not in others
    assert len(others) == 5


def test_text_from_outside_becomes_text_that_events_hold() -> None:
    assert plain_text("a\ud800b") == "a\\ud800b"
    assert len(plain_text("x" * 10_000)) == MAX_TEXT_CHARACTERS


def envelope(stream: str, event_id: str = "event-1") -> envelope_pb2.Envelope:
    return envelope_pb2.Envelope(id=event_id, stream=stream, type="TaskSubmitted")


def heartbeat(*tasks: str) -> work_pb2.Heartbeat:
    return work_pb2.Heartbeat(
        worker=events_pb2.WorkerRegistered(worker_id="node-1", incarnation="i2"),
        attempts=[work_pb2.AttemptProgress(task_id=task) for task in tasks],
    )


@pytest.mark.parametrize(
    ("message_type", "body", "subject", "task_id"),
    [
        ("Report", REPORT, "", TASK),
        ("Assignment", work_pb2.Assignment(task_id="t1"), "", "t1"),
        ("CancelAttempt", work_pb2.CancelAttempt(task_id="t1"), "other", "t1"),
        ("ReportsRecorded", work_pb2.ReportsRecorded(task_id="t1"), "", "t1"),
        ("Heartbeat", heartbeat("t1"), "", "t1"),
        ("Heartbeat", heartbeat("t1", "t2"), "t1", ""),
        ("TaskSubmitted", envelope("task-t1"), "", "t1"),
        ("DatasetImported", envelope("dataset-v1"), "", ""),
        ("Report", work_pb2.Report(), "task-t1", "t1"),
        ("Strange", work_pb2.Report(), "t1", "t1"),
        ("Strange", work_pb2.Report(), "worker-node-1", ""),
        ("Strange", work_pb2.Report(), "../etc", ""),
    ],
)
def test_the_task_that_a_message_is_about(
    message_type: str, body: Message, subject: str, task_id: str
) -> None:
    assert task_of(decoded(message_type, body.SerializeToString()), subject) == task_id


def test_a_body_that_is_no_message_is_not_read() -> None:
    assert decoded("Report", b"\xff\xff\xff") is None
    assert decoded("Strange", b"") is None
    assert decoded("TaskStatus", b"") is None


TASK_EVENTS = [
    recorded(events_pb2.AttemptAssigned(fence=1), 2, f"task-{TASK}", "assign/1"),
    recorded(events_pb2.AttemptStarted(fence=1), 3, f"task-{TASK}", "report-1"),
    recorded(events_pb2.EpochCompleted(fence=1, epoch=1), 4, f"task-{TASK}", "report-7"),
    recorded(events_pb2.AttemptFailed(fence=1), 5, f"task-{TASK}", "report-8"),
    recorded(events_pb2.AttemptAssigned(fence=2), 6, f"task-{TASK}", "assign/5"),
]


@pytest.mark.parametrize(
    ("message", "positions"),
    [
        (REPORT, [14]),
        (work_pb2.Report(id="report-9", task_id=TASK), []),
        (work_pb2.Assignment(task_id=TASK, fence=1), [13, 15]),
        (work_pb2.Assignment(task_id=TASK, fence=2), []),
        (work_pb2.CancelAttempt(task_id=TASK, fence=1), [15]),
        (envelope(f"task-{TASK}", "event-4"), [14]),
    ],
)
def test_the_effect_of_a_message_is_found_in_its_stream(
    message: Message, positions: list[int]
) -> None:
    assert effect_stream(message) == f"task-{TASK}"
    assert [event.position for event in effect(message, TASK_EVENTS)] == positions


def test_a_heartbeat_registers_its_start_of_the_worker() -> None:
    stream = [
        recorded(events_pb2.WorkerRegistered(worker_id="node-1", incarnation=i), n, "worker-node-1")
        for n, i in enumerate(("i1", "i2"), 1)
    ]
    assert effect_stream(heartbeat()) == "worker-node-1"
    assert [event.version for event in effect(heartbeat(), stream)] == [2]


def test_an_answer_leaves_nothing_in_the_log() -> None:
    assert effect_stream(work_pb2.ReportsRecorded(task_id=TASK)) == ""
    assert effect_stream(None) == ""
    assert effect_stream(work_pb2.Report(task_id="a\0b")) == ""
