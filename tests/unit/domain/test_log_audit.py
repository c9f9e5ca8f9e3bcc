"""One walk over the log: what it takes for wrong, and what it does not."""

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.log_audit import LogAudit
from perdure.domain.reconciliation import MAX_LISTED, MEANINGS, Category, Findings, Kind
from perdure.domain.task import to_json
from perdure.domain.task_audit import digest
from perdure.errors import Conflict
from tests.builders.tasks import NOW, TASK_ID, checkpoint, recorded, submission, succeeded
from tests.unit.domain.test_task_properties import ACTIONS, Play

# The start of a training, as (cause, events that were appended together).
Append = tuple[str, list[Message]]


def fenced(data: Message, fence: int) -> Message:
    copy = type(data)()
    copy.CopyFrom(data)
    copy.fence = fence  # type: ignore[attr-defined]
    return copy


def assigned(fence: int, stage: str) -> events_pb2.AttemptAssigned:
    return events_pb2.AttemptAssigned(stage=stage, fence=fence, worker_id="w", incarnation="i")


def started(fence: int, resumed: int | None = None) -> events_pb2.AttemptStarted:
    return events_pb2.AttemptStarted(fence=fence, pid=7, resumed_from_epoch=resumed)


def epoch(fence: int, number: int) -> events_pb2.EpochCompleted:
    return events_pb2.EpochCompleted(fence=fence, epoch=number, epochs=9)


def trained(fence: int, epochs: int) -> events_pb2.AttemptSucceeded:
    result = events_pb2.TrainedModel(epochs=epochs)
    return events_pb2.AttemptSucceeded(fence=fence, trained=result)


def failed(fence: int) -> events_pb2.AttemptFailed:
    return events_pb2.AttemptFailed(fence=fence, failure="killed", detail="signal 9")


IMPORTED = events_pb2.DatasetImported(version="v1")
RETRY = events_pb2.RetryScheduled(stage="train", retry=1, failure="killed", not_before=NOW)
PREPARED: list[Append] = [
    ("submit", [submission()]),
    ("assign/1", [assigned(1, "prepare")]),
    ("r1", [fenced(succeeded("prepare"), 1)]),
    ("assign/3", [assigned(2, "train")]),
]
TRAINING: list[Append] = [*PREPARED, ("r2", [started(2)]), ("r3", [epoch(2, 1)])]
RETRIED: list[Append] = [
    *TRAINING,
    ("r4", [failed(2), RETRY]),
    ("assign/8", [assigned(3, "train")]),
    ("r5", [started(3, 1)]),
]
RETRIED_TWICE: list[Append] = [
    *RETRIED,
    ("r6", [failed(3), RETRY]),
    ("assign/12", [assigned(4, "train")]),
]
TRAINED: list[Append] = [*TRAINING, ("r4", [epoch(2, 2)]), ("r5", [trained(2, 2)])]
SUCCEEDED: list[Append] = [
    *TRAINED,
    ("assign/9", [assigned(3, "publish")]),
    (
        "r6",
        [
            fenced(succeeded("publish"), 3),
            events_pb2.TaskSucceeded(dataset_version="v1", model_id="m1"),
        ],
    ),
]


def log_of(appends: list[Append]) -> list[RecordedEvent]:
    """A log of a data set version, its task, and a model."""
    events = [(cause, data) for cause, append in appends for data in append]
    task = [recorded(data, n, cause=cause) for n, (cause, data) in enumerate(events, 1)]
    registered = events_pb2.ModelRegistered(model_id="m1", task_id=TASK_ID)
    first = recorded(IMPORTED, 1)._replace(stream="dataset-v1")
    last = recorded(registered, 1)._replace(stream="model-m1")
    return in_order([first, *task, last])


def in_order(events: list[RecordedEvent]) -> list[RecordedEvent]:
    return [event._replace(position=n) for n, event in enumerate(events, 1)]


def audited(
    events: list[RecordedEvent], *, published: int | None = None, now: str = NOW
) -> tuple[LogAudit, list[tuple[Kind, str]]]:
    findings = Findings()
    head = events[-1].position
    audit = LogAudit(findings, published=head if published is None else published)
    audit.take(events)
    audit.end(head=head, now=now)
    return audit, [(found.kind, found.detail) for found in findings]


@pytest.mark.parametrize("appends", [PREPARED, TRAINING, RETRIED_TWICE, TRAINED, SUCCEEDED])
def test_nothing_is_wrong_with_a_task_on_its_way(appends: list[Append]) -> None:
    _, found = audited(log_of(appends))
    assert found == []


