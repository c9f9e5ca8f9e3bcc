"""A prepare attempt, for the worker kit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.contracts.codec import to_dict
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.runtime.attempt import CheckStop, Craft

CHILD_MODULE: Final = "perdure_data_prep.child"


def preparing(store_url: str) -> Craft:
    """The prepare stage. The child reads and writes the object store at `store_url`."""

    def job(assignment: work_pb2.Assignment, _job_dir: Path, _check: CheckStop) -> dict[str, Any]:
        work = assignment.prepare
        upload = work.data.upload
        blob = {"key": upload.key, "digest": upload.digest, "size_bytes": upload.size_bytes}
        return {
            "task_id": assignment.task_id,
            "fence": assignment.fence,
            "stage": assignment.stage,
            "store_url": store_url,
            "data": {
                "dataset_version": work.data.dataset_version,
                "upload": blob if upload.key else None,
                "name": work.data.name,
                "rules": json.loads(work.data.rules_json or "{}"),
            },
            "val_ratio": work.val_ratio,
            "seed": work.seed,
        }

    return Craft(CHILD_MODULE, job, _result, uses_store=True)


def _result(
    _assignment: work_pb2.Assignment, result: Mapping[str, Any]
) -> events_pb2.AttemptSucceeded:
    prepared = events_pb2.PreparedData(**result["prepared"])
    assert prepared.dataset_version, to_dict(prepared)
    return events_pb2.AttemptSucceeded(prepared=prepared)
