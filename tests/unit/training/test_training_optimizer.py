"""Expected values follow from the formulas of Ultralytics' trainer, worked out by hand."""

import pytest
import torch

from perdure.training.config import TrainConfig
from perdure.training.optimizer import Schedule, apply_settings, new_optimizer


def test_the_learning_rate_falls_in_a_line_to_its_last_share():
    schedule = Schedule(TrainConfig(epochs=10, lr0=0.1, lrf=0.1, warmup_epochs=0), steps=4)
    assert schedule.at(0).lr == pytest.approx(0.1)
    assert schedule.at(4 * 5).lr == pytest.approx(0.1 * (0.5 * 0.9 + 0.1))
    assert schedule.at(4 * 9 + 3).lr == pytest.approx(0.1 * (0.1 * 0.9 + 0.1))


def test_the_learning_rate_can_fall_as_a_cosine():
    config = TrainConfig(epochs=10, lr0=0.1, lrf=0.1, warmup_epochs=0, cos_lr=True)
    assert Schedule(config, steps=4).at(4 * 5).lr == pytest.approx(0.1 * 0.55)


def test_warm_up_raises_rate_momentum_and_accumulation():
    config = TrainConfig(
        epochs=10, lr0=0.01, lrf=1.0, warmup_epochs=2, optimizer="SGD", nbs=64, batch=16
    )
    schedule = Schedule(config, steps=5)
    start, half, end = schedule.at(0), schedule.at(5), schedule.at(10)
    assert (start.lr, start.bias_lr, start.momentum, start.accumulate) == (0.0, 0.1, 0.8, 1)
    assert (half.lr, half.bias_lr) == (pytest.approx(0.005), pytest.approx(0.055))
    assert half.momentum == pytest.approx((0.8 + 0.937) / 2)
    assert half.accumulate == 2  # 2.5, rounded to even
    assert (end.lr, end.bias_lr, end.accumulate) == (0.01, 0.01, 4)


def test_warm_up_ends_after_a_third_of_a_short_training():
    config = TrainConfig(epochs=3, warmup_epochs=3, lr0=0.01, lrf=1.0)
    schedule = Schedule(config, steps=4)
    rates = [schedule.at(step).lr for step in range(3 * 4)]
    assert rates == pytest.approx([0, 0.0025, 0.005, 0.0075] + [0.01] * 8)


def test_weight_decay_follows_the_images_per_optimizer_step():
    config = TrainConfig(batch=16, nbs=64, weight_decay=0.001)
    assert Schedule(config, steps=100).weight_decay == pytest.approx(0.001)
    config = TrainConfig(batch=48, nbs=64, weight_decay=0.001)  # 64 / 48 rounds to one batch
    assert Schedule(config, steps=100).weight_decay == pytest.approx(0.00075)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_only_weights_decay_and_biases_have_a_rate_of_their_own(optimizer):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    config = TrainConfig(optimizer=optimizer, warmup_epochs=2, epochs=10)
    built = new_optimizer(model, config, decay=0.5)
    groups = {group["kind"]: group for group in built.param_groups}
    assert {kind: len(group["params"]) for kind, group in groups.items()} == {
        "bias": 2,
        "weight": 1,
        "norm": 1,
    }
    assert [groups[kind]["weight_decay"] for kind in ("bias", "weight", "norm")] == [0, 0.5, 0]
    settings = Schedule(config, steps=5).at(3)
    apply_settings(built, settings)
    assert groups["bias"]["lr"] == settings.bias_lr
    assert groups["weight"]["lr"] == settings.lr