@pytest.mark.parametrize(
    ("appends", "kind", "words"),
    [
        ([*TRAINING, ("r3", [epoch(2, 2)])], Kind.MESSAGE_TWICE, "message r3"),
        ([*TRAINING, ("r2", [epoch(2, 2)])], Kind.MESSAGE_TWICE, "message r2"),
        ([*TRAINING, ("r2", [failed(2), RETRY])], Kind.MESSAGE_TWICE, "message r2"),
        ([*TRAINING, ("x", [submission()])], Kind.MESSAGE_TWICE, "submitted before"),
        ([*TRAINING, ("x", [epoch(2, 1)])], Kind.PROGRESS_TWICE, "epoch 1"),
        ([*TRAINING, ("x", [started(2)])], Kind.PROGRESS_TWICE, "attempt 2 had begun"),
        ([*RETRIED, ("x", [failed(2)])], Kind.ATTEMPT_ENDED_TWICE, "attempt 2 had failed"),
        (
            [*TRAINED, ("x", [trained(2, 2)])],
            Kind.ATTEMPT_ENDED_TWICE,
            "attempt 2 had succeeded",
        ),
        (
            [*TRAINED, ("assign/9", [assigned(3, "train")]), ("x", [trained(3, 2)])],
            Kind.STAGE_SUCCEEDED_TWICE,
            "attempt 2 had succeeded in stage train",
        ),
        (
            [*SUCCEEDED, ("x", [events_pb2.TaskSucceeded(model_id="m1")])],
            Kind.TASK_ENDED_TWICE,
            "ended before",
        ),
        ([*SUCCEEDED, ("x", [events_pb2.TaskFailed()])], Kind.TASK_ENDED_TWICE, "ended before"),
        ([*SUCCEEDED, ("x", [epoch(2, 3)])], Kind.FENCE_BROKEN, "after the task had ended"),
        ([*RETRIED, ("x", [epoch(2, 2)])], Kind.FENCE_BROKEN, "attempt 2 did not hold"),
        ([*TRAINING, ("x", [epoch(7, 2)])], Kind.FENCE_BROKEN, "attempt 7 was never assigned"),
        ([*TRAINING, ("x", [assigned(3, "train")])], Kind.FENCE_BROKEN, "attempt 2 had not ended"),
        (
            [*TRAINED, ("x", [assigned(9, "publish")])],
            Kind.FENCE_BROKEN,
            "fence 9 follows on 2",
        ),
        ([*TRAINING, ("x", [epoch(2, 4)])], Kind.REPORT_MISSING, "epoch 2 to 3"),
        ([*RETRIED, ("x", [epoch(3, 3)])], Kind.REPORT_MISSING, "attempt 3 never reported epoch 2"),
        ([*TRAINING, ("x", [trained(2, 2)])], Kind.REPORT_MISSING, "epoch 2"),
        (
            [
                *TRAINED,
                ("x", [assigned(3, "publish")]),
                (
                    "y",
                    [
                        fenced(succeeded("publish"), 3),
                        events_pb2.TaskSucceeded(model_id="m2"),
                    ],
                ),
            ],
            Kind.FACT_MISSING,
            "model m2",
        ),
    ],
)
def test_what_must_not_stand_in_a_task_is_named_once(
    appends: list[Append], kind: Kind, words: str
) -> None:
    _, found = audited(log_of(appends))
    told = [detail for one, detail in found if one is kind]
    assert len(told) == 1, found
    assert words in told[0]
    assert TASK_ID in told[0]


def test_a_stale_report_may_come_at_any_time() -> None:
    stale = events_pb2.StaleReportRecorded(fence=1, current_fence=3, report="EpochCompleted")
    _, found = audited(log_of([*SUCCEEDED, ("late", [stale])]))
    assert found == []


def test_a_checkpoint_of_a_step_that_was_saved_before_is_no_fault() -> None:
    _, found = audited(
        log_of(
            [
                *TRAINING,
                ("r4", [fenced(checkpoint(5), 2)]),
                ("r5", [fenced(checkpoint(5), 2)]),
            ]
        )
    )
    assert found == []


def test_a_task_that_cannot_be_replayed_is_named_once_and_the_others_go_on() -> None:
    events = log_of(SUCCEEDED)
    broken = [
        recorded(data, n)._replace(stream="task-broken")
        for n, data in enumerate([events_pb2.TaskCancelRequested(), epoch(1, 1)], 1)
    ]
    audit, found = audited(in_order([*broken, *events]))
    ((kind, detail),) = found
    assert (kind, "task-broken begins with TaskCancelRequested" in detail) == (
        Kind.TASK_UNREADABLE,
        True,
    )
    assert audit.counts == {
        "events": 15,
        "tasks": 2,
        "tasks_ended": 1,
        "dead_letters": 0,
        "published": 15,
    }


