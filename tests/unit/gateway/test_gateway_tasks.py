import asyncio

import httpx
import pytest

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure_gateway.settings import GatewaySettings
from tests.builders.gateway import VERSION, World, assigned, epoch, prepared, published, trained


async def submitted(world: World, http, name="birds") -> str:
    await world.import_dataset()
    body = {"goal": "model", "name": name, "data": {"dataset_version": VERSION}}
    async with asyncio.timeout(5):
        while (response := await http.post("/v1/tasks", json=body)).status_code != 201:
            await asyncio.sleep(0.01)
    return response.json()["id"]


async def until_version(http, task_id: str, version: int) -> dict:
    async with asyncio.timeout(5):
        while (task := (await http.get(f"/v1/tasks/{task_id}")).json())["version"] != version:
            await asyncio.sleep(0.01)
    return task


async def test_a_read_sees_all_that_is_in_the_log(world, http, monkeypatch):
    task_id = await submitted(world, http)
    commit = world.read_models.commit

    async def slow_commit(*arguments, **named):
        await asyncio.sleep(0.05)
        return await commit(*arguments, **named)

    monkeypatch.setattr(world.read_models, "commit", slow_commit)
    await world.append(f"task-{task_id}", assigned(), prepared(), assigned(2, "train"))
    assert (await http.get(f"/v1/tasks/{task_id}")).json()["version"] == 4
    await world.append(f"task-{task_id}", epoch(2, 1))
    listed = (await http.get("/v1/tasks")).json()["tasks"]
    assert [(task["version"], task["epoch_count"]) for task in listed] == [(5, 1)]


async def test_a_projection_that_stands_still_delays_reads_a_bounded_time(tmp_path):
    world = World(tmp_path, GatewaySettings(projection_wait_s=0.05))
    transport = httpx.ASGITransport(world.app())  # its projectors do not run
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        await world.import_dataset()
        async with asyncio.timeout(2):
            assert (await http.get(f"/v1/datasets/{VERSION}")).status_code == 404


async def test_a_replay_is_the_task_and_its_past(world, http):
    task_id = await submitted(world, http)
    await world.append(f"task-{task_id}", assigned(), prepared())
    task = await until_version(http, task_id, 3)
    assert task["stage"] == "train"
    url = f"/v1/audit/tasks/{task_id}"
    assert (await http.get(url)).json() == task
    past = (await http.get(url, params={"at_version": 1})).json()
    assert (past["version"], past["stage"], past["attempts"]) == (1, "prepare", [])
    future = await http.get(url, params={"at_version": 4})
    assert future.status_code == 404
    assert "has 3 events" in future.json()["detail"]


async def test_a_waiting_task_is_cancelled_at_once_and_only_once(world, http):
    task_id = await submitted(world, http)
    first = await http.post(f"/v1/tasks/{task_id}/cancel")
    assert (first.status_code, first.json()["status"]) == (202, "cancelled")
    again = await http.post(f"/v1/tasks/{task_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_cancelling_twice_while_an_attempt_runs_is_one_request(world, http):
    task_id = await submitted(world, http)
    await world.append(f"task-{task_id}", assigned())
    answers = await asyncio.gather(*(http.post(f"/v1/tasks/{task_id}/cancel") for _ in range(5)))
    assert {(r.status_code, r.json()["status"]) for r in answers} == {(202, "cancelling")}
    events = (await http.get(f"/v1/tasks/{task_id}/events")).json()["events"]
    assert [e["type"] for e in events] == [
        "TaskSubmitted",
        "AttemptAssigned",
        "TaskCancelRequested",
    ]


async def test_lists_come_in_pages_newest_first(world, http):
    ids = [await submitted(world, http, f"birds {n}") for n in range(5)]
    ids.reverse()
    first = (await http.get("/v1/tasks", params={"limit": 2})).json()
    second = (
        await http.get("/v1/tasks", params={"limit": 2, "before": first["next_before"]})
    ).json()
    third = (
        await http.get("/v1/tasks", params={"limit": 2, "before": second["next_before"]})
    ).json()
    pages = [[task["id"] for task in page["tasks"]] for page in (first, second, third)]
    assert pages == [ids[:2], ids[2:4], ids[4:]]
    assert third["next_before"] is None
    assert "epochs" not in first["tasks"][0]


async def test_lists_are_filtered_by_status_and_by_the_beginning_of_the_id(world, http):
    one, other = await submitted(world, http), await submitted(world, http)
    await http.post(f"/v1/tasks/{one}/cancel")
    cancelled = (await http.get("/v1/tasks", params={"status": "cancelled"})).json()
    assert [task["id"] for task in cancelled["tasks"]] == [one]
    by_prefix = (await http.get("/v1/tasks", params={"prefix": other[:6]})).json()
    assert [task["id"] for task in by_prefix["tasks"]] == [other]
    assert (await http.get("/v1/tasks", params={"status": "bored"})).status_code == 422


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/v1/tasks/0123456789abcdef", 404),
        ("/v1/tasks/0123456789abcdef/logs", 404),
        ("/v1/tasks/0123456789abcdef/events", 404),
        ("/v1/tasks/0123456789abcdef/stream", 404),
        ("/v1/tasks/0123456789abcdef/progress", 404),
        ("/v1/audit/tasks/0123456789abcdef", 404),
        ("/v1/datasets/0123456789abcdef", 404),
        ("/v1/models/0123456789abcdef", 404),
        ("/v1/models/0123456789abcdef/files/model.onnx", 404),
        ("/v1/tasks/a%2Fb", 404),
        ("/v1/tasks/..%2F..%2Fetc%2Fpasswd", 404),
        ("/v1/tasks/%00", 422),
        ("/v1/tasks/a%00b/logs", 422),
        ("/v1/tasks/" + "a" * 200, 422),
        ("/v1/datasets/%ff", 422),
        ("/v1/models/%2e%2e%2e", 422),
        ("/v1/tasks?limit=0", 422),
        ("/v1/tasks?limit=501", 422),
        ("/v1/tasks?before=-1", 422),
        ("/v1/tasks?before=99999999999999999999999", 422),
        ("/v1/tasks?limit=x", 422),
        ("/v1/tasks/0123456789abcdef/logs?offset=-1", 422),
        ("/v1/tasks/0123456789abcdef/logs?limit=-5", 422),
        ("/v1/tasks/0123456789abcdef/events?after=9223372036854775807", 422),
        ("/v1/audit/tasks/0123456789abcdef?at_version=0", 422),
        ("/v1/audit/tasks/0123456789abcdef?at_version=9223372036854775807", 422),
    ],
)
async def test_bad_ids_and_numbers_are_refused(http, url, status):
    response = await http.get(url)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in response.text


