import asyncio

import httpx

from perdure.contracts.v1 import events_pb2
from perdure.errors import DamagedLog
from perdure.eventlog.port import Head, Verified
from perdure_gateway.settings import GatewaySettings
from tests.builders.gateway import VERSION, World, dataset_imported, digest_of

FILES = {"model.onnx": b"onnx" * 100_000, "card.json": b'{"name": "birds"}'}


async def seen(http, url):
    async with asyncio.timeout(5):
        while (response := await http.get(url)).status_code != 200:
            await asyncio.sleep(0.01)
    return response.json()


async def test_data_sets_are_listed_with_their_facts(world, http):
    await world.import_dataset()
    await world.import_dataset("cc" * 32)
    dataset = await seen(http, f"/v1/datasets/{'cc' * 32}")
    assert dataset["classes"] == ["wren", "robin"]
    assert dataset["manifest"]["size_bytes"] == 5_000_000_000
    listed = (await http.get("/v1/datasets")).json()["datasets"]
    assert [d["version"] for d in listed] == ["cc" * 32, VERSION]
    by_prefix = (await http.get("/v1/datasets", params={"prefix": "abab"})).json()["datasets"]
    assert [d["version"] for d in by_prefix] == [VERSION]


async def test_a_data_set_that_is_imported_again_keeps_its_first_name(world, http):
    await world.import_dataset()
    again = dataset_imported()
    again.name = "crows"
    await world.append(f"dataset-{VERSION}", again)
    assert (await http.get(f"/v1/datasets/{VERSION}")).json()["name"] == "birds"
    assert len((await http.get("/v1/datasets")).json()["datasets"]) == 1


async def test_a_projection_that_failed_is_told_by_the_health_check_and_not_waited_for(tmp_path):
    world = World(tmp_path, GatewaySettings(projection_wait_s=60))
    app = world.app()
    transport = httpx.ASGITransport(app)
    async with (
        asyncio.timeout(20),
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        # No task begins with anything but its submission.
        await world.append("task-broken", events_pb2.TaskCancelRequested())
        while (health := await http.get("/healthz")).status_code == 200:
            await asyncio.sleep(0.01)
        assert health.status_code == 500
        assert "tasks" in health.json()["detail"]
        assert (await http.get("/v1/tasks")).status_code == 200
        assert (await http.get("/v1/audit/verify")).json()["complete"] is True


async def test_a_registered_model_shows_what_was_established_and_gives_its_files(world, http):
    await world.register_model("m1", FILES)
    model = await seen(http, "/v1/models/m1")
    assert (model["id"], model["status"], model["map50"], model["task_id"]) == (
        "m1",
        "registered",
        0.75,
        "t1",
    )
    assert model["export"]["opset"] == 17
    assert model["parity"]["max_box_difference_px"] == 0.01
    assert [f["name"] for f in model["files"]] == ["model.onnx", "card.json"]
    file = await http.get("/v1/models/m1/files/model.onnx")
    assert file.content == FILES["model.onnx"]
    assert file.headers["perdure-digest"] == digest_of(FILES["model.onnx"])
    assert file.headers["content-length"] == str(len(FILES["model.onnx"]))


async def test_only_listed_files_are_given_out(world, http):
    await world.register_model("m1", FILES)
    await seen(http, "/v1/models/m1")
    world.store.put_bytes("models/m1/secret.txt", b"secret")
    for name in ("secret.txt", "..%2Fm1%2Fmodel.onnx", "%2e%2e", "model.onnx%00", "MODEL.ONNX"):
        response = await http.get(f"/v1/models/m1/files/{name}")
        assert response.status_code in (404, 422), name
        assert b"onnxonnx" not in response.content


async def test_a_rejected_model_says_why_and_has_no_files(world, http):
    await world.append(
        "model-m2",
        events_pb2.ModelEvaluated(images=2, map50=0.1),
        events_pb2.ModelRejected(
            model_id="m2", task_id="t1", failure="below_gate", detail="0.1 < 0.5"
        ),
    )
    model = await seen(http, "/v1/models/m2")
    assert (model["status"], model["failure"], model["files"]) == ("rejected", "below_gate", [])
    assert [m["id"] for m in (await http.get("/v1/models")).json()["models"]] == ["m2"]


async def test_a_rejected_model_is_named_after_its_task(world, http):
    await world.import_dataset()
    await seen(http, f"/v1/datasets/{VERSION}")
    body = {"goal": "model", "name": "crows", "data": {"dataset_version": VERSION}}
    task = (await http.post("/v1/tasks", json=body)).json()
    await world.append(
        "model-m2",
        events_pb2.ModelExported(model_id="m2", task_id=task["id"], opset=17),
        events_pb2.ModelRejected(model_id="m2", task_id=task["id"], failure="export_mismatch"),
    )
    await world.register_model("m1", FILES, task_id=task["id"])
    model = (await http.get("/v1/models/m2")).json()
    assert (model["name"], model["dataset_version"], model["config_hash"]) == (
        "crows",
        task["dataset_version"],
        task["config_hash"],
    )
    listed = {model["id"]: model for model in (await http.get("/v1/models")).json()["models"]}
    assert listed["m2"] == model
    assert listed["m1"]["name"] == "birds"  # what its registration says


async def test_verify_says_how_far_the_log_is_complete(world, http):
    await world.import_dataset()
    head = await world.log.head()
    assert (await http.get("/v1/audit/verify")).json() == {
        "complete": True,
        "from": 1,
        "to": 1,
        "head": head.hash,
    }


async def test_verify_of_a_damaged_log_says_so(world, http, monkeypatch):
    async def verify() -> Verified:
        raise DamagedLog("position 7: the hash does not follow", position=7)

    monkeypatch.setattr(world.log, "verify", verify)
    response = await http.get("/v1/audit/verify")
    body = response.json()
    assert (response.status_code, body["code"], body["complete"]) == (500, "log.damaged", False)
    assert body["details"] == {"position": 7}


async def test_a_fault_inside_the_server_shows_no_traceback(world, http, monkeypatch):
    async def head() -> Head:
        raise RuntimeError("the secret name of a table")

    monkeypatch.setattr(world.log, "head", head)
    http._transport.raise_app_exceptions = False
    response = await http.get("/healthz")
    assert (response.status_code, response.json()["code"]) == (500, "perdure.error")
    assert "secret" not in response.text
