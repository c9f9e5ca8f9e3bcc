"""Reconciliation over HTTP: each thing that can be wrong, in a log that really has it."""

from dataclasses import replace

import httpx
import pytest
from google.protobuf.message import Message as Protobuf

from perdure.contracts.v1 import events_pb2
from perdure.domain.dead_letter import MAX_BODY_BYTES
from perdure.errors import BusUnavailable
from perdure.eventlog.leadership import RELAY
from perdure.eventlog.port import Document, Verified
from perdure.messaging import topology
from perdure.messaging.port import Message, Queue, QueueView
from perdure_gateway.settings import GatewaySettings
from perdure_scheduler.dead_letters import dead_lettered
from tests.builders.dead_letters import REPORT, TASK, death, died, replayed, report_message
from tests.builders.gateway import (
    NOW,
    VERSION,
    World,
    assigned,
    epoch,
    prepared,
    published,
    trained,
)
from tests.builders.tasks import submission

STREAM = f"task-{TASK}"


class FixedClock:
    """A time of day, and no other."""

    def __init__(self, now: str) -> None:
        self._now = now

    def now(self) -> str:
        return self._now

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path, GatewaySettings(projection_wait_s=0.5), FixedClock(NOW))


async def task(world: World, *more: Protobuf) -> None:
    """A task in its training, and the data set version that it works on."""
    await world.import_dataset()
    for event in (submission(task_id=TASK), assigned(), prepared(), assigned(2, "train"), *more):
        await world.append(STREAM, event)


async def relayed(world: World, position: int | None = None) -> None:
    """The relay's checkpoint is at the head, or where the test says."""
    known = await world.read_models.position(RELAY)
    target = (await world.log.head()).position if position is None else position
    assert await world.read_models.commit(RELAY, expected=known, position=target)


async def reconciled(http: httpx.AsyncClient) -> dict:
    response = await http.get("/v1/audit/reconcile")
    assert response.status_code == 200
    return response.json()


async def kinds(http: httpx.AsyncClient) -> dict[str, str]:
    """What was found: details by kind."""
    found = (await reconciled(http))["findings"]
    return {finding["kind"]: finding["detail"] for finding in found}


async def test_an_empty_log_is_in_order(http):
    assert await reconciled(http) == {
        "head": 0,
        "ok": True,
        "counts": {
            "lost": 0,
            "duplicated": 0,
            "differs": 0,
            "parked": 0,
            "owed": 0,
            "unchecked": 0,
        },
        "findings": [],
        "not_listed": 0,
        "log": {"events": 0, "tasks": 0, "tasks_ended": 0, "dead_letters": 0, "published": 0},
    }


async def test_a_task_that_succeeded_is_in_order(world, http):
    await task(world, epoch(2, 1), epoch(2, 2), trained(2), assigned(3, "publish"))
    ended = events_pb2.TaskSucceeded(dataset_version=VERSION, model_id="m1")
    await world.append(STREAM, published(3, "m1"), ended)
    await world.register_model("m1", {"card.json": b"{}"}, task_id=TASK)
    stale = events_pb2.StaleReportRecorded(fence=2, current_fence=3)
    await world.append(STREAM, stale)
    await relayed(world)
    found = await reconciled(http)
    assert (found["ok"], found["findings"]) == (True, [])
    assert found["log"] == {
        "events": 16,
        "tasks": 1,
        "tasks_ended": 1,
        "dead_letters": 0,
        "published": 16,
    }


async def test_a_changed_row_damages_the_log(world, http):
    await task(world)
    first = world.log.rows[0]
    world.log.rows[0] = first._replace(data=first.data.replace("birds", "crows"))
    found = await reconciled(http)
    assert (found["ok"], found["counts"]["lost"]) == (False, 1)
    damage = found["findings"][0]
    assert (damage["kind"], damage["subject"]) == ("log-damaged", "1")
    assert "position 1" in damage["detail"]


async def test_an_event_of_an_unknown_type_ends_the_walk_and_is_told(world, http):
    await task(world)
    world.log.rows[2] = world.log.rows[2]._replace(type="TaskPainted")
    found = await kinds(http)
    assert "TaskPainted" in found["log-damaged"]
    assert "events-missing" not in found


async def test_an_event_that_is_gone_is_missing(world, http):
    await task(world)
    del world.log.rows[2]
    found = await reconciled(http)
    assert ("events-missing", "3..3") in {(f["kind"], f["subject"]) for f in found["findings"]}
    assert found["ok"] is False


