"""The training loop: Ultralytics' model, loss and transforms; order, steps and state are ours."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from ultralytics.utils.torch_utils import ModelEMA

from perdure.attempts.channel import Channel, Stopped
from perdure.datasets.cache import LocalDataset
from perdure.errors import AttemptError
from perdure.training import journal
from perdure.training.accounting import SampleCount
from perdure.training.checkpoint import (
    Best,
    Snapshot,
    StoredFile,
    export_best,
    weights_digest,
    write_checkpoint,
)
from perdure.training.config import TrainConfig
from perdure.training.dataset import Batch, training_batches
from perdure.training.model import device_of, trainable_model, use_threads
from perdure.training.optimizer import Schedule, apply_settings, new_optimizer
from perdure.training.order import steps_per_epoch
from perdure.training.progress import Progress
from perdure.training.resume import fit_to_config
from perdure.training.sample_cache import SampleCache, kept_samples
from perdure.training.validation import Metrics, ValidationSet, validate

MAX_GRADIENT_NORM: Final = 10.0
# Half precision may overflow a few times until its scale has halved from 65,536 to 1; not for ever.
MAX_SKIPPED_STEPS: Final = 25
MAX_AUTO_WORKERS: Final = 8  # more loader processes than this have never fed one GPU faster
LOSS_NAMES: Final = ("box_loss", "cls_loss", "dfl_loss")


@dataclass(frozen=True)
class TrainResult:
    """A finished training: the best epoch's weights, and what they reach on the validation set.

    `weights_digest` is that of these weights: trainings that came to the same bits have the same.
    """

    best: StoredFile
    weights_digest: str
    best_epoch: int
    epochs: int
    map50: float
    map50_95: float


def train(
    data: LocalDataset,
    config: TrainConfig,
    channel: Channel,
    *,
    folder: Path,
    resume_from: Snapshot | None = None,
    threads: int | None = None,
    samples: Path | None = None,
) -> TrainResult:
    """Train to the end, from the beginning or from a checkpoint, with checkpoints in `folder`.

    On a CPU, the weights are the same bits however often the training was stopped and resumed.
    `threads` is the number of CPU threads to compute with, by default one for each usable core; a
    resumed training keeps the number that it began with. `samples` is the folder in which augmented
    samples are kept when the configuration asks for it.

    Raises AttemptError with its failure class, Stopped after a stop that was asked for (the state
    is saved), and OSError when a checkpoint cannot be written.
    """
    if not data.train or not data.val:
        raise AttemptError(
            "dataset_invalid",
            f"data set {data.version[:12]} has {len(data.train)} training and {len(data.val)} "
            "validation images: both splits need at least one",
        )
    if resume_from is not None:
        resume_from = fit_to_config(resume_from, data, config)
        threads = resume_from.threads
    use_threads(threads or len(os.sched_getaffinity(0)))
    training = Training(data, config, channel, folder)
    if resume_from is not None:
        training.restore(resume_from)
    return training.run(samples)


class Training:
    """The state of a training between two steps, and what advances it."""

    def __init__(
        self, data: LocalDataset, config: TrainConfig, channel: Channel, folder: Path
    ) -> None:
        self._data = data
        self._config = config
        self._channel = channel
        self._folder = folder
        self._device = device_of(config)
        self._half = self._device.type == "cuda"
        self._workers = _worker_count(config, self._device)
        self._steps = steps_per_epoch(len(data.train), config.batch)
        self._schedule = Schedule(config, self._steps)
        self._progress = Progress(channel, epochs=config.epochs, steps=self._steps)
        model = trainable_model(config, data.classes).to(self._device)
        if self._half:
            model = model.to(memory_format=torch.channels_last)
        self._model: torch.nn.Module = model
        self._ema: Any = ModelEMA(model)  # type: ignore[no-untyped-call]
        self._optimizer = new_optimizer(model, config, self._schedule.weight_decay)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=self._half)
        self._validation = ValidationSet(data, config, workers=self._workers)
        self._epoch = 0
        self._step = 0
        self._optimizer_steps = 0
        self._last_step = -1
        self._skipped_steps = 0
        self._loss_sums = [0.0, 0.0, 0.0]
        self._count = SampleCount()
        self._best: Best | None = None
        self._stopped = False
        self._saved_at = (0, 0)
        journal.started(data, config, model, device=self._device, workers=self._workers)

    def restore(self, saved: Snapshot) -> None:
        """Take over the state of a checkpoint."""
        self._model.load_state_dict(saved.model)
        self._ema.ema.load_state_dict(saved.ema)
        self._ema.updates = saved.ema_updates
        self._optimizer.load_state_dict(saved.optimizer)
        for group in self._optimizer.param_groups:
            if group["kind"] == "weight":
                group["weight_decay"] = self._schedule.weight_decay
        if saved.scaler:
            self._scaler.load_state_dict(saved.scaler)
        for name, parameter in self._model.named_parameters():
            if name in saved.gradients:
                parameter.grad = saved.gradients[name].to(parameter.device, copy=True)
        self._epoch, self._step = saved.epoch, saved.step
        self._optimizer_steps, self._last_step = saved.optimizer_steps, saved.last_step
        self._skipped_steps = saved.skipped_steps
        self._loss_sums = list(saved.loss_sums)
        self._count = SampleCount(saved.seen)
        self._best = saved.best
        self._stopped = saved.stopped
        self._saved_at = (saved.epoch, saved.step)
        journal.resumed(saved, self._steps)

    def run(self, samples: Path | None = None) -> TrainResult:
        """Go on to the end, with samples kept in `samples` if so configured. Raises as `train`."""
        with kept_samples(samples, self._data, self._config, sharers=self._workers) as kept:
            return self._run(kept)

    def _run(self, kept: SampleCache | None) -> TrainResult:
        batches = training_batches(
            self._data,
            self._config,
            workers=self._workers,
            pinned=self._half,
            epoch=self._epoch,
            step=self._step,
            kept=kept,
        )
        while self._epoch < self._config.epochs and not self._stopped:
            started = time.monotonic()
            self._model.train()
            while self._step < self._steps:
                self._stop_if_asked()
                self._train_step(batches)
            self._count.check(image.sample_id for image in self._data.train)
            self._finish_epoch(started)
        return self._result()

    def _train_step(self, batches: Any) -> None:
        """One batch: forward, backward and, when enough are summed, the optimizer's step."""
        started = time.monotonic()
        batch: Batch = next(batches)
        number = self._epoch * self._steps + self._step
        settings = self._schedule.at(number)
        apply_settings(self._optimizer, settings)
        with torch.autocast(self._device.type, torch.float16, enabled=self._half):
            loss_parts, parts = self._model(self._inputs(batch))
            loss = loss_parts.sum()
        # One transfer from the device for all of them: it waits until the step's results are there.
        losses = torch.stack([loss.detach(), *(parts[name] for name in LOSS_NAMES)]).tolist()
        if not all(map(_is_finite, losses)):
            raise self._diverged("loss", losses, settings.lr, batch)
        self._scaler.scale(loss).backward()
        if number - self._last_step >= settings.accumulate:
            self._optimize(losses, settings.lr, batch)
            self._last_step = number
        self._step += 1
        self._loss_sums = [a + b for a, b in zip(self._loss_sums, losses[1:], strict=True)]
        self._count.add(batch.sample_ids)
        self._progress.step(
            epoch=self._epoch + 1,
            step=self._step,
            images=len(batch.sample_ids),
            took_s=time.monotonic() - started,
            **dict(zip(LOSS_NAMES, losses[1:], strict=True)),
        )

    def _inputs(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Bring a batch onto the device, in the form that the model's loss takes."""
        images = batch.images.to(self._device, non_blocking=True)
        return {
            "img": images.float() / 255,
            "batch_idx": batch.image_index.to(self._device, non_blocking=True),
            "cls": batch.classes.to(self._device, non_blocking=True),
            "bboxes": batch.boxes.to(self._device, non_blocking=True),
        }

    def _optimize(self, losses: list[float], lr: float, batch: Batch) -> None:
        """Step the optimizer with the summed gradients, and the averaged weights after it."""
        self._scaler.unscale_(self._optimizer)
        norm = torch.nn.utils.clip_grad_norm_(
            self._model.parameters(), MAX_GRADIENT_NORM, foreach=True
        )
        if _is_finite(float(norm)):
            self._skipped_steps = 0
        else:
            self._skipped_steps += 1
            if not self._half or self._skipped_steps > MAX_SKIPPED_STEPS:
                raise self._diverged("gradient", losses, lr, batch)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)
        self._ema.update(self._model)
        self._optimizer_steps += 1

    def _diverged(self, what: str, losses: list[float], lr: float, batch: Batch) -> AttemptError:
        parts = ", ".join(
            f"{name} {value:g}" for name, value in zip(LOSS_NAMES, losses[1:], strict=True)
        )
        return AttemptError(
            "non_finite_loss",
            f"the {what} is not finite at epoch {self._epoch + 1}, step {self._step + 1}: {parts}; "
            f"learning rate {lr:g}; samples {', '.join(batch.sample_ids)}. "
            "Lower lr0, or look at the boxes of these samples.",
        )

    def _finish_epoch(self, started: float) -> None:
        """Validate the averaged weights, judge them, report, save."""
        ended = time.monotonic()
        metrics = self._validate()
        means = (total / self._steps for total in self._loss_sums)
        losses = dict(zip(LOSS_NAMES, means, strict=True))
        settings = self._schedule.at((self._epoch + 1) * self._steps - 1)
        images = len(self._count)
        self._epoch, self._step = self._epoch + 1, 0
        self._loss_sums = [0.0, 0.0, 0.0]
        self._count = SampleCount()
        is_best = self._judge(metrics)
        duration_s = time.monotonic() - started
        self._channel.epoch(
            epoch=self._epoch,
            epochs=self._config.epochs,
            **losses,
            map50=metrics.map50,
            map50_95=metrics.map50_95,
            learning_rate=settings.lr,
            images=images,
            duration_s=duration_s,
        )
        journal.epoch(
            self._epoch,
            self._config,
            losses=losses,
            metrics=metrics,
            lr=settings.lr,
            images=images,
            duration_s=duration_s,
            is_best=is_best,
        )
        self._save(best=is_best)
        self._progress.validated(time.monotonic() - ended)

    def _validate(self) -> Metrics:
        """Measure the averaged weights. A stop in the middle saves the state from before it."""

        def after_batch(number: int) -> None:
            self._progress.phase(
                "validating", epoch=self._epoch + 1, step=number, steps=len(self._validation)
            )
            self._stop_if_asked()

        self._progress.phase("validating", epoch=self._epoch + 1, steps=len(self._validation))
        return validate(
            self._ema.ema,
            self._validation,
            self._data.classes,
            half=self._half,
            after_batch=after_batch,
        )

    def _judge(self, metrics: Metrics) -> bool:
        """Remember the epoch if it is the best so far, and stop after `patience` that are not."""
        before = self._best.map50_95 if self._best is not None else 0.0
        # While nothing is found yet, the newest weights are the best, and waiting has not begun.
        is_best = metrics.map50_95 > before or before == 0
        if is_best or self._best is None:
            weights = {name: value.clone() for name, value in self._ema.ema.state_dict().items()}
            self._best = Best(self._epoch, metrics.map50, metrics.map50_95, weights)
        self._stopped = 0 < self._config.patience <= self._epoch - self._best.epoch
        return is_best

    def _stop_if_asked(self) -> None:
        if self._channel.stop_requested:
            journal.stopping(epoch=self._epoch, step=self._step, steps=self._steps)
            if self._saved_at != (self._epoch, self._step):
                self._save(best=False)
            raise Stopped

    def _save(self, *, best: bool) -> None:
        """Write a checkpoint and say where it is."""
        self._progress.phase("saving", epoch=min(self._epoch + 1, self._config.epochs))
        stored = write_checkpoint(self._folder, self._snapshot())
        self._saved_at = (self._epoch, self._step)
        journal.saved(stored, epoch=self._epoch, step=self._step, steps=self._steps)
        self._channel.checkpoint(
            stored.path,
            digest=stored.digest,
            epoch=self._epoch,
            step=self._optimizer_steps,
            best=best,
        )

    def _snapshot(self) -> Snapshot:
        """The state as it is now; tensors are not copied."""
        gradients = {
            name: parameter.grad
            for name, parameter in self._model.named_parameters()
            if parameter.grad is not None
        }
        return Snapshot(
            config=self._config.canonical(),
            dataset_version=self._data.version,
            split_id=self._data.split_id,
            classes=tuple(self._data.classes),
            threads=torch.get_num_threads(),
            epoch=self._epoch,
            step=self._step,
            optimizer_steps=self._optimizer_steps,
            last_step=self._last_step,
            model=self._model.state_dict(),
            ema=self._ema.ema.state_dict(),
            ema_updates=self._ema.updates,
            optimizer=self._optimizer.state_dict(),
            scaler=self._scaler.state_dict(),
            gradients=gradients,
            loss_sums=(self._loss_sums[0], self._loss_sums[1], self._loss_sums[2]),
            seen=self._count.seen,
            skipped_steps=self._skipped_steps,
            best=self._best,
            stopped=self._stopped,
        )

    def _result(self) -> TrainResult:
        best = self._best
        if best is None:
            raise AttemptError("unknown", "the training ended without a validated epoch")
        if self._stopped:
            journal.ended_early(best, self._config.patience)
        journal.ended(self._epoch, best)
        return TrainResult(
            best=export_best(self._snapshot(), self._folder),
            weights_digest=weights_digest(best.ema),
            best_epoch=best.epoch,
            epochs=self._epoch,
            map50=best.map50,
            map50_95=best.map50_95,
        )


def _worker_count(config: TrainConfig, device: torch.device) -> int:
    """Loader processes; on a CPU they would only take cores from the training itself."""
    if config.workers != "auto":
        return config.workers
    return 0 if device.type == "cpu" else min(MAX_AUTO_WORKERS, len(os.sched_getaffinity(0)))


def _is_finite(value: float) -> bool:
    return abs(value) <= sys.float_info.max
