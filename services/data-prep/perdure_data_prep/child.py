"""One prepare attempt, as a process of its own: `python -u -m perdure_data_prep.child JOB_DIR`."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from perdure.artifacts import ObjectStore, StoredObject, open_store
from perdure.attempts.channel import Channel, Stopped, run_child
from perdure.datasets.rules import import_rules
from perdure.domain.failures import Failure, is_disk_full
from perdure.errors import AttemptError, DamagedObject, InvalidDataset, InvalidInput, NotFound
from perdure_data_prep import journal
from perdure_data_prep.importing import Prepared, Rejected, import_archive, prepare_version

# Often enough for a sign of life and a moving bar; each image would be thousands of lines.
_REPORT_INTERVAL_S: Final = 0.25


def work(job: dict[str, Any], job_dir: Path, channel: Channel) -> Mapping[str, Any]:
    """Prepare the data of a task: `job` holds task_id, store_url, data, val_ratio
    and seed.
    """
    channel.started()
    store = open_store(job["store_url"])  # a wrong setting of this service is no fault of the task
    try:
        prepared = _prepare(store, job, job_dir, channel)
    except InvalidDataset as error:
        raise AttemptError(Failure.DATASET_INVALID, error.message) from error
    except (NotFound, DamagedObject) as error:  # the gateway takes no task on what is not stored
        raise AttemptError(Failure.STORE_DAMAGED, error.message) from error
    except InvalidInput as error:
        raise AttemptError(Failure.CONFIG_INVALID, error.message) from error
    except OSError as error:
        if not is_disk_full(error):
            raise
        detail = f"the disk of {job_dir} is full: free some space on this node"
        raise AttemptError(Failure.DISK_FULL, detail) from error
    return {"prepared": asdict(prepared)}


def _prepare(store: ObjectStore, job: dict[str, Any], job_dir: Path, channel: Channel) -> Prepared:
    data, val_ratio, seed = job["data"], float(job["val_ratio"]), int(job["seed"])
    if version := data.get("dataset_version"):
        channel.progress("checking", step=0, steps=1)
        journal.write(f"data set version {version} is in the store: making its split")
        return prepare_version(store, version, val_ratio=val_ratio, seed=seed)
    upload = data["upload"]
    outcome = import_archive(
        store,
        StoredObject(upload["key"], upload["digest"], int(upload["size_bytes"])),
        data["name"],
        rules=import_rules(data["rules"]),
        val_ratio=val_ratio,
        seed=seed,
        work_dir=job_dir,
        progress=_Reporter(channel),
    )
    if isinstance(outcome, Rejected):
        channel.facts({"rejected": outcome.facts})
        more = f"`perdure dataset findings {job['task_id']}` lists all"
        raise AttemptError(Failure.DATASET_INVALID, f"{outcome.detail}; {more}")
    channel.facts({"imported": outcome.facts, "probed": outcome.probed})
    return outcome.prepared


class _Reporter:
    """Passes progress on, not too often, and unwinds the work when a stop was asked for."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._phase = ""
        self._reported_s = 0.0

    def __call__(self, phase: str, step: int, steps: int) -> None:
        if self._channel.stop_requested:
            raise Stopped
        now_s = time.monotonic()
        if phase != self._phase:
            journal.write_phase(phase, steps)
        if phase != self._phase or step == steps or now_s - self._reported_s >= _REPORT_INTERVAL_S:
            self._phase, self._reported_s = phase, now_s
            self._channel.progress(phase, step=step, steps=steps)


if __name__ == "__main__":
    run_child(work)
