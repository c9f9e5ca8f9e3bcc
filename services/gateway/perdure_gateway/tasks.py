"""/v1/tasks: submit, look at and cancel tasks."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Response

from perdure.contracts.v1 import events_pb2
from perdure.crash_points import reached
from perdure.domain.task import Status, TaskState, task_stream, to_json
from perdure.domain.task_decisions import RequestCancel, Submit, decide
from perdure.domain.task_evolution import replay
from perdure.errors import Conflict, EventIdReused, VersionConflict
from perdure_gateway.context import TASKS, Gateway, GatewayOf, Id
from perdure_gateway.listing import MAX_POSITION, Before, Limit, Prefix, page
from perdure_gateway.submission import Submission, task_id_for, to_event
from perdure_gateway.wire import event_json

router = APIRouter()
# Until there are users, everybody who reaches the loopback interface is this one.
LOCAL_USER: Final = "local"
# Each conflict means that another writer got on; a task has few writers.
MAX_CANCEL_TRIES: Final = 10
# What is left out of lists: it grows with the length of a training.
_LONG_FIELDS: Final = ("attempts", "epochs", "checkpoints", "config", "stale_reports")

IdempotencyKey = Annotated[str | None, Header(min_length=8, max_length=200, pattern=r"^[!-~]+$")]


@router.post("/v1/tasks", status_code=201)
async def submit(
    submission: Submission,
    gateway: GatewayOf,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Submit a task. The same `Idempotency-Key` again gives the same task, with 200."""
    task_id = gateway.new_id() if idempotency_key is None else task_id_for(idempotency_key)
    existing = await _submitted(gateway, task_id)
    if existing is None:
        event = await to_event(gateway, submission, task_id, LOCAL_USER)
        try:
            recorded = await gateway.append(
                task_id,
                expected_version=0,
                cause=f"submission:{task_id}",
                events=decide(None, Submit(event)),
            )
        except (VersionConflict, EventIdReused):
            # The same key came in twice at one time, and the other request was first.
            existing = await _submitted(gateway, task_id)
            if existing is None:
                raise
        else:
            reached("gateway.appended")
            state = replay(list(recorded))
            assert state is not None
            return to_json(state)
    await _check_same(gateway, submission, existing)
    response.status_code = 200
    return to_json(await gateway.task(task_id))


async def _submitted(gateway: Gateway, task_id: str) -> events_pb2.TaskSubmitted | None:
    events = await gateway.log.read_stream(task_stream(task_id), to_version=1)
    if not events:
        return None
    data = events[0].data
    assert isinstance(data, events_pb2.TaskSubmitted)
    return data


async def _check_same(
    gateway: Gateway, submission: Submission, existing: events_pb2.TaskSubmitted
) -> None:
    again = await to_event(gateway, submission, existing.task_id, existing.submitted_by)
    if again != existing:
        raise Conflict(
            "this Idempotency-Key was used for another submission: take a new key",
            task_id=existing.task_id,
        )


@router.get("/v1/tasks")
async def list_tasks(
    gateway: GatewayOf,
    limit: Limit = 100,
    before: Before = None,
    status: Annotated[Status | None, Query()] = None,
    prefix: Prefix = "",
) -> dict[str, Any]:
    """Tasks, newest first, without their long fields. `before` is the `next_before` of the page
    before.
    """
    where = {} if status is None else {"status": status.value}
    documents, next_before = await page(
        gateway, TASKS, limit=limit, before=before, prefix=prefix, where=where
    )
    return {
        "tasks": [_summary(document.body) for document in documents],
        "next_before": next_before,
    }


def _summary(body: dict[str, Any]) -> dict[str, Any]:
    summary = {name: value for name, value in body.items() if name not in _LONG_FIELDS}
    attempts = body["attempts"]
    return {
        **summary,
        "attempt_count": len(attempts),
        # A stage's first attempt repeats nothing.
        "retry_count": len(attempts) - len({attempt["stage"] for attempt in attempts}),
        "epoch_count": len(body["epochs"]),
    }


@router.get("/v1/tasks/{task_id}")
async def show_task(gateway: GatewayOf, task_id: Id) -> dict[str, Any]:
    """One task."""
    document = await gateway.document(TASKS, task_id)
    # A task that its projection has not reached yet is in the log all the same.
    return to_json(await gateway.task(task_id)) if document is None else document.body


@router.post("/v1/tasks/{task_id}/cancel", status_code=202)
async def cancel_task(gateway: GatewayOf, task_id: Id) -> dict[str, Any]:
    """Ask for the task to be stopped. Answers 409 when it has ended."""
    state = await gateway.task(task_id)
    cause = f"cancel:{gateway.new_id()}"
    for _ in range(MAX_CANCEL_TRIES):
        events = decide(state, RequestCancel(LOCAL_USER))
        if not events:
            return to_json(state)
        try:
            await gateway.append(
                task_id, expected_version=state.version, cause=cause, events=events
            )
        except VersionConflict:
            state = await gateway.task(task_id)
            continue
        return to_json(await gateway.task(task_id))
    raise Conflict(f"task {task_id} changes too fast to be cancelled: try again", task_id=task_id)


@router.get("/v1/tasks/{task_id}/progress")
async def task_progress(gateway: GatewayOf, task_id: Id) -> dict[str, Any]:
    """The latest telemetry of the task's attempt. It is not part of the task's state, and may be
    missing.
    """
    state = await gateway.task(task_id)
    return {"task_id": task_id, "progress": gateway.live.progress(state)}


@router.get("/v1/tasks/{task_id}/events")
async def task_events(
    gateway: GatewayOf,
    task_id: Id,
    after: Annotated[int, Query(ge=0, le=MAX_POSITION)] = 0,
    limit: Limit = 100,
) -> dict[str, Any]:
    """The task's events above version `after`, as they stand in the log."""
    state: TaskState = await gateway.task(task_id)
    events = await gateway.log.read_stream(
        task_stream(task_id), from_version=after + 1, to_version=after + limit
    )
    last = events[-1].version if events else after
    return {
        "events": [event_json(event) for event in events],
        "next_after": last if last < state.version else None,
    }
