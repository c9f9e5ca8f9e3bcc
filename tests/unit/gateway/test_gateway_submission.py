import asyncio

import pytest

from tests.builders.gateway import VERSION, digest_of, zip_bytes


async def uploaded(http) -> dict:
    response = await http.post(
        "/v1/uploads", content=zip_bytes(), headers={"Content-Type": "application/zip"}
    )
    assert response.status_code == 201, response.text
    return response.json()


def submission(**changes) -> dict:
    body = {
        "goal": "model",
        "name": "birds",
        "data": {"dataset_version": VERSION},
        "config": {"epochs": "3"},
    }
    return {**body, **changes}


async def test_an_upload_is_stored_under_its_digest(world, http):
    data = zip_bytes()
    response = await http.post(
        "/v1/uploads", content=data, headers={"Content-Type": "application/zip"}
    )
    digest = digest_of(data)
    assert response.status_code == 201
    assert response.json() == {
        "key": f"uploads/{digest}.zip",
        "digest": digest,
        "size_bytes": len(data),
    }
    assert world.store.get_bytes(f"uploads/{digest}.zip") == data


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (zip_bytes(), {"Content-Type": "text/plain"}, 415, "input.media-type"),
        (zip_bytes(), {}, 415, "input.media-type"),
        (b"not a zip", {"Content-Type": "application/zip"}, 400, "input.invalid"),
        (b"", {"Content-Type": "application/zip"}, 400, "input.invalid"),
        (zip_bytes()[:-8], {"Content-Type": "application/zip"}, 400, "input.invalid"),
        (
            zip_bytes(),
            {"Content-Type": "application/zip", "Perdure-Digest": "0" * 64},
            400,
            "input.invalid",
        ),
        (
            zip_bytes(),
            {"Content-Type": "application/zip", "Perdure-Digest": "zz"},
            422,
            "request.invalid",
        ),
    ],
)
async def test_a_bad_upload_is_refused_and_not_stored(world, http, content, headers, status, code):
    response = await http.post("/v1/uploads", content=content, headers=headers)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert list(world.store.list("uploads/")) == []


async def test_a_task_on_an_upload_is_submitted_with_its_whole_configuration(world, http):
    upload = await uploaded(http)
    response = await http.post(
        "/v1/tasks", json=submission(data={"upload": upload}, gate={"min_map50": 0.5})
    )
    task = response.json()
    assert response.status_code == 201, task
    assert (task["status"], task["stage"], task["version"]) == ("queued", "prepare", 1)
    assert task["upload"] == upload
    assert task["config"]["epochs"] == 3
    assert task["config"]["imgsz"] == 320
    assert task["min_map50"] == 0.5
    assert len(task["config_hash"]) == 64
    # Read at once, the projection has it.
    assert (await http.get(f"/v1/tasks/{task['id']}")).json() == task
    assert [t["id"] for t in (await http.get("/v1/tasks")).json()["tasks"]] == [task["id"]]


async def test_a_task_on_a_version_takes_the_data_sets_name(world, http):
    await world.import_dataset()
    await seen(http, f"/v1/datasets/{VERSION}")
    task = (await http.post("/v1/tasks", json=submission())).json()
    assert (task["dataset_version"], task["data_name"]) == (VERSION, "birds")


async def seen(http, url, status=200):
    async with asyncio.timeout(5):
        while (response := await http.get(url)).status_code != status:
            await asyncio.sleep(0.01)
    return response


async def test_all_problems_of_a_configuration_are_listed(http):
    upload = await uploaded(http)
    config = {"epoch": "3", "batch": "many", "model": "yolo11q.yaml"}
    response = await http.post("/v1/tasks", json=submission(data={"upload": upload}, config=config))
    assert (response.status_code, response.json()["code"]) == (422, "config.invalid")
    problems = {p["key"]: p["nearest"] for p in response.json()["details"]["problems"]}
    assert problems.keys() == {"epoch", "batch", "model"}
    assert problems["epoch"] == "epochs"
    assert (await http.get("/v1/tasks")).json()["tasks"] == []


