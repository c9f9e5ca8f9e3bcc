"""A publish attempt, for the worker kit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.runtime.attempt import CheckStop, Craft

CHILD_MODULE: Final = "perdure_publisher.child"


def publishing(
    store_url: str,
    cache_root: Path,
    threads: int | None = None,
    *,
    cache_max_bytes: int | None = None,
) -> Craft:
    """The publish stage. The child reads and writes the object store at `store_url`."""

    def job(assignment: work_pb2.Assignment, _job_dir: Path, _check: CheckStop) -> dict[str, Any]:
        work = assignment.publish
        gate = {"min_map50": work.gate.min_map50} if work.gate.HasField("min_map50") else {}
        checkpoint = work.checkpoint
        return {
            "task_id": assignment.task_id,
            "fence": assignment.fence,
            "stage": assignment.stage,
            "store_url": store_url,
            "cache_root": str(cache_root / "datasets"),
            "cache_max_bytes": cache_max_bytes,
            "name": work.name,
            "dataset_version": work.dataset_version,
            "split_id": work.split_id,
            "config_json": work.config_json,
            "config_hash": work.config_hash,
            "checkpoint": {
                "key": checkpoint.key,
                "digest": checkpoint.digest,
                "size_bytes": checkpoint.size_bytes,
            },
            "best_epoch": work.best_epoch,
            "gate": gate,
            "threads": threads,
        }

    return Craft(CHILD_MODULE, job, _result, uses_store=True)


def _result(
    _assignment: work_pb2.Assignment, result: Mapping[str, Any]
) -> events_pb2.AttemptSucceeded:
    return events_pb2.AttemptSucceeded(published=events_pb2.PublishedModel(**result["published"]))