async def test_a_cancel_of_an_unknown_task_is_not_found(http):
    assert (await http.post("/v1/tasks/0123456789abcdef/cancel")).status_code == 404


async def test_events_come_as_they_are_recorded_and_in_pages(world, http):
    task_id = await submitted(world, http)
    await world.append(f"task-{task_id}", assigned(), prepared())
    page = (await http.get(f"/v1/tasks/{task_id}/events", params={"limit": 2})).json()
    assert [(e["version"], e["type"]) for e in page["events"]] == [
        (1, "TaskSubmitted"),
        (2, "AttemptAssigned"),
    ]
    assert page["events"][1]["data"] == {
        "stage": "prepare",
        "fence": 1,
        "worker_id": "worker-1",
        "incarnation": "i1",
    }
    rest = (
        await http.get(f"/v1/tasks/{task_id}/events", params={"after": page["next_after"]})
    ).json()
    assert [e["version"] for e in rest["events"]] == [3]
    assert rest["next_after"] is None


async def test_telemetry_is_shown_beside_the_task_until_the_attempt_ends(world, http):
    task_id = await submitted(world, http)
    url = f"/v1/tasks/{task_id}/progress"
    assert (await http.get(url)).json() == {"task_id": task_id, "progress": None}
    await world.append(f"task-{task_id}", assigned())
    await world.heartbeat(
        work_pb2.AttemptProgress(
            task_id=task_id, fence=1, phase="checking", memory_bytes=5_000_000_000
        )
    )
    async with asyncio.timeout(5):
        while (progress := (await http.get(url)).json()["progress"]) is None:
            await asyncio.sleep(0.01)
    assert (progress["phase"], progress["memory_bytes"], progress["worker_id"]) == (
        "checking",
        5_000_000_000,
        "worker-1",
    )
    await world.append(f"task-{task_id}", prepared(), assigned(2, "train"))
    assert (await http.get(url)).json()["progress"] is None
    # One that was on its way says nothing about the attempt that came after it.
    late = work_pb2.AttemptProgress(task_id=task_id, fence=1, phase="late")
    other = work_pb2.AttemptProgress(task_id="other", fence=1)
    await world.heartbeat(late, other)
    assert await world.bus.settled(5)
    assert (await http.get(url)).json()["progress"] is None


async def test_a_stream_of_an_ended_task_tells_it_all_and_ends(world, http):
    task_id = await submitted(world, http)
    await world.append(
        f"task-{task_id}",
        assigned(1),
        prepared(1),
        assigned(2, "train"),
        epoch(2, 1),
        trained(2),
        assigned(3, "publish"),
        published(3, "m1"),
        events_pb2.TaskSucceeded(dataset_version=VERSION, model_id="m1"),
    )
    async with asyncio.timeout(5):
        response = await http.get(f"/v1/tasks/{task_id}/stream", headers={"Last-Event-ID": "4"})
    assert response.headers["content-type"].startswith("text/event-stream")
    messages = [block.split("\n") for block in response.text.strip().split("\n\n")]
    names = [next(line[7:] for line in block if line.startswith("event: ")) for block in messages]
    ids = [line[4:] for block in messages for line in block if line.startswith("id: ")]
    assert ids == ["5", "6", "7", "8", "9"]
    assert names == ["event"] * 5 + ["task", "end"]
