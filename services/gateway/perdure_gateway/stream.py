"""GET /v1/tasks/{id}/stream: a task as server-sent events.

`event` (id: version): a fact of the task's log. `task`: the whole task after new facts. `progress`:
telemetry. `end`: the task has ended, nothing follows. After a break, `Last-Event-ID` leaves out the
facts that were seen.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from perdure.domain.task import TaskState, task_stream, to_json
from perdure.domain.task_evolution import evolve
from perdure_gateway.context import Gateway, GatewayOf, Id
from perdure_gateway.wire import event_json

router = APIRouter()
KEEP_ALIVE: Final = ": keep-alive\n\n"


@router.get("/v1/tasks/{task_id}/stream")
async def stream_task(
    gateway: GatewayOf,
    task_id: Id,
    last_event_id: Annotated[str | None, Header(pattern=r"^\d{1,18}$")] = None,
) -> StreamingResponse:
    """The task's events from now on, or after `Last-Event-ID`; the task as it is comes first."""
    state = await gateway.task(task_id)
    seen = state.version if last_event_id is None else min(int(last_event_id), state.version)
    return StreamingResponse(
        _messages(gateway, task_id, seen),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _messages(gateway: Gateway, task_id: str, seen: int) -> AsyncIterator[str]:
    state: TaskState | None = None
    progress: dict[str, Any] | None = None
    clock = gateway.clock
    spoken_at = clock.monotonic()
    with gateway.live.watch(task_id) as wake:
        while True:
            # Cleared before reading: what comes in while we read wakes us again.
            wake.clear()
            text, state = await _news(gateway, task_id, state, seen)
            seen = max(seen, state.version)
            if state.ended:
                yield text + _message("end", {"status": state.status})
                return
            latest = gateway.live.progress(state)
            if latest is not None and latest != progress:
                progress = latest
                text += _message("progress", latest)
            if not text and clock.monotonic() - spoken_at >= gateway.settings.keep_alive_s:
                text = KEEP_ALIVE
            if text:
                spoken_at = clock.monotonic()
                yield text
            if gateway.live.closing:
                return
            await _pause(wake, gateway.settings.stream_poll_s)


async def _news(
    gateway: Gateway, task_id: str, state: TaskState | None, seen: int
) -> tuple[str, TaskState]:
    """Messages for the events above what `state` holds; those up to version `seen` only build the
    state.
    """
    from_version = 1 if state is None else state.version + 1
    events = await gateway.log.read_stream(task_stream(task_id), from_version=from_version)
    text = ""
    for event in events:
        state = evolve(state, event)
        if event.version > seen:
            text += _message("event", event_json(event), event_id=event.version)
    assert state is not None, "the route has seen the task's first event"
    if events:
        text += _message("task", to_json(state))
    return text, state


async def _pause(wake: asyncio.Event, timeout_s: float) -> None:
    try:
        await asyncio.wait_for(wake.wait(), timeout_s)
    except TimeoutError:
        return  # time to look into the log all the same


def _message(name: str, data: Any, *, event_id: int | None = None) -> str:
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