async def test_a_log_that_was_cut_off_is_known_by_what_was_published(world, http):
    await task(world)
    await relayed(world, 9)
    found = await reconciled(http)
    finding = found["findings"][0]
    assert (finding["kind"], finding["subject"]) == ("published-unknown", "6..9")
    assert "reset_projection('relay')" in finding["advice"]
    assert found["ok"] is False


async def test_a_log_that_was_cut_off_is_known_by_its_read_models(world, http):
    await task(world)
    assert (await http.get(f"/v1/tasks/{TASK}")).json()["version"] == 4
    at = await world.read_models.position("models")
    assert await world.read_models.commit("models", expected=at, position=9)
    found = await kinds(http)
    assert found["read-model-ahead"] == "read model models knows positions 6 to 9: the log does not"


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ((epoch(2, 1), epoch(2, 1)), "progress-twice"),
        ((epoch(2, 1), trained(2), trained(2)), "attempt-ended-twice"),
        ((trained(2), assigned(3, "train"), trained(3)), "stage-succeeded-twice"),
        ((epoch(1, 1),), "fence-broken"),
        ((events_pb2.AttemptStarted(fence=2), epoch(2, 1), epoch(2, 3)), "report-missing"),
        ((events_pb2.TaskFailed(), events_pb2.TaskCancelled()), "task-ended-twice"),
        ((events_pb2.TaskSucceeded(model_id="m1"),), "fact-missing"),
    ],
)
async def test_what_counts_twice_or_is_missing_in_a_task_is_named(world, http, more, kind):
    await task(world, *more)
    await relayed(world)
    found = await reconciled(http)
    (finding,) = (f for f in found["findings"] if f["kind"] == kind)
    assert finding["subject"] == TASK
    assert f"perdure audit events {TASK}" in finding["advice"]
    assert found["ok"] is False


async def test_a_message_that_was_recorded_twice_is_named(world, http):
    await task(world)
    await world.append(STREAM, epoch(2, 1), cause="report-7")
    await world.append(STREAM, epoch(2, 2), cause="report-8")
    await world.append(STREAM, epoch(2, 3), cause="report-7")
    assert "message report-7" in (await kinds(http))["message-twice"]


async def test_a_task_that_cannot_be_replayed_is_named(world, http):
    await world.append("task-broken", events_pb2.TaskCancelRequested())
    await relayed(world)
    found = await kinds(http)
    assert "task broken: TaskCancelRequested at position 1" in found["task-unreadable"]
    assert "read-model-differs" not in found


async def changed(world: World, http: httpx.AsyncClient, *documents: Document) -> dict[str, str]:
    """What is found after someone wrote into the read model."""
    assert (await http.get("/v1/tasks")).status_code == 200
    at = await world.read_models.position("tasks")
    assert await world.read_models.commit("tasks", expected=at, position=at, documents=documents)
    await relayed(world)
    return await kinds(http)


async def test_a_read_model_that_says_something_else_than_the_log_is_named(world, http):
    await task(world)
    body = (await http.get(f"/v1/tasks/{TASK}")).json()
    found = await changed(world, http, Document(TASK, 2, {**body, "name": "crows", "fence": 7}))
    assert found == {
        "read-model-differs": f"task {TASK} differs in the read model tasks: name, fence"
    }


async def test_a_read_model_that_stopped_before_the_last_event_of_a_task_is_named(world, http):
    await task(world)
    body = (await http.get("/v1/audit/tasks/" + TASK, params={"at_version": 3})).json()
    assert await changed(world, http, Document(TASK, 2, body)) == {}
    found = await changed(world, http, Document(TASK, 2, {**body, "version": 7}))
    assert "version 7 in the read model, 4 in the log" in found["read-model-differs"]


async def test_a_task_that_cannot_be_replayed_is_not_compared(world, http):
    await task(world)
    body = (await http.get(f"/v1/tasks/{TASK}")).json()
    await world.append(STREAM, assigned(3, "fly"))
    found = await changed(world, http, Document(TASK, 2, {**body, "version": 5}))
    assert "'fly'" in found["task-unreadable"]
    assert "read-model-differs" not in found


