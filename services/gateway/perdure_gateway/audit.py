"""/v1/audit: what happened, straight from the log."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from perdure.domain.task import to_json
from perdure.errors import DamagedLog, NotFound
from perdure_gateway.answering import NEEDS_DATABASE
from perdure_gateway.context import GatewayOf, Id
from perdure_gateway.listing import MAX_POSITION
from perdure_gateway.problems import problem_from

router = APIRouter()


@router.get("/v1/audit/tasks/{task_id}")
async def replay_task(
    gateway: GatewayOf,
    task_id: Id,
    at_version: Annotated[int | None, Query(ge=1, le=MAX_POSITION)] = None,
) -> dict[str, Any]:
    """A task as it was after its first `at_version` events (all of them by default), replayed from
    the log.
    """
    state = await gateway.task(task_id, to_version=at_version)
    if at_version is not None and state.version != at_version:
        raise NotFound(
            f"task {task_id} has {state.version} events: there is no version {at_version}",
            task_id=task_id,
            versions=state.version,
        )
    return to_json(state)


@router.get("/v1/audit/verify", dependencies=[NEEDS_DATABASE])
async def verify(gateway: GatewayOf) -> Response:
    """Walk the whole log and check its order and its hash chain."""
    try:
        verified = await gateway.log.verify()
    except DamagedLog as damage:
        return problem_from(damage, complete=False)
    return JSONResponse(
        {"complete": True, "from": 1, "to": verified.events, "head": verified.head.hash}
    )
