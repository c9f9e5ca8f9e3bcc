"""What an attempt's data set is to the trainer-agent: there, whole, and kept until the end."""

import asyncio
from pathlib import Path

import pytest

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.datasets.cache import load_local
from perdure.datasets.cache_room import evict
from perdure.datasets.snapshot import blob_key
from perdure.domain.failures import POLICIES, Failure, Response
from perdure.messaging import topology
from perdure.messaging.local import LocalBus
from perdure.runtime.attempt import AttemptSettings, child_worker
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.messages import wrap
from perdure.runtime.worker import WorkerSettings
from perdure_publisher.craft import publishing
from perdure_trainer_agent.craft import Training
from tests.builders.cached_datasets import World, whole
from tests.builders.tasks import NOW

DEADLINE_S = 20.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, tmp_path / "cache" / "datasets")


def offer(world: World, **fields: str) -> work_pb2.Assignment:
    train = work_pb2.TrainWork(
        dataset_version=world.manifest.version, split_id=world.split.split_id, config_json="{}"
    )
    return work_pb2.Assignment(
        task_id="t1", stage="train", fence=1, worker_id="node-1", train=train, **fields
    )


def test_a_data_set_is_kept_from_the_job_to_the_end_of_the_attempt(world, tmp_path):
    training = Training(world.store, world.root.parent)

    job = training.job(offer(world), tmp_path, lambda: None)

    assert job["dataset_dir"] == str(world.target)
    assert not evict(world.target)
    assert whole(world, load_local(world.target))
    training.ended(offer(world))
    training.ended(offer(world))  # of an attempt that got no job
    assert evict(world.target)


async def ended(world: World, training: Training, work_root: Path) -> events_pb2.AttemptFailed:
    """The last report of an attempt that a worker of this kind was offered."""
    bus, stopping = LocalBus(), asyncio.Event()
    beats: asyncio.Queue[work_pb2.Heartbeat] = asyncio.Queue()
    failures: asyncio.Queue[events_pb2.AttemptFailed] = asyncio.Queue()

    async def hear_beat(delivery) -> None:
        beats.put_nowait(work_pb2.Heartbeat.FromString(delivery.message.body))

    async def hear_report(delivery) -> None:
        failures.put_nowait(work_pb2.Report.FromString(delivery.message.body).failed)

    await bus.consume(topology.SCHEDULER_HEARTBEATS, hear_beat)
    await bus.consume(topology.SCHEDULER_REPORTS, hear_report)
    worker = child_worker(
        WorkerSettings("node-1", ("train",), 1),
        training.craft(),
        AttemptSettings(work_root),
        bus=bus,
        store=world.store,
        clock=SystemClock(),
        new_id=new_id,
    )
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(worker.run(stopping, 1.0))
        assignment = offer(world, incarnation=(await beats.get()).worker.incarnation)
        message = wrap(new_id(), assignment, source="scheduler", subject="t1", time=NOW)
        await bus.publish(topology.WORK, "node-1", message)
        failed = await failures.get()
        stopping.set()
        await running
    await bus.close()
    return failed


async def test_a_data_set_without_room_fails_the_attempt_as_disk_full_in_plain_words(
    world, tmp_path
):
    training = Training(world.store, world.root.parent, cache_max_bytes=1)

    failed = await ended(world, training, tmp_path / "work")

    assert failed.failure == "disk_full"
    assert failed.detail.startswith(f"data set {world.manifest.version[:12]} needs ")
    assert "PERDURE_CACHE_MAX_BYTES" in failed.detail
    logged = b"".join(
        world.store.get_bytes(key) for key, _ in world.store.sizes("logs/t1/0001-train/")
    )
    assert logged.startswith(b"[attempt ended: disk_full: data set ")
    assert b"Traceback" not in logged


async def test_a_data_set_that_the_store_has_damaged_fails_the_attempt_and_names_the_push(
    world, tmp_path
):
    image = world.manifest.images[0]
    world.store.put_bytes(blob_key(image.digest), b"other bytes")

    failed = await ended(world, Training(world.store, world.root.parent), tmp_path / "work")

    assert failed.failure == "store_damaged"
    assert image.digest in failed.detail
    policy = POLICIES[Failure(failed.failure)]
    assert (policy.response, "perdure dataset push" in policy.advice) == (Response.GIVE_UP, True)


async def test_an_attempt_that_cannot_begin_lets_its_data_set_go(world, tmp_path):
    world.store.put_bytes("checkpoints/t1/0000000003-000001-" + "0" * 64 + ".pt", b"no checkpoint")
    training = Training(world.store, world.root.parent)

    failed = await ended(world, training, tmp_path / "work")

    assert failed.failure == "checkpoint_damaged"
    assert evict(world.target)


def test_a_publisher_tells_its_child_how_much_the_cache_may_hold(world, tmp_path):
    craft = publishing(world.url, tmp_path, cache_max_bytes=12_345)
    job = craft.job(work_pb2.Assignment(stage="publish"), tmp_path, lambda: None)
    assert job["cache_max_bytes"] == 12_345
