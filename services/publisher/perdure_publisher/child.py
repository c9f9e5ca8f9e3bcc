"""The process of one publish attempt: `python -u -m perdure_publisher.child JOB_DIR`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.artifacts import open_store
from perdure.attempts.channel import Channel, run_child
from perdure.domain.failures import Failure, is_disk_full
from perdure.errors import AttemptError, InvalidDataset
from perdure.training.isolation import isolate


def work(job: dict[str, Any], job_dir: Path, channel: Channel) -> Mapping[str, Any]:
    """Publish the model that job.json asks for. Raises AttemptError and Stopped."""
    channel.progress("starting")
    isolate(job_dir)  # before anything imports Ultralytics, which acts on import
    try:
        return _publish(job, job_dir, channel)
    except InvalidDataset as error:
        raise AttemptError(Failure.DATASET_INVALID, error.message) from error
    except MemoryError as error:
        raise AttemptError(Failure.HOST_OOM, "the host's memory did not suffice") from error
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise AttemptError(Failure.DISK_FULL, f"no space left while publishing: {error}") from error


def _publish(job: dict[str, Any], job_dir: Path, channel: Channel) -> Mapping[str, Any]:
    import torch

    from perdure.training.journal import open_journal
    from perdure_publisher.job import read_job
    from perdure_publisher.publication import Publication

    open_journal("perdure", "perdure_publisher")
    order = read_job(job)
    if order.threads:
        torch.set_num_threads(order.threads)
    publication = Publication(
        job=order,
        folder=job_dir,
        store=open_store(order.store_url),
        channel=channel,
        now=lambda: datetime.now(UTC).isoformat(timespec="microseconds"),
    )
    return publication.run()


if __name__ == "__main__":
    run_child(work)
