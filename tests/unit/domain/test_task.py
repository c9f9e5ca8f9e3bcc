"""A task's way through its stages, and what failures do to it."""

import pytest
from google.protobuf.message import Message

from perdure.contracts.v1 import events_pb2
from perdure.domain.failures import Failure
from perdure.domain.task import Status
from perdure.domain.task_decisions import Assign, Lose, Receive, RequestCancel, answer
from perdure.errors import Conflict
from tests.builders.tasks import (
    INCARNATION,
    NOW,
    WORKER_ID,
    History,
    checkpoint,
    report,
    succeeded,
)

ASSIGN = Assign(WORKER_ID, INCARNATION, NOW)


def receive(
    history: History, body: Message, fence: int | None = None, seq: int | None = None
) -> list[str]:
    """A report of the worker: the attempt's next one, unless `seq` says which."""
    attempt = history.state.attempt(fence or history.state.fence)
    following = attempt.reports + 1 if attempt else 1
    message = report(fence or history.state.fence, body, seq=seq or following)
    return history.do(Receive(message, NOW), cause=message.id)


def at_stage(stage: str) -> History:
    history = History()
    for earlier in ("prepare", "train"):
        if earlier == stage:
            break
        history.do(ASSIGN)
        receive(history, succeeded(earlier))
    history.do(ASSIGN)
    return history


def failed(failure: Failure) -> events_pb2.AttemptFailed:
    return events_pb2.AttemptFailed(failure=failure, detail="it broke")


def test_three_stages_lead_to_a_published_model() -> None:
    history = History()
    for stage in ("prepare", "train", "publish"):
        assert history.state.status is Status.QUEUED
        assert history.state.stage == stage
        history.do(ASSIGN)
        assert history.state.status is Status.RUNNING
        receive(history, succeeded(stage))

    assert history.state.status is Status.SUCCEEDED
    assert history.state.model_id == "m1"
    assert history.state.map50 == 0.6
    assert [a.fence for a in history.state.attempts] == [1, 2, 3]


def test_the_goal_dataset_ends_after_prepare() -> None:
    history = History("dataset")
    history.do(ASSIGN)
    assert receive(history, succeeded("prepare")) == ["AttemptSucceeded", "TaskSucceeded"]


def test_a_killed_attempt_is_tried_again_at_once() -> None:
    history = at_stage("train")
    assert receive(history, failed(Failure.KILLED)) == ["AttemptFailed", "RetryScheduled"]
    assert history.state.status is Status.WAITING
    assert history.do(ASSIGN) == ["AttemptAssigned"]
    assert history.state.fence == 3


def test_a_second_failure_in_a_row_waits_five_minutes() -> None:
    history = at_stage("train")
    receive(history, failed(Failure.KILLED))
    history.do(ASSIGN)
    receive(history, failed(Failure.KILLED))

    assert history.state.retry is not None
    assert history.state.retry.not_before == "2026-01-01T00:05:00+00:00"
    with pytest.raises(Conflict):
        history.do(ASSIGN)
    later = Assign(WORKER_ID, INCARNATION, "2026-01-01T00:05:00+00:00")
    assert history.do(later) == ["AttemptAssigned"]


def test_the_fourth_failure_without_progress_ends_the_task_with_advice() -> None:
    history = at_stage("train")
    for _ in range(3):
        assert receive(history, failed(Failure.UNKNOWN))[-1] == "RetryScheduled"
        history.do(Assign(WORKER_ID, INCARNATION, "2026-01-02T00:00:00+00:00"))
    assert receive(history, failed(Failure.UNKNOWN)) == ["AttemptFailed", "TaskFailed"]

    assert history.state.status is Status.FAILED
    assert history.state.failure is not None
    assert history.state.failure.detail == "it broke"
    assert "log" in history.state.failure.advice


def test_failures_before_a_checkpoint_no_longer_count_after_it() -> None:
    history = at_stage("train")
    for _ in range(6):
        receive(history, checkpoint(step=history.state.fence))
        assert receive(history, failed(Failure.KILLED))[-1] == "RetryScheduled"
        history.do(ASSIGN)
    assert history.state.status is Status.RUNNING


def test_losses_of_workers_do_not_use_up_the_retries_of_the_task() -> None:
    history = at_stage("train")
    for _ in range(10):
        lose = Lose(history.state.fence, Failure.LOST_WORKER, "silent", NOW, 31.0)
        assert history.do(lose) == ["HeartbeatTimedOut", "AttemptFailed", "RetryScheduled"]
        history.do(ASSIGN)
    assert receive(history, failed(Failure.KILLED))[-1] == "RetryScheduled"


