"""The process of one training attempt: `python -u -m perdure_trainer_agent.child JOB_DIR`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.attempts.channel import Channel, run_child
from perdure.domain.failures import Failure, is_disk_full
from perdure.errors import AttemptError, DamagedCheckpoint, InvalidConfig, InvalidDataset
from perdure.training.isolation import isolate

# Torch gives these failures as plain RuntimeErrors: what their texts say, and what that means.
_TEXTS: Final = (
    ("out of memory", Failure.DEVICE_OOM),
    ("can't allocate memory", Failure.HOST_OOM),  # torch's allocator for the host
    ("DataLoader worker", Failure.KILLED),  # a loader process ended by a signal
    ("uncorrectable ECC", Failure.DEVICE_ECC),
    ("driver version is insufficient", Failure.DRIVER_MISMATCH),
    ("driver on your system is too old", Failure.DRIVER_MISMATCH),
    ("no kernel image is available", Failure.DRIVER_MISMATCH),
)


def work(job: dict[str, Any], job_dir: Path, channel: Channel) -> Mapping[str, Any]:
    """Train as job.json says. Raises AttemptError with the failure's class, and Stopped."""
    channel.progress("starting")
    isolate(job_dir)  # before anything imports Ultralytics, which acts on import
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the same bits each time
    try:
        return _train(job, channel)
    except InvalidConfig as error:
        raise AttemptError(Failure.CONFIG_INVALID, error.message) from error
    except InvalidDataset as error:
        raise AttemptError(Failure.DATASET_INVALID, error.message) from error
    except MemoryError as error:
        raise AttemptError(Failure.HOST_OOM, "the training ran out of host memory") from error
    except (OSError, RuntimeError) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise AttemptError(failure, f"{type(error).__name__}: {error}") from error


def failure_of(error: Exception) -> Failure | None:
    """Give the failure class of an error of the system or of torch, or None when it has none."""
    if isinstance(error, OSError) and is_disk_full(error):
        return Failure.DISK_FULL
    text = str(error)
    return next((failure for part, failure in _TEXTS if part in text), None)


def _train(job: dict[str, Any], channel: Channel) -> Mapping[str, Any]:
    from perdure.datasets.cache import load_local
    from perdure.training.checkpoint import read_checkpoint
    from perdure.training.config import TrainConfig
    from perdure.training.journal import open_journal
    from perdure.training.loop import train

    open_journal("perdure")
    config = TrainConfig.from_canonical(job["config_json"])
    data = load_local(Path(job["dataset_dir"]))
    saved = None
    if job["checkpoint_path"] is not None:
        try:
            saved = read_checkpoint(Path(job["checkpoint_path"]))
        except DamagedCheckpoint as error:
            # Never from the beginning without a word: hours of work may lie in an older one.
            raise AttemptError(
                Failure.CHECKPOINT_DAMAGED,
                f"cannot resume: {error.message}. Offer the checkpoint before it.",
            ) from error
    channel.started(resumed_from_epoch=saved.epoch if saved else None)
    result = train(
        data,
        config,
        channel,
        folder=Path(job["checkpoint_dir"]),
        resume_from=saved,
        threads=job["threads"],
        samples=Path(job["samples_dir"]),
    )
    return {
        "best_path": str(result.best.path),
        "best_digest": result.best.digest,
        "best_size_bytes": result.best.size_bytes,
        "best_epoch": result.best_epoch,
        "weights_digest": result.weights_digest,
        "epochs": result.epochs,
        "map50": result.map50,
        "map50_95": result.map50_95,
    }


if __name__ == "__main__":
    run_child(work)