def test_holes_in_the_log_are_named() -> None:
    events = log_of(SUCCEEDED)
    _, found = audited([e for e in events if e.stream != "dataset-v1"])
    assert (Kind.EVENTS_MISSING, "position 1: not in the log") in found
    _, found = audited([e for e in events if e.position not in (5, 6)])
    assert (Kind.EVENTS_MISSING, "positions 5 to 6: not in the log") in found
    assert any("version 6 follows on 3" in detail for _, detail in found)
    findings = Findings()
    audit = LogAudit(findings, published=20)
    audit.take(events)
    audit.end(head=20, now=NOW)
    assert [(f.kind, f.subject) for f in findings] == [(Kind.EVENTS_MISSING, "14..20")]


def test_what_the_relay_owes_and_what_it_published_in_vain_is_named() -> None:
    events = log_of(SUCCEEDED)
    events[7] = events[7]._replace(time="2026-01-01T00:00:08+00:00")
    _, found = audited(events, published=7)
    assert found == [
        (
            Kind.NOT_PUBLISHED,
            "events not published yet: 6, the oldest of 2026-01-01T00:00:08+00:00",
        )
    ]
    _, found = audited(events, published=15)
    assert found == [
        (Kind.PUBLISHED_UNKNOWN, "positions 14 to 15 were published, and are not here")
    ]


@pytest.mark.parametrize(
    ("appends", "now", "waits"),
    [
        (PREPARED[:3], "2026-01-01T00:09:59+00:00", False),
        (PREPARED[:3], "2026-01-01T00:10:01+00:00", True),
        (RETRIED[:-2], "2026-01-01T00:10:01+00:00", True),
        (TRAINING, "2026-01-02T00:00:00+00:00", False),
        (
            [*TRAINING, ("c", [events_pb2.TaskCancelRequested()])],
            "2026-01-01T00:10:01+00:00",
            True,
        ),
        (SUCCEEDED, "2026-01-02T00:00:00+00:00", False),
    ],
)
def test_a_task_that_waits_for_long_without_an_attempt_is_owed(
    appends: list[Append], now: str, *, waits: bool
) -> None:
    _, found = audited(log_of(appends), now=now)
    assert [kind for kind, _ in found] == [Kind.TASK_WAITS] * waits


def test_standings_are_those_of_the_tasks() -> None:
    events = log_of(SUCCEEDED)
    play = Play("model")
    state = play.history.state
    audit, _ = audited(in_order(play.history.events))
    ((task_id, standing),) = audit.tasks.standings()
    assert (task_id, standing.version, standing.digest) == (TASK_ID, 1, digest(to_json(state)))
    audit, _ = audited(events)
    ((_, standing),) = audit.tasks.standings()
    assert standing.version == 11


class Logged(Play):
    """A play whose events stand in a log: what a report led to once has its ids."""

    def receive(self, message: work_pb2.Report) -> list[str]:
        if any(event.causation_id == message.id for event in self.history.events):
            return []
        return super().receive(message)


@settings(max_examples=200, deadline=None)
@given(goal=st.sampled_from(["model", "dataset"]), actions=st.lists(ACTIONS, max_size=60))
def test_whatever_the_scheduler_decides_breaks_no_rule(goal: str, actions: list[tuple]) -> None:
    play = Logged(goal)
    for action in actions:
        try:
            play.act(action)
        except Conflict:
            continue
    _, found = audited(in_order(play.history.events))
    # The workers in it complete what epochs they like, and nobody records models or data sets.
    allowed = {Kind.REPORT_MISSING, Kind.PROGRESS_TWICE, Kind.FACT_MISSING}
    assert {kind for kind, _ in found} <= allowed


def test_findings_are_counted_beyond_those_that_are_listed() -> None:
    findings = Findings()
    for number in range(MAX_LISTED + 5):
        findings.add(Kind.NOT_KEPT, f"q{number}", "waits")
    assert findings.to_json()["ok"] is True
    findings.add(Kind.DEAD_LETTER, "m1", "parked")
    told = findings.to_json()
    assert (told["ok"], told["not_listed"], len(told["findings"])) == (False, 5, MAX_LISTED + 1)
    nothing = dict.fromkeys(("lost", "duplicated", "differs", "unchecked"), 0)
    assert told["counts"] == {**nothing, "parked": 1, "owed": 105}
    assert told["findings"][0]["advice"] == "see: perdure audit dead-letters show m1"


def test_every_kind_has_a_meaning_and_a_next_step() -> None:
    assert set(MEANINGS) == set(Kind)
    assert {meaning.category for meaning in MEANINGS.values()} == set(Category)
    assert all(meaning.advice for meaning in MEANINGS.values())


def test_what_could_not_be_checked_is_not_ok() -> None:
    findings = Findings()
    findings.add(Kind.BROKER_AWAY, "dead-letters", "away")
    told = findings.to_json()
    assert (told["ok"], told["counts"]["unchecked"], told["counts"]["owed"]) == (False, 1, 0)
