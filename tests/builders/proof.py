"""What must hold of a task, and of the whole log, whatever was done to services and servers."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from perdure.client import Client, Task

# What is still owed (events to publish, read models to move on) comes within a second or two.
SETTLED_S = 60.0
POLL_S = 0.2

# Events that an attempt's worker reports, or that end it: they name its fence.
OF_AN_ATTEMPT = frozenset(
    {"AttemptStarted", "EpochCompleted", "CheckpointSaved", "AttemptSucceeded", "AttemptFailed"}
)
ENDS = frozenset({"TaskSucceeded", "TaskFailed", "TaskCancelled"})

Event = dict[str, Any]  # as Client.events gives it


def assert_proven(client: Client, *tasks: Task, replayed: int = 0) -> None:
    """Each task succeeded, once in effect, and the log is whole. `replayed` as in
    `assert_log_proven`.
    """
    for task in tasks:
        assert_succeeded_once(client, task)
    assert_log_proven(client, replayed=replayed)


def assert_succeeded_once(client: Client, task: Task) -> None:
    """The task succeeded, each stage once; nothing in its events is twice in effect; and the read
    model tells the same as a replay.
    """
    shown = client.task(task.id)
    assert shown.status == "succeeded", shown.json["failure"]
    succeeded = [a["stage"] for a in shown.json["attempts"] if a["outcome"] == "succeeded"]
    stages = ["prepare"] if shown.goal == "dataset" else ["prepare", "train", "publish"]
    assert succeeded == stages
    assert_once_in_effect(list(client.events(task.id)))
    assert client.replay(task.id).json == client.task(task.id).json


def assert_once_in_effect(events: list[Event]) -> None:
    """Of a task's events, as they stand in its stream: no message was recorded twice, no attempt
    that did not hold the stage said anything, and it ended once.
    """
    assert [e["version"] for e in events] == list(range(1, len(events) + 1))
    assert twice(e["id"] for e in events) == []
    # All that one message leads to is appended together, one event of a type.
    assert twice((e["causation_id"], e["type"]) for e in events) == []
    fences = [e["data"]["fence"] for e in events if e["type"] == "AttemptAssigned"]
    assert fences == list(range(1, len(fences) + 1))

    holder, ended, epochs = 0, set(), Counter[int]()
    for event in events:
        kind, fence = event["type"], event["data"].get("fence", 0)
        if kind == "AttemptAssigned":
            assert holder == 0 or holder in ended, event
            holder = fence
        if kind in OF_AN_ATTEMPT:
            assert fence == holder, event
            assert fence not in ended, event
        if kind == "EpochCompleted":
            assert event["data"]["epoch"] > epochs[fence], event
            epochs[fence] = event["data"]["epoch"]
        if kind in ("AttemptSucceeded", "AttemptFailed"):
            ended.add(fence)
    ends = [e["type"] for e in events if e["type"] in ENDS]
    assert len(ends) <= 1
    after = events[[e["type"] for e in events].index(ends[0]) + 1 :] if ends else []
    assert {e["type"] for e in after} <= {"StaleReportRecorded"}


def assert_log_proven(client: Client, *, replayed: int = 0) -> None:
    """The log is complete, nothing in it is lost, twice in effect, parked or owed, and there are
    no dead letters besides `replayed` ones.
    """
    assert_reconciled(client)
    verification = client.verify()
    assert verification.first == 1
    assert verification.last > 1
    letters = [letter.status for letter in client.dead_letters()]
    assert letters == ["replayed"] * replayed


def assert_reconciled(client: Client, timeout_s: float = SETTLED_S) -> None:
    """`perdure audit reconcile` finds nothing: what is owed is done within `timeout_s`, all else is
    wrong at once.
    """
    deadline = time.monotonic() + timeout_s
    while (found := client.reconcile()).findings:
        assert found.ok, found.findings
        assert time.monotonic() < deadline, found.findings
        time.sleep(POLL_S)


def twice(values: Iterable[Any]) -> list[Any]:
    """Those of `values` that are there more than once."""
    return [value for value, count in Counter(values).items() if count > 1]
