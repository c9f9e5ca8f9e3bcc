"""Following a task: server-sent events, polling when they break, patience with restarts."""

import json
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import httpx

from perdure.client.connection import Connection
from perdure.client.problems import form_of
from perdure.client.records import Task, Update
from perdure.errors import NotFound, Unavailable

# The server speaks at least every 15 s; three silences in a row mean that the line is dead.
SILENCE_S: Final = 45.0
RECONNECT_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)
# How long a server may be away. A restart takes seconds; a node that boots takes a minute or two.
MAX_OUTAGE_S: Final = 300.0


def server_sent(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    """Messages (event, data, id) of an event stream, from its lines. Comments are passed over."""
    event, event_id = "message", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield event, "\n".join(data), event_id
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                event = value
            case "data":
                data.append(value)
            case "id":
                event_id = value


def watch(
    connection: Connection, task: Task, *, max_outage_s: float = MAX_OUTAGE_S
) -> Iterator[Update]:
    """Updates of `task` until it has ended. The first one is the task as it is.

    Raises ServerUnreachable when the server stays away for `max_outage_s`.
    """
    last_event_id = str(task.version)
    failures = 0
    connected = True
    answered_at = time.monotonic()
    yield Update(task)
    while not task.ended:
        try:
            for update, event_id in _stream(connection, task, last_event_id):
                failures, answered_at, connected = 0, time.monotonic(), True
                last_event_id = event_id or last_event_id
                task = update.task
                yield update
                if task.ended:
                    return
            # The stream can end early (the server stops, a proxy cuts it): ask before coming back.
            task, changed = _poll(connection, task)
            answered_at, connected = time.monotonic(), True
            if changed:
                yield Update(task)
        except (Unavailable, NotFound):  # not found: another server answers at this address
            if time.monotonic() - answered_at > max_outage_s:
                raise
            if connected:
                connected = False
                yield Update(task, connected=False)
        time.sleep(RECONNECT_DELAYS_S[min(failures, len(RECONNECT_DELAYS_S) - 1)])
        failures += 1


def _poll(connection: Connection, task: Task) -> tuple[Task, bool]:
    path = f"/v1/tasks/{quote(task.id, safe='')}"
    newer = Task.of(form_of(connection.request("GET", path)))
    return (newer, True) if newer.version > task.version else (task, False)


def _stream(connection: Connection, task: Task, last_event_id: str) -> Iterator[tuple[Update, str]]:
    path = f"/v1/tasks/{quote(task.id, safe='')}/stream"
    headers = {"Accept": "text/event-stream", "Last-Event-ID": last_event_id}
    with connection.stream(path, headers=headers, silence_s=SILENCE_S) as response:
        for event, data, event_id in server_sent(_lines(response)):
            form: Any = json.loads(data)
            match event:
                case "task":
                    task = Task.of(form)
                    yield Update(task), event_id
                case "progress":
                    yield Update(task, progress=form), event_id
                case "event":
                    yield Update(task, event=form), event_id


def _lines(response: httpx.Response) -> Iterator[str]:
    """The body's lines. httpx's own also break at characters that JSON strings may hold."""
    rest = ""
    for text in response.iter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line.removesuffix("\r")
