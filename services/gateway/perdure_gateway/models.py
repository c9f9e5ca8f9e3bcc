"""GET /v1/models: the registry, and the files of its models."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import StreamingResponse

from perdure.errors import NotFound
from perdure_gateway.context import MODELS, TASKS, Gateway, GatewayOf, Id
from perdure_gateway.listing import Before, Limit, Prefix, page
from perdure_gateway.stored_files import stored_file

router = APIRouter()
# What a registration says and a rejection does not: the task knows it.
_OF_THE_TASK: Final = ("name", "dataset_version", "config_hash")


@router.get("/v1/models")
async def list_models(
    gateway: GatewayOf, limit: Limit = 100, before: Before = None, prefix: Prefix = ""
) -> dict[str, Any]:
    """Models, rejected ones included, newest first."""
    documents, next_before = await page(gateway, MODELS, limit=limit, before=before, prefix=prefix)
    await gateway.settle(TASKS)
    models = [await _with_task(gateway, document.body) for document in documents]
    return {"models": models, "next_before": next_before}


async def _with_task(gateway: Gateway, body: dict[str, Any]) -> dict[str, Any]:
    """The model, with the name, data set and configuration of its task if it has none of its
    own.
    """
    if all(name in body for name in _OF_THE_TASK) or not body.get("task_id"):
        return body
    task = await gateway.read_models.get(TASKS, body["task_id"])
    return body if task is None else {name: task.body[name] for name in _OF_THE_TASK} | body


@router.get("/v1/models/{model_id}")
async def show_model(gateway: GatewayOf, model_id: Id) -> dict[str, Any]:
    """One model: what was established about it, and its files."""
    document = await gateway.document(MODELS, model_id)
    if document is None:
        raise NotFound(f"there is no model {model_id}", model_id=model_id)
    await gateway.settle(TASKS)
    return await _with_task(gateway, document.body)


@router.get("/v1/models/{model_id}/files/{name}")
async def model_file(gateway: GatewayOf, model_id: Id, name: str) -> StreamingResponse:
    """One of the files that the registry lists for the model. `Perdure-Digest` is its BLAKE3."""
    body = await show_model(gateway, model_id)
    for blob in body["files"]:
        if blob["name"] == name:
            return await stored_file(gateway, blob, again="train the model again")
    raise NotFound(f"model {model_id} has no file {name!r}", model_id=model_id)
