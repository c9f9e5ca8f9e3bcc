"""A publish attempt that must not lead to a model: what is found, and how it is told."""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from perdure.datasets.snapshot import load_split, store_split
from perdure.datasets.split import Split
from perdure.errors import AttemptError
from perdure_embedded.birds import CLASSES
from perdure_publisher import publication as steps
from perdure_publisher.job import read_job
from tests.builders.publishing import (
    World,
    attempt,
    card_stored,
    make_world,
    one_thread,
    store_checkpoint,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with one_thread():
        yield make_world(tmp_path_factory.mktemp("world"))


def test_an_export_that_computes_something_else_is_rejected(world, tmp_path, monkeypatch):
    sound = steps.export_onnx

    def swap_channels(model, *, image_size, classes, path):
        deployment = sound(model, image_size=image_size, classes=classes, path=path)
        graph = onnx.load(path)
        weight = next(w for w in graph.graph.initializer if list(w.dims) == [16, 3, 3, 3])
        flipped = np.ascontiguousarray(numpy_helper.to_array(weight)[:, ::-1])
        weight.CopyFrom(numpy_helper.from_array(flipped, weight.name))
        path.write_bytes(graph.SerializeToString())
        return deployment

    monkeypatch.setattr(steps, "export_onnx", swap_channels)
    broken = attempt(world, tmp_path)

    with pytest.raises(AttemptError, match=r"most on images/val/\S+\.jpg") as caught:
        broken.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert broken.facts["rejected"]["failure"] == "export_mismatch"
    assert not {"verified", "evaluated", "registered"} & set(broken.facts)
    assert not card_stored(world)


def test_a_truncated_export_is_rejected(world, tmp_path, monkeypatch):
    sound = steps.export_onnx

    def truncate(model, *, image_size, classes, path):
        deployment = sound(model, image_size=image_size, classes=classes, path=path)
        path.write_bytes(path.read_bytes()[:-1000])
        return deployment

    monkeypatch.setattr(steps, "export_onnx", truncate)
    broken = attempt(world, tmp_path)

    with pytest.raises(AttemptError, match="cannot be loaded") as caught:
        broken.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert "rejected" in broken.facts


def test_classes_in_another_order_are_rejected(world, tmp_path):
    other = store_checkpoint(world.store, world.root, tuple(reversed(CLASSES)))
    wrong = attempt(world, tmp_path, checkpoint=other)

    with pytest.raises(AttemptError, match="they do not belong together") as caught:
        wrong.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert wrong.facts["rejected"]["failure"] == "export_mismatch"


@pytest.mark.parametrize("wrong", [{"digest": "0" * 64}, {"key": "checkpoints/gone.pt"}])
def test_a_checkpoint_that_the_store_has_changed_or_lost_is_named_so(world, tmp_path, wrong):
    checkpoint = world.job["checkpoint"] | wrong

    with pytest.raises(AttemptError, match="the checkpoint of epoch") as caught:
        attempt(world, tmp_path, checkpoint=checkpoint).publication.run()

    assert caught.value.failure == "checkpoint_damaged"


def test_a_configuration_that_is_not_the_hashed_one_is_refused(world, tmp_path):
    with pytest.raises(AttemptError, match="it was changed on its way") as caught:
        attempt(world, tmp_path, config_hash="0" * 64).publication.run()

    assert caught.value.failure == "config_invalid"


def test_a_split_without_validation_images_is_refused(world, tmp_path):
    given = load_split(world.store, world.job["split_id"])
    split = Split(given.version, None, None, given.train + given.val, ())
    store_split(world.store, split)

    with pytest.raises(AttemptError, match="no validation images") as caught:
        attempt(world, tmp_path, split_id=split.split_id).publication.run()

    assert caught.value.failure == "dataset_invalid"


def test_a_data_set_without_room_is_a_full_disk(world, tmp_path):
    cache_root = str(tmp_path / "cache")
    full = attempt(world, tmp_path, cache_root=cache_root, cache_max_bytes=1)

    with pytest.raises(AttemptError, match="PERDURE_CACHE_MAX_BYTES") as caught:
        full.publication.run()

    assert caught.value.failure == "disk_full"


def test_a_job_with_a_missing_field_is_named():
    with pytest.raises(AttemptError, match=r"job\.json is wrong at dataset_version"):
        read_job(
            {
                "task_id": "t",
                "fence": 1,
                "stage": "publish",
                "store_url": "",
                "cache_root": "",
                "name": "",
            }
        )
