"""A training that keeps its samples is repeated to the bit by libraries that augment otherwise."""

from pathlib import Path

import pytest

from perdure.attempts.channel import Stopped
from perdure.training import dataset
from perdure.training.checkpoint import local_checkpoints, read_checkpoint, weights_digest
from perdure.training.config import TrainConfig
from perdure.training.loop import train
from tests.builders.training import RecordingChannel, local_birds

pytestmark = pytest.mark.slow

# Two epochs of two batches of three images, the second without mosaic.
CONFIG = TrainConfig(imgsz=64, batch=3, nbs=3, epochs=2, close_mosaic=1, seed=5)
KEEPING = CONFIG.model_copy(update={"cache_samples": True})


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return local_birds(tmp_path_factory.mktemp("birds"), images=8, size_px=64)


def end(data, folder: Path, samples: Path | None, config=KEEPING, saved=None) -> str:
    """The weights at the end."""
    train(
        data,
        config,
        RecordingChannel(),
        folder=folder,
        resume_from=saved,
        threads=1,
        samples=samples,
    )
    return weights_digest(read_checkpoint(local_checkpoints(folder)[-1]).model)


def stopped(data, folder: Path, samples: Path):
    """The state after the first step, at which the training was told to stop."""
    channel = RecordingChannel(stop_at_look=1)
    with pytest.raises(Stopped):
        train(data, KEEPING, channel, folder=folder, threads=1, samples=samples)
    return read_checkpoint(local_checkpoints(folder)[-1])


def test_the_same_weights_whatever_augments_them_later(birds, tmp_path, monkeypatch):
    samples = tmp_path / "samples"
    plain = end(birds, tmp_path / "plain", samples, CONFIG)
    assert not samples.exists()
    saved = stopped(birds, tmp_path / "first", samples)
    assert end(birds, tmp_path / "first", samples, saved=saved) == plain
    monkeypatch.setattr(dataset, "sample_seed", lambda *_: 99)
    assert end(birds, tmp_path / "later", samples) == plain
    assert end(birds, tmp_path / "other", None, CONFIG) != plain
    # A retry may turn it on: the checkpoint is of the same training.
    saved = read_checkpoint(local_checkpoints(tmp_path / "plain")[0])
    assert end(birds, tmp_path / "plain", samples, saved=saved) == plain