async def test_what_does_not_exist_is_not_trained_on(http):
    unknown = await http.post("/v1/tasks", json=submission())
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")
    upload = {"key": f"uploads/{'a' * 64}.zip", "digest": "a" * 64, "size_bytes": 3}
    missing = await http.post("/v1/tasks", json=submission(data={"upload": upload}))
    assert (missing.status_code, missing.json()["code"]) == (404, "not-found")
    known = {**await uploaded(http), "size_bytes": 1}
    wrong = await http.post("/v1/tasks", json=submission(data={"upload": known}))
    assert (wrong.status_code, wrong.json()["code"]) == (400, "input.invalid")


@pytest.mark.parametrize(
    "change",
    [
        {"goal": "world peace"},
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "nul\x00"},
        {"name": "\ud800"},
        {"name": "x" * 201},
        {"name": 3},
        {"data": {}},
        {
            "data": {
                "dataset_version": VERSION,
                "upload": {"key": "x", "digest": "x", "size_bytes": 1},
            }
        },
        {"data": {"dataset_version": "../../etc"}},
        {"data": {"upload": {"key": "models/m/model.onnx", "digest": "a" * 64, "size_bytes": 1}}},
        {"gate": {"min_map50": 1.5}},
        {"gate": {"min_map50": float("nan")}},
        {"config": []},
        {"config": {"lr0": float("nan")}},
        {"config": {"model": "a\x00b"}},
        {"surprise": 1},
    ],
)
async def test_a_submission_of_the_wrong_form_is_refused(world, http, change):
    import json

    await world.import_dataset()
    await seen(http, f"/v1/datasets/{VERSION}")
    body = json.dumps(submission(**change))
    response = await http.post(
        "/v1/tasks", content=body, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"]
    assert (await world.log.head()).position == 1


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b'{"goal":', "application/json", 422),
        (b"\xff\xfe", "application/json", 422),
        (b"[" * 100_000, "application/json", 400),
        (b"null", "application/json", 422),
        (b"", "application/json", 422),
        (b"goal=model", "application/x-www-form-urlencoded", 422),
        (b'{"goal": "model"}', "text/plain", 422),
    ],
)
async def test_a_body_that_is_not_json_is_refused(http, content, content_type, status):
    response = await http.post("/v1/tasks", content=content, headers={"Content-Type": content_type})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_huge_body_is_refused_whether_or_not_it_says_so(http):
    async def chunks():
        for _ in range(40):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    announced = await http.post("/v1/tasks", content=b" " * 2_000_000, headers=headers)
    chunked = await http.post("/v1/tasks", content=chunks(), headers=headers)
    for response in (announced, chunked):
        assert (response.status_code, response.json()["code"]) == (413, "input.too-large")


async def test_the_same_key_gives_the_same_task(http):
    body = submission(data={"upload": await uploaded(http)})
    key = {"Idempotency-Key": "a-key-of-mine"}
    first = await http.post("/v1/tasks", json=body, headers=key)
    again = await http.post("/v1/tasks", json=body, headers=key)
    other_key = await http.post("/v1/tasks", json=body, headers={"Idempotency-Key": "another-key"})
    other = await http.post("/v1/tasks", json={**body, "name": "crows"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert other_key.json()["id"] != first.json()["id"]
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert other.json()["details"]["task_id"] == first.json()["id"]


async def test_the_same_key_ten_times_at_once_gives_one_task(world, http):
    body = submission(data={"upload": await uploaded(http)})
    key = {"Idempotency-Key": "at-the-same-time"}
    responses = await asyncio.gather(
        *(http.post("/v1/tasks", json=body, headers=key) for _ in range(10))
    )
    assert sorted(r.status_code for r in responses) == [200] * 9 + [201]
    assert len({r.json()["id"] for r in responses}) == 1
    assert (await world.log.head()).position == 1


async def test_a_data_set_is_imported_without_a_configuration(http):
    data = {"upload": await uploaded(http)}
    good = await http.post("/v1/tasks", json={"goal": "dataset", "name": "birds", "data": data})
    bad = await http.post("/v1/tasks", json=submission(goal="dataset", data=data))
    assert (good.status_code, good.json()["config"]) == (201, None)
    assert bad.status_code == 400
