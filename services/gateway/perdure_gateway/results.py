"""What a task came to: its model or data set, or the findings that refused the data set."""

import asyncio
from itertools import islice
from typing import Any, Final

from fastapi import APIRouter, Response
from starlette.responses import StreamingResponse

from perdure.artifacts.port import ObjectStore
from perdure.contracts.codec import to_dict
from perdure.contracts.v1 import events_pb2
from perdure.datasets.findings_document import parse_lines
from perdure.domain.dataset import rejected_stream
from perdure.domain.task import Status, TaskState
from perdure.errors import Conflict, InvalidDataset, NotFound, TaskFailed
from perdure_gateway.context import DATASETS, Gateway, GatewayOf, Id
from perdure_gateway.problems import problem_from
from perdure_gateway.stored_files import stored_file

router = APIRouter()
# Enough for a person and for most data sets; the rest is one request away.
MAX_FINDINGS: Final = 1000
# About two epochs of a small training: when to ask again.
RETRY_AFTER_S: Final = 10


@router.get("/v1/tasks/{task_id}/result", response_model=None)
async def task_result(gateway: GatewayOf, task_id: Id) -> Response | dict[str, Any]:
    """200 with the model or the data set version; 409 while the task runs and when it failed; 422
    with the first findings when its data set was refused.
    """
    state = await gateway.task(task_id)
    if state.status is Status.SUCCEEDED:
        return {
            "task_id": task_id,
            "dataset_version": state.dataset_version,
            "model_id": state.model_id,
        }
    if not state.ended:
        told = f"task {task_id} has not ended: it is {state.status}"
        response = problem_from(Conflict(told, task_id=task_id))
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
        return response
    rejected = await _rejected(gateway, task_id)
    if rejected is None:
        why = state.failure.detail if state.failure else ""
        raise TaskFailed(
            f"task {task_id} has no result: {why or state.status}",
            task_id=task_id,
            status=state.status,
        )
    counts, first = await asyncio.to_thread(_first, gateway.store, rejected.findings.key)
    error = InvalidDataset(
        f"data set {rejected.name} was refused: {rejected.errors} errors; correct them (`perdure "
        f"dataset findings {task_id}` lists all), and push it again",
        task_id=task_id,
    )
    url = f"/v1/tasks/{task_id}/findings"
    return problem_from(error, counts=counts, findings=first, findings_url=url)


@router.get("/v1/tasks/{task_id}/findings")
async def task_findings(gateway: GatewayOf, task_id: Id) -> StreamingResponse:
    """All findings of the task's data set, as `perdure dataset check --json` prints them."""
    state = await gateway.task(task_id)
    blob = await _findings(gateway, state)
    if blob is None:
        raise NotFound(f"task {task_id} has no findings: its data set was not checked yet")
    return await stored_file(gateway, blob, "application/json")


async def _findings(gateway: Gateway, state: TaskState) -> dict[str, Any] | None:
    rejected = await _rejected(gateway, state.id)
    if rejected is not None:
        return dict(to_dict(rejected.findings))
    document = state.dataset_version and await gateway.document(DATASETS, state.dataset_version)
    return document.body.get("findings") if document else None


async def _rejected(gateway: Gateway, task_id: str) -> events_pb2.DatasetRejected | None:
    events = await gateway.log.read_stream(rejected_stream(task_id))
    data = events[-1].data if events else None
    return data if isinstance(data, events_pb2.DatasetRejected) else None


def _first(store: ObjectStore, key: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with store.open(key) as opened:
        head, findings = parse_lines(iter(opened.readline, b""))
        return head["counts"], list(islice(findings, MAX_FINDINGS))
