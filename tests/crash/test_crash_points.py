"""Every service is killed at every point where a crash could lose something or do it twice, and at
any other time: what was accepted ends well, and no event is twice in effect.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.client import Task
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.errors import ServerUnreachable
from perdure.messaging import open_bus, topology
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.messages import wrap
from perdure_embedded.birds import draw_bird_dataset
from perdure_gateway.submission import task_id_for
from tests.builders.proof import assert_proven
from tests.builders.published import Published
from tests.builders.services import Services, until

# The work of a test takes a third of this where nothing else runs.
pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

START_S = 120.0
IMPORT_S = 120.0
TRAIN_S = 240.0

# Point, and whether the attempt's result is kept by then: then the work is not done again. Of data
# sets and models two reports are made: AttemptStarted and AttemptSucceeded.
DATA_PREP_POINTS = (
    ("worker.accepted", False),
    ("consumer.handled", False),
    ("worker.spooled", False),
    ("worker.sent", False),
    ("worker.ended", False),
    ("worker.spooled:2", True),
    ("worker.sent:2", True),
)
# One after another in one training.
PUBLISHER_POINTS = (
    "worker.accepted",
    "worker.spooled",
    "worker.sent",
    "worker.ended",
    "worker.spooled:2",
)
# Its third report is the first checkpoint's.
TRAINER_POINTS = (
    "worker.accepted",
    "consumer.handled",
    "worker.spooled",
    "worker.sent",
    "worker.sent:3",
    "worker.ended",
)
MAX_PAUSE_S = 3.0  # between two kills at any time: a stage of a small training takes some seconds


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def published(services: Services) -> Published:
    return Published(services.rabbitmq.url, services.postgres.url)


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


def attempts(task: Task, stage: str) -> list[dict[str, Any]]:
    return [attempt for attempt in task.json["attempts"] if attempt["stage"] == stage]


@pytest.mark.parametrize(
    ("service", "point"),
    [
        ("scheduler", "scheduler.assigned"),
        ("scheduler", "scheduler.offered"),
        ("scheduler", "scheduler.recorded"),
        ("scheduler", "scheduler.recorded:2"),
        ("scheduler", "scheduler.answered:2"),
        ("scheduler", "consumer.handled"),
        ("relay", "relay.read"),
        ("relay", "relay.published"),
        ("relay", "relay.checkpointed"),
    ],
)
def test_a_part_of_the_control_plane_dies(
    services: Services, birds: Path, published: Published, service: str, point: str
) -> None:
    services.arm(service, point)
    task = services.client.push_dataset(birds, "birds")
    services.await_crash(service, START_S)
    services.restart(service)
    task = services.succeeded(task, IMPORT_S)
    assert len(task.json["attempts"]) == 1  # the worker was not touched: its work counts
    assert_proven(services.client, task)
    published.assert_complete_and_in_order()


def test_a_gateway_dies_before_it_answers_and_the_same_submission_again_gives_the_same_task(
    services: Services, birds: Path
) -> None:
    upload = services.client.upload(birds)
    before = {task.id for task in services.client.tasks()}
    services.arm("gateway", "gateway.appended")
    services.services["gateway"].await_ready()

    def submit() -> Task:
        return services.client.submit(
            goal="dataset", name="birds", upload=upload, idempotency_key="once-and-no-more"
        )

    with pytest.raises(ServerUnreachable):
        submit()
    services.await_crash("gateway")
    services.restart("gateway")
    (accepted,) = {task.id for task in services.client.tasks()} - before
    task = services.succeeded(submit(), IMPORT_S)
    assert task.id == accepted
    assert {task.id for task in services.client.tasks()} - before == {accepted}
    assert_proven(services.client, task)


@pytest.mark.parametrize(("point", "kept"), DATA_PREP_POINTS)
def test_data_prep_dies(services: Services, birds: Path, point: str, kept: bool) -> None:
    services.arm("data-prep", point)
    task = services.client.push_dataset(birds, "birds")
    services.await_crash("data-prep", START_S)
    crashed_at = SystemClock().now()
    services.restart("data-prep")
    task = services.succeeded(task, IMPORT_S)
    *lost, last = task.json["attempts"]  # the first may have gone to the start before the armed one
    assert {attempt["failure"] for attempt in lost} <= {"lost_worker"}
    assert (last["assigned_at"] < crashed_at) is kept
    assert_proven(services.client, task)


def test_the_trainer_agent_and_the_publisher_die_at_every_point_of_one_training(
    services: Services, birds: Path
) -> None:
    services.arm("trainer-agent", TRAINER_POINTS[0])
    services.arm("publisher", PUBLISHER_POINTS[0])
    task = services.submit(birds, epochs=2)
    for label, points in (("trainer-agent", TRAINER_POINTS), ("publisher", PUBLISHER_POINTS)):
        for following in points[1:]:
            services.await_crash(label, START_S)
            services.services[label].start({"PERDURE_CRASH_AT": following})
        services.await_crash(label, START_S)
        crashed_at = SystemClock().now()
        services.restart(label)
    task = services.succeeded(task, TRAIN_S)
    assert attempts(task, "publish")[-1]["assigned_at"] < crashed_at  # its result was kept
    for stage in ("train", "publish"):
        *lost, _ = attempts(task, stage)
        assert {attempt["failure"] for attempt in lost} == {"lost_worker"}
    resumed = [attempt["resumed_from_epoch"] for attempt in attempts(task, "train")]
    assert [epoch for epoch in resumed if epoch is not None] == [1, 2]
    assert services.client.model(task.model_id).status == "registered"
    assert_proven(services.client, task)


def test_every_service_is_killed_at_any_time_of_a_training(services: Services, birds: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)  # pytest shows it when the test fails
    chance = random.Random(seed)
    task = services.submit(birds, epochs=3)
    for label in chance.sample(sorted(services.services), len(services.services)):
        pause_s = chance.uniform(0, MAX_PAUSE_S)
        print("after", pause_s, "s", label)
        time.sleep(pause_s)  # not for anything: this is what makes the moment any moment
        services.services[label].kill()
        services.services[label].start()
    task = services.succeeded(task, TRAIN_S)
    assert {attempt["failure"] for attempt in task.json["attempts"]} <= {None, "lost_worker"}
    assert_proven(services.client, task)


def test_keeping_and_replaying_a_dead_letter_is_cut_off(services: Services, birds: Path) -> None:
    upload, key = services.client.upload(birds), new_id()
    report = work_pb2.Report(
        id=new_id(),
        task_id=task_id_for(key),  # of a task that is yet to come: nobody can take it
        stage="prepare",
        fence=1,
        incarnation="a former start",
        seq=1,
        started=events_pb2.AttemptStarted(fence=1),
    )
    services.arm("scheduler", "keeper.recorded")
    asyncio.run(publish(services, report))
    services.await_crash("scheduler", START_S)
    services.restart("scheduler")
    task = services.client.submit(goal="dataset", name="birds", upload=upload, idempotency_key=key)
    services.succeeded(task, IMPORT_S)
    letter = services.client.dead_letter(report.id)
    assert (letter.status, len(letter.json["deaths"])) == ("parked", 1)

    services.arm("gateway", "replay.published")
    services.services["gateway"].await_ready()
    with pytest.raises(ServerUnreachable):
        services.client.replay_dead_letter(report.id)
    services.await_crash("gateway")
    services.restart("gateway")
    until(lambda: services.client.task(task.id).json["stale_reports"] == [report.id], IMPORT_S)
    assert services.client.dead_letter(report.id).status == "parked"
    assert services.client.replay_dead_letter(report.id).status == "replayed"

    behind = services.client.push_dataset(birds, "birds")  # its reports come after the second one
    services.succeeded(behind, IMPORT_S)
    assert services.client.task(task.id).json["stale_reports"] == [report.id]
    assert len(services.client.dead_letter(report.id).json["deaths"]) == 1
    assert_proven(services.client, task, behind, replayed=1)


async def publish(services: Services, report: work_pb2.Report) -> None:
    bus = await open_bus(services.rabbitmq.url)
    message = wrap(report.id, report, source="test", subject=report.task_id)
    await bus.publish(topology.REPORTS, report.stage, message)
    await bus.close()
