"""A publish attempt step by step: what it puts into the store, and what it takes away."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from perdure.attempts.channel import Stopped
from perdure.errors import AttemptError, DamagedObject, StoreUnavailable
from tests.builders.publishing import World, attempt, card_stored, make_world, one_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with one_thread():
        yield make_world(tmp_path_factory.mktemp("world"))


def test_the_weights_are_copied_within_the_store(world, tmp_path, monkeypatch):
    sent: list[str] = []
    put = world.store.put_file
    monkeypatch.setattr(
        world.store, "put_file", lambda key, path: sent.append(key) or put(key, path)
    )

    attempt(world, tmp_path, fence=20).publication.run()

    assert sent == ["models/task7-20/model.onnx"]
    stored = world.store.stat("models/task7-20/weights.pt")
    assert stored.digest == world.job["checkpoint"]["digest"]


def test_weights_that_were_replaced_meanwhile_are_not_registered(world, tmp_path, monkeypatch):
    real = world.store.copy

    def late(source, target):
        return replace(real(source, target), digest="0" * 64)

    monkeypatch.setattr(world.store, "copy", late)
    late_attempt = attempt(world, tmp_path, fence=10)

    with pytest.raises(DamagedObject, match="was replaced while it was being published"):
        late_attempt.publication.run()

    assert world.store.stat("models/task7-10/card.json") is None


RESUME_KEYS = (
    "checkpoints/task7/0000000003-000001-a.pt",
    "checkpoints/task7/0000000006-000002-b.pt",
)


@pytest.fixture
def resumable(world) -> Iterator[None]:
    """What the training would have resumed from, and that of a task of a similar name."""
    others = ("checkpoints/task70/0000000003-000001-a.pt",)
    for key in (*RESUME_KEYS, *others):
        world.store.put_bytes(key, b"state")
    yield
    for key in (*RESUME_KEYS, *others):
        world.store.delete(key)


def checkpoint_keys(world: World) -> set[str]:
    """The keys of all checkpoints but the best ones."""
    keys = {stored.key for stored in world.store.list("checkpoints/")}
    return {key for key in keys if "-best/" not in key}


@pytest.mark.usefixtures("resumable")
def test_the_checkpoints_to_resume_from_go_and_the_best_one_stays(world, tmp_path):
    attempt(world, tmp_path, fence=20).publication.run()

    assert checkpoint_keys(world) == {"checkpoints/task70/0000000003-000001-a.pt"}
    assert world.store.stat(world.job["checkpoint"]["key"]) is not None


@pytest.mark.usefixtures("resumable")
def test_a_model_that_is_not_registered_keeps_them(world, tmp_path):
    with pytest.raises(AttemptError):
        attempt(world, tmp_path, fence=20, gate={"min_map50": 1.0}).publication.run()

    assert set(RESUME_KEYS) <= checkpoint_keys(world)


@pytest.mark.usefixtures("resumable")
def test_a_store_that_is_away_afterwards_does_not_undo_the_model(world, tmp_path, monkeypatch):
    def away(key):
        raise StoreUnavailable(f"cannot delete {key}")

    monkeypatch.setattr(world.store, "delete", away)

    result = attempt(world, tmp_path, fence=20).publication.run()

    assert result["published"]["model_id"] == "task7-20"
    assert set(RESUME_KEYS) <= checkpoint_keys(world)
    monkeypatch.undo()


@pytest.mark.parametrize("after", ["exporting", "evaluating", "uploading"])
def test_a_stop_is_obeyed_between_two_steps_and_leaves_no_card(world, tmp_path, after):
    stopped = attempt(world, tmp_path)
    channel = stopped.publication.channel
    tell = channel.progress

    def progress(phase, **fields):
        tell(phase, **fields)
        if phase == after:
            channel.request_stop()

    channel.progress = progress  # type: ignore[method-assign]

    with pytest.raises(Stopped):
        stopped.publication.run()

    assert not card_stored(world)