def test_an_outage_of_the_store_for_hours_ends_no_task() -> None:
    history = at_stage("train")
    now = NOW
    for _ in range(15):
        message = report(history.state.fence, failed(Failure.UNREACHABLE))
        assert history.do(Receive(message, now), cause=message.id)[-1] == "RetryScheduled"
        assert history.state.retry is not None
        now = history.state.retry.not_before
        history.do(Assign(WORKER_ID, INCARNATION, now))
    assert now > "2026-01-01T06:00:00"


def test_bad_data_is_not_tried_again() -> None:
    history = History()
    history.do(ASSIGN)
    assert receive(history, failed(Failure.DATASET_INVALID)) == ["AttemptFailed", "TaskFailed"]


def test_a_report_under_an_old_fence_is_recorded_and_changes_nothing() -> None:
    history = at_stage("train")
    receive(history, failed(Failure.LOST_WORKER))
    history.do(ASSIGN)
    before = history.state

    assert receive(history, succeeded("train"), fence=2) == ["StaleReportRecorded"]
    assert history.state.status is before.status
    assert history.state.trained is None
    assert history.state.attempts == before.attempts


def test_a_result_without_what_the_stage_owes_is_refused() -> None:
    history = at_stage("train")
    with pytest.raises(Conflict, match="no result of stage train"):
        receive(history, succeeded("publish"))


def test_a_cancel_before_an_attempt_ends_the_task_at_once() -> None:
    history = History()
    cancel = RequestCancel("someone")
    assert history.do(cancel) == ["TaskCancelRequested", "TaskCancelled"]
    with pytest.raises(Conflict, match="has ended"):
        history.do(cancel)


def test_a_cancel_waits_for_the_attempt_to_end() -> None:
    history = at_stage("train")
    assert history.do(RequestCancel("someone")) == ["TaskCancelRequested"]
    assert history.do(RequestCancel("someone")) == []
    assert receive(history, failed(Failure.WORKER_STOPPED)) == ["AttemptFailed", "TaskCancelled"]


def test_reports_are_taken_in_their_order_and_each_once() -> None:
    history = at_stage("train")
    assert receive(history, checkpoint(step=9), seq=3) == []  # the two before it are missing
    assert receive(history, events_pb2.AttemptStarted(pid=7), seq=1) == ["AttemptStarted"]
    assert receive(history, checkpoint(step=5), seq=2) == ["CheckpointSaved"]
    assert receive(history, checkpoint(step=9), seq=3) == ["CheckpointSaved"]
    assert receive(history, checkpoint(step=5), seq=2) == []
    assert [c.step for c in history.state.checkpoints] == [5, 9]


def test_a_report_that_was_recorded_is_not_stale_when_it_comes_again_after_the_end() -> None:
    history = at_stage("train")
    receive(history, checkpoint(step=5), seq=1)
    receive(history, succeeded("train"), seq=2)
    assert receive(history, checkpoint(step=5), fence=2, seq=1) == []
    assert receive(history, succeeded("train"), fence=2, seq=2) == []


def test_what_a_lost_worker_says_afterwards_is_stale() -> None:
    history = at_stage("train")
    receive(history, checkpoint(step=5), seq=1)
    history.do(Lose(2, Failure.LOST_WORKER, "silent", NOW, 31.0))
    assert receive(history, checkpoint(step=9), fence=2, seq=2) == ["StaleReportRecorded"]


@pytest.mark.parametrize(("sent", "answered"), [(1, 1), (2, 1), (9, 1)])
def test_a_worker_is_told_up_to_where_its_reports_are_recorded(sent: int, answered: int) -> None:
    history = at_stage("train")
    receive(history, checkpoint(step=5), seq=1)
    message = report(2, checkpoint(step=9), seq=sent)
    assert answer(history.state, message).seq == answered


def test_a_worker_need_not_keep_reports_of_an_attempt_that_has_ended() -> None:
    history = at_stage("train")
    history.do(Lose(2, Failure.LOST_WORKER, "silent", NOW, 31.0))
    assert answer(history.state, report(2, checkpoint(step=9), seq=7)).seq == 7
    other = report(2, checkpoint(step=9), seq=7, incarnation="older")
    assert answer(history.state, other).seq == 7
