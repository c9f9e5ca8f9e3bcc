"""A training that is stopped and resumed gives the same bits as one that is not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perdure.attempts.channel import Stopped
from perdure.datasets.cache import LocalDataset
from perdure.errors import AttemptError
from perdure.training.checkpoint import (
    load_detector,
    local_checkpoints,
    read_checkpoint,
    weights_digest,
)
from perdure.training.config import TrainConfig
from perdure.training.loop import TrainResult, train
from perdure.training.resume import fit_to_config
from tests.builders.training import RecordingChannel, local_birds

pytestmark = pytest.mark.slow

EPOCHS = 2
STEPS = 3  # 12 training images in batches of 4
LOOKS = STEPS + 1  # per epoch: before each step, and after the only batch of validation
# Gradients of two batches are summed, which does not divide the epoch: sums cross its border.
CONFIG = TrainConfig(
    imgsz=64, batch=4, nbs=8, epochs=EPOCHS, warmup_epochs=1, close_mosaic=1, mixup=0.3, seed=5
)
SGD = CONFIG.model_copy(update={"optimizer": "SGD", "lr0": 0.01, "cos_lr": True, "momentum": 0.9})


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return local_birds(tmp_path_factory.mktemp("birds"), images=15, size_px=64)


@pytest.fixture(scope="module")
def reports():
    """What the undisturbed training says."""
    return []


@pytest.fixture(scope="module")
def undisturbed(birds, reports, tmp_path_factory):
    return run(birds, CONFIG, tmp_path_factory.mktemp("undisturbed"), said=reports)


def run(
    data: LocalDataset,
    config: TrainConfig,
    folder: Path,
    *,
    stops: tuple[int, ...] = (),
    said: list | None = None,
) -> TrainResult:
    """Train to the end, stopping at the given looks of successive attempts."""
    saved = None
    for stop in stops:
        with pytest.raises(Stopped):
            train(
                data,
                config,
                RecordingChannel(stop_at_look=stop),
                folder=folder,
                resume_from=saved,
                threads=1,
            )
        saved = read_checkpoint(local_checkpoints(folder)[-1])
    channel = RecordingChannel()
    result = train(data, config, channel, folder=folder, resume_from=saved, threads=1)
    if said is not None:
        said += channel.lines
    return result


def digests(folder: Path) -> dict[str, str]:
    """The state at the end, in which any earlier difference shows."""
    end = read_checkpoint(local_checkpoints(folder)[-1])
    moments = {
        f"{index}.{name}": value
        for index, state in end.optimizer["state"].items()
        for name, value in state.items()
    }
    return {
        "weights": weights_digest(end.model),
        "averaged": weights_digest(end.ema),
        "optimizer": weights_digest(moments),
        "best": weights_digest(end.best.ema),
    }


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param((1,), id="after the first step"),
        pytest.param((STEPS,), id="in the validation"),
        pytest.param((LOOKS,), id="between two epochs"),
        pytest.param((LOOKS + 2,), id="in the last epoch"),
        pytest.param((1, 1, 3), id="again and again"),
    ],
)
def test_a_stopped_and_resumed_training_gives_the_same_bits(birds, undisturbed, stops, tmp_path):
    result = run(birds, CONFIG, tmp_path, stops=stops)
    assert digests(tmp_path) == digests(undisturbed.best.path.parent)
    assert (result.map50_95, result.weights_digest) == (
        undisturbed.map50_95,
        undisturbed.weights_digest,
    )


def test_the_report_of_an_interrupted_epoch_is_that_of_a_whole_one(
    birds, undisturbed, reports, tmp_path
):
    resumed = []
    run(birds, CONFIG, tmp_path, stops=(2,), said=resumed)
    whole, parted = (
        [{**line, "duration_s": 0} for line in lines if line["kind"] == "epoch"]
        for lines in (reports, resumed)
    )
    assert whole == parted
    assert [report["images"] for report in whole] == [12, 12]
    assert [report["epoch"] for report in whole] == [1, 2]
    assert digests(tmp_path) == digests(undisturbed.best.path.parent)


def test_sgd_with_a_cosine_resumes_to_the_same_bits(birds, tmp_path):
    run(birds, SGD, tmp_path / "whole")
    run(birds, SGD, tmp_path / "resumed", stops=(2,))
    assert digests(tmp_path / "whole") == digests(tmp_path / "resumed")


def test_loader_processes_do_not_change_the_bits(birds, undisturbed, tmp_path):
    run(birds, CONFIG.model_copy(update={"workers": 2}), tmp_path)
    assert digests(tmp_path) == digests(undisturbed.best.path.parent)


def test_another_seed_gives_other_bits(birds, undisturbed, tmp_path):
    result = run(birds, CONFIG.model_copy(update={"seed": 6}), tmp_path)
    assert digests(tmp_path) != digests(undisturbed.best.path.parent)
    assert result.weights_digest != undisturbed.weights_digest


def test_the_best_weights_are_those_of_the_best_epoch(undisturbed):
    end = read_checkpoint(local_checkpoints(undisturbed.best.path.parent)[-1])
    detector = load_detector(undisturbed.best.path)
    assert weights_digest(detector.state_dict()) == weights_digest(end.best.ema)
    assert undisturbed.weights_digest == weights_digest(end.best.ema)
    assert undisturbed.best_epoch == end.best.epoch


def test_a_finished_training_resumes_to_its_result(birds, undisturbed, tmp_path):
    end = read_checkpoint(local_checkpoints(undisturbed.best.path.parent)[-1])
    channel = RecordingChannel()
    result = train(birds, CONFIG, channel, folder=tmp_path, resume_from=end, threads=1)
    assert not channel.said("epoch")
    assert replace(result, best=undisturbed.best) == undisturbed


def test_training_stops_early_when_the_precision_does_not_rise(
    birds, tmp_path, monkeypatch, caplog
):
    from perdure.training.validation import Metrics

    falling = iter(np.linspace(0.9, 0.1, 9))
    monkeypatch.setattr(
        "perdure.training.loop.validate",
        lambda *_args, **_options: Metrics(0.9, float(next(falling))),
    )
    caplog.set_level("INFO", logger="perdure")
    config = CONFIG.model_copy(update={"epochs": 9, "patience": 2})
    result = run(birds, config, tmp_path, stops=(STEPS + 1,))
    assert "early stop: 2 epochs without a better one than epoch 1" in caplog.text
    assert (result.epochs, result.best_epoch) == (3, 1)
    assert result.map50_95 == pytest.approx(0.9)


def test_a_loss_that_is_not_finite_ends_the_training_with_names(birds, tmp_path, monkeypatch):
    from perdure.training.loop import Training

    real, steps = Training._inputs, []

    def poisoned(self, batch):
        steps.append(batch.sample_ids)
        inputs = real(self, batch)
        if len(steps) == 2:
            inputs["img"][0, 0, 0, 0] = float("nan")
        return inputs

    monkeypatch.setattr(Training, "_inputs", poisoned)
    with pytest.raises(AttemptError) as caught:
        train(birds, CONFIG, RecordingChannel(), folder=tmp_path, threads=1)
    assert caught.value.failure == "non_finite_loss"
    assert "epoch 1, step 2" in caught.value.message
    assert "box_loss" in caught.value.message
    assert "learning rate" in caught.value.message
    assert all(sample_id in caught.value.message for sample_id in steps[1])


def test_a_sample_that_the_loader_loses_is_noticed(birds, tmp_path, monkeypatch):
    from perdure.training import dataset

    def lossy(samples):
        return dataset.collate(samples[:-1])

    real = dataset.DataLoader
    monkeypatch.setattr(
        dataset,
        "DataLoader",
        lambda *args, **options: real(*args, **{**options, "collate_fn": lossy}),
    )
    with pytest.raises(AttemptError, match=r"3 samples .* left out"):
        train(birds, CONFIG, RecordingChannel(), folder=tmp_path, threads=1)


def test_a_checkpoint_of_another_configuration_is_refused(birds, undisturbed, tmp_path):
    end = read_checkpoint(local_checkpoints(undisturbed.best.path.parent)[-1])
    other = CONFIG.model_copy(update={"lr0": 0.001})
    with pytest.raises(AttemptError, match=r"lr0 0.002 -> 0.001") as caught:
        train(birds, other, RecordingChannel(), folder=tmp_path, resume_from=end)
    assert caught.value.failure == "config_invalid"


def test_a_checkpoint_of_another_data_set_is_refused(birds, undisturbed, tmp_path):
    end = read_checkpoint(local_checkpoints(undisturbed.best.path.parent)[-1])
    other = replace(birds, version="f" * 64)
    with pytest.raises(AttemptError) as caught:
        train(other, CONFIG, RecordingChannel(), folder=tmp_path, resume_from=end)
    assert caught.value.failure == "dataset_invalid"


def test_a_smaller_batch_begins_the_epoch_again_with_the_weights_as_they_are(birds, tmp_path):
    with pytest.raises(Stopped):
        train(birds, CONFIG, RecordingChannel(stop_at_look=2), folder=tmp_path, threads=1)
    saved = read_checkpoint(local_checkpoints(tmp_path)[-1])
    smaller = CONFIG.model_copy(update={"batch": 2})
    fitted = fit_to_config(saved, birds, smaller)
    assert (saved.epoch, saved.step) == (0, 2)
    assert (fitted.epoch, fitted.step, fitted.seen) == (0, 0, ())
    assert weights_digest(fitted.model) == weights_digest(saved.model)
    channel = RecordingChannel()
    train(birds, smaller, channel, folder=tmp_path / "next", resume_from=saved)
    assert [report["images"] for report in channel.said("epoch")] == [12, 12]


def test_a_data_set_without_validation_images_is_refused(birds, tmp_path):
    with pytest.raises(AttemptError) as caught:
        train(replace(birds, val=()), CONFIG, RecordingChannel(), folder=tmp_path)
    assert caught.value.failure == "dataset_invalid"


def test_the_number_of_threads_is_kept_by_a_resumed_training(birds, undisturbed, tmp_path):
    end = read_checkpoint(local_checkpoints(undisturbed.best.path.parent)[-1])
    train(birds, CONFIG, RecordingChannel(), folder=tmp_path, resume_from=end, threads=2)
    assert torch.get_num_threads() == 1
