"""The optimizer and what it is told at each step: a pure function of the step's number."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from perdure.training.config import TrainConfig

WARMUP_MOMENTUM: Final = 0.8
# Biases start fast under SGD. AdamW's steps do not shrink with the gradient: there they start at 0.
WARMUP_BIAS_LR: Final = {"SGD": 0.1, "AdamW": 0.0}
NORMS: Final = tuple(layer for name, layer in nn.__dict__.items() if "Norm" in name)


@dataclass(frozen=True)
class StepSettings:
    """What holds at one step: learning rates, SGD's momentum, batches per optimizer step."""

    lr: float
    bias_lr: float
    momentum: float
    accumulate: int


@dataclass(frozen=True)
class Schedule:
    """Learning rate, warm-up and accumulation of a training of `steps` batches per epoch.

    The formulas are those of Ultralytics' trainer, so that its settings carry over.
    """

    config: TrainConfig
    steps: int

    @property
    def accumulate(self) -> int:
        """Batches per optimizer step after the warm-up."""
        wanted = max(round(self.config.nbs / self.config.batch), 1)
        return min(wanted, self.steps * self.config.epochs)

    @property
    def weight_decay(self) -> float:
        """Weight decay, scaled to the images per optimizer step."""
        config = self.config
        return config.weight_decay * config.batch * self.accumulate / config.nbs

    def at(self, step: int) -> StepSettings:
        """Give the settings of step `step`, counted from 0 over all epochs."""
        config = self.config
        lr = config.lr0 * self._decay(step // self.steps)
        warmup = round(config.effective_warmup_epochs * self.steps)
        if not warmup or step > warmup:
            return StepSettings(lr, lr, config.momentum, self.accumulate)
        span = [0, warmup]
        return StepSettings(
            lr=float(np.interp(step, span, [0.0, lr])),
            bias_lr=float(np.interp(step, span, [WARMUP_BIAS_LR[config.optimizer], lr])),
            momentum=float(np.interp(step, span, [WARMUP_MOMENTUM, config.momentum])),
            accumulate=max(1, int(np.interp(step, span, [1, self.accumulate]).round())),
        )

    def _decay(self, epoch: int) -> float:
        """Give the learning rate of an epoch as a share of lr0."""
        progress = epoch / self.config.epochs
        if self.config.cos_lr:
            return (1 - math.cos(progress * math.pi)) / 2 * (self.config.lrf - 1) + 1
        return max(1 - progress, 0) * (1 - self.config.lrf) + self.config.lrf


def new_optimizer(model: nn.Module, config: TrainConfig, decay: float) -> torch.optim.Optimizer:
    """Build the optimizer: weights decay by `decay`, norms and biases do not."""
    kinds: dict[str, list[nn.Parameter]] = {"bias": [], "weight": [], "norm": []}
    for module_name, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            full_name = f"{module_name}.{name}"
            kind = (
                "bias" if "bias" in full_name else "norm" if isinstance(module, NORMS) else "weight"
            )
            kinds[kind].append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": parameters, "kind": kind, "weight_decay": decay if kind == "weight" else 0.0}
        for kind, parameters in kinds.items()
    ]
    if config.optimizer == "SGD":
        return torch.optim.SGD(
            groups, lr=config.lr0, momentum=config.momentum, nesterov=True, fused=True
        )
    return torch.optim.AdamW(groups, lr=config.lr0, betas=(config.momentum, 0.999), fused=True)


def apply_settings(optimizer: torch.optim.Optimizer, settings: StepSettings) -> None:
    """Tell the optimizer what holds at the next step."""
    for group in optimizer.param_groups:
        group["lr"] = settings.bias_lr if group["kind"] == "bias" else settings.lr
        if "momentum" in group:
            group["momentum"] = settings.momentum