async def test_what_is_appended_meanwhile_is_left_to_the_next_time(world, http, monkeypatch):
    await task(world)
    await relayed(world)
    verify = world.log.verify

    async def verify_and_append() -> Verified:
        await world.append("task-broken", events_pb2.TaskCancelRequested())
        return await verify()

    monkeypatch.setattr(world.log, "verify", verify_and_append)
    found = await reconciled(http)
    assert (found["head"], found["log"]["events"], found["log"]["tasks"]) == (5, 5, 1)
    assert found["ok"] is True


async def test_a_task_that_only_the_read_model_knows_is_named(world, http):
    await task(world)
    found = await changed(world, http, Document("ghost", 1, {"id": "ghost", "version": 1}))
    assert found == {
        "read-model-differs": "task ghost is in the read model tasks, and not in the log"
    }


async def test_a_task_that_the_read_model_has_lost_is_named(world, http, monkeypatch):
    await task(world)
    await relayed(world)

    async def find(*_: object, **__: object) -> list[Document]:
        return []

    monkeypatch.setattr(world.read_models, "find", find)
    found = await kinds(http)
    assert found == {"read-model-differs": f"task {TASK} is not in the read model tasks"}


async def test_parked_dead_letters_are_named_with_what_became_of_them(world, http):
    await task(world)
    await world.append(STREAM, REPORT.epoch, cause=REPORT.id)
    await world.append("dead-letter-report-7", died())
    other = dead_lettered(Message("m2", "Invoice", b"\xff"), death("other", error="ValueError:\nx"))
    await world.append("dead-letter-m2", other)
    large = replace(report_message(message_id="m3"), body=b"x" * (MAX_BODY_BYTES + 1))
    await world.append("dead-letter-m3", dead_lettered(large, death()))
    await world.append("dead-letter-m4", died(), replayed())
    await relayed(world)
    found = await reconciled(http)
    assert (found["ok"], found["counts"]["parked"], found["log"]["dead_letters"]) == (False, 3, 4)
    told = {finding["subject"]: finding["detail"] for finding in found["findings"]}
    assert list(told) == ["report-7", "m2", "m3"]
    assert told["report-7"] == (
        f"Report of task {TASK}, in queue scheduler.reports: KeyError: 'epoch'; "
        "its effect is in the log: EpochCompleted at 6"
    )
    assert told["m2"].endswith("cannot be told from the log")
    assert "its body was too large to be kept" in told["m3"]


async def test_dead_letters_without_an_effect_say_so(world, http):
    await task(world)
    await world.append("dead-letter-report-7", died())
    assert "no effect of it is in the log" in (await kinds(http))["dead-letter"]


async def test_what_others_will_do_is_owed_and_no_fault(world, http, monkeypatch):
    await world.bus.declare(topology.DEAD_LETTERS)
    await world.bus.publish(topology.DEAD, "q", report_message())
    await world.append(STREAM, submission(task_id=TASK))
    later = "2026-01-02T03:14:06.000000+00:00"
    monkeypatch.setattr(world.clock, "now", lambda: later)
    found = await reconciled(http)
    assert (found["ok"], found["counts"]["owed"]) == (True, 3)
    told = {finding["kind"]: finding["detail"] for finding in found["findings"]}
    assert told == {
        "task-waits": f"task {TASK}: queued in stage prepare since {NOW}",
        "not-published": f"events not published yet: 1, the oldest of {NOW}",
        "not-kept": "messages in queue dead-letters: 1",
    }


async def test_a_read_model_that_stands_still_is_owed(world, http):
    await task(world)
    assert (await http.get("/v1/audit/dead-letters")).json()["dead_letters"] == []
    await world.append("dead-letter-m1", replayed())  # no dead letter begins with that
    await relayed(world)
    told = "read model dead-letters is at position 5 of 6"
    assert await kinds(http) == {"read-model-behind": told}


async def test_what_cannot_be_looked_at_is_no_order(world, http, monkeypatch):
    async def inspect(queue: Queue) -> QueueView:
        raise BusUnavailable("the broker does not answer")

    await task(world)
    await relayed(world)
    assert (await reconciled(http))["ok"] is True
    monkeypatch.setattr(world.bus, "inspect", inspect)
    found = await reconciled(http)
    (finding,) = found["findings"]
    assert (found["ok"], found["counts"]["unchecked"], found["counts"]["owed"]) == (False, 1, 0)
    assert (finding["kind"], finding["category"]) == ("broker-away", "unchecked")
    assert "dead-letters: the broker does not answer" in finding["detail"]
    assert "reconcile again" in finding["advice"]
