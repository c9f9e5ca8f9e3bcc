"""The attempt's log in plain lines: what a person who follows a training wants to know.

The child process of an attempt opens the journal; without that, nothing is printed.
"""

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from perdure.datasets.cache import LocalDataset
from perdure.training.checkpoint import Best, Snapshot, StoredFile
from perdure.training.config import TrainConfig
from perdure.training.validation import Metrics

NAMED_CLASSES: Final = 10  # in a line; the rest is a number

log = logging.getLogger(__name__)


def open_journal(*packages: str) -> None:
    """Print what is logged, one line each with the time in UTC, to stdout: the attempt's log.

    Of `packages` everything from INFO up; of all other libraries their warnings.
    """
    handler = logging.StreamHandler(sys.stdout)
    formatter = logging.Formatter("%(asctime)sZ %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in packages:
        logging.getLogger(package).setLevel(logging.INFO)


def started(
    data: LocalDataset,
    config: TrainConfig,
    model: torch.nn.Module,
    *,
    device: torch.device,
    workers: int,
) -> None:
    """What is trained, with what, on what."""
    log.info(
        "data set %s, split %s: %d images to train, %d to validate; %s",
        data.version[:12],
        data.split_id[:12],
        len(data.train),
        len(data.val),
        classes_in_words(data.classes),
    )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU is used"
    log.info(
        "model %s with %s parameters, random weights at first", config.model, f"{parameters:,}"
    )
    log.info(
        "device %s (%s), %d CPU threads, %d processes that load images",
        device,
        where,
        torch.get_num_threads(),
        workers,
    )
    if config.effective_warmup_epochs < config.warmup_epochs:
        log.info(
            "warm-up takes %.3g epochs, not %g: a third of all epochs at most",
            config.effective_warmup_epochs,
            config.warmup_epochs,
        )
    log.info("configuration %s %s", config.hash[:12], config.canonical())


def resumed(saved: Snapshot, steps: int) -> None:
    """Where the training goes on; `steps` is the number per epoch."""
    best = f"; best so far is {_best(saved.best)}" if saved.best is not None else ""
    log.info("resumed after epoch %d, step %d of %d%s", saved.epoch, saved.step, steps, best)


def epoch(
    number: int,
    config: TrainConfig,
    *,
    losses: Mapping[str, float],
    metrics: Metrics,
    lr: float,
    images: int,
    duration_s: float,
    is_best: bool,
) -> None:
    """A finished epoch, 1 for the first."""
    found = metrics.map50_95 > 0
    mark = "" if found and not is_best else " (best so far)" if found else " (nothing found)"
    log.info(
        "epoch %d/%d: %s, mAP50 %.4f, mAP50-95 %.4f%s, lr %.3g, %d images in %.1f s",
        number,
        config.epochs,
        ", ".join(f"{name} {value:.4f}" for name, value in losses.items()),
        metrics.map50,
        metrics.map50_95,
        mark,
        lr,
        images,
        duration_s,
    )


def saved(stored: StoredFile, *, epoch: int, step: int, steps: int) -> None:
    """A checkpoint lies on the node's disk."""
    log.info(
        "checkpoint saved after epoch %d, step %d of %d: %.1f MB",
        epoch,
        step,
        steps,
        stored.size_bytes / 1e6,
    )


def stopping(*, epoch: int, step: int, steps: int) -> None:
    """The training was asked to stop, and does so after its state is saved."""
    log.info("stop asked for after epoch %d, step %d of %d", epoch, step, steps)


def ended_early(best: Best, patience: int) -> None:
    """Early stopping."""
    log.info("early stop: %d epochs without a better one than %s", patience, _best(best))


def ended(epochs: int, best: Best) -> None:
    """The training has come to its end."""
    log.info("trained for %d epochs; the best is %s", epochs, _best(best))
    if best.map50 == 0:
        log.info("no object was found in the validation images: train longer, or check the labels")


def classes_in_words(classes: Sequence[str]) -> str:
    """Name the first NAMED_CLASSES of them, and count the rest."""
    named = ", ".join(classes[:NAMED_CLASSES])
    rest = f" and {len(classes) - NAMED_CLASSES} more" if len(classes) > NAMED_CLASSES else ""
    return f"{len(classes)} classes: {named}{rest}"


def _best(best: Best) -> str:
    return f"epoch {best.epoch} with mAP50 {best.map50:.4f}, mAP50-95 {best.map50_95:.4f}"
