"""Every answer says whose it is, and begins in time, also when the database or the store hangs."""

import asyncio

import httpx
import pytest

from perdure.errors import LogUnavailable
from perdure.runtime import health
from perdure_gateway import answering
from tests.builders.dead_letters import TASK
from tests.builders.gateway import World, digest_of, zip_bytes
from tests.builders.tasks import submission

STREAM = f"task-{TASK}"
ZIP = {"content-type": "application/zip"}


@pytest.fixture
def hurried(monkeypatch):
    """The time limits of this server, in twentieths of what they are."""
    assert answering.ANSWER_TIMEOUT_S + health.CHECK_TIMEOUT_S <= 12
    monkeypatch.setattr(answering, "ANSWER_TIMEOUT_S", answering.ANSWER_TIMEOUT_S / 20)
    monkeypatch.setattr(health, "CHECK_TIMEOUT_S", health.CHECK_TIMEOUT_S / 20)


@pytest.fixture
async def hanging_log(world: World, http, monkeypatch) -> list[str]:
    """From now on the log answers nothing. Gives the questions that were given up."""
    await world.append(STREAM, submission(task_id=TASK))
    assert (await http.get(f"/v1/tasks/{TASK}")).status_code == 200
    given_up: list[str] = []

    def silent(name: str):
        async def hang(*_arguments: object, **_named: object) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.append(name)

        return hang

    for name in ("head", "read_stream", "read_all", "append", "verify", "has_leader"):
        monkeypatch.setattr(world.log, name, silent(name))
    return given_up


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/tasks"),
        ("GET", f"/v1/tasks/{TASK}"),
        ("GET", f"/v1/tasks/{TASK}/events"),
        ("GET", f"/v1/tasks/{TASK}/logs"),
        ("GET", f"/v1/tasks/{TASK}/stream"),
        ("GET", "/v1/datasets"),
        ("GET", "/v1/models"),
        ("GET", f"/v1/audit/tasks/{TASK}"),
        ("GET", "/v1/audit/relay"),
        ("GET", "/v1/audit/dead-letters"),
        ("GET", "/healthz"),
        ("POST", f"/v1/tasks/{TASK}/cancel"),
        ("GET", "/v1/audit/verify"),
        ("GET", "/v1/audit/reconcile"),
        ("POST", "/v1/audit/dead-letters/m1/replay"),
    ],
)
async def test_while_the_database_hangs_each_route_answers_503(
    hanging_log, hurried, http, method, path
):
    async with asyncio.timeout(5):
        response = await http.request(method, path)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] in ("unavailable", "log.unavailable")
    assert "database" in response.json()["detail"]


async def test_what_a_given_up_route_waited_for_is_ended(hanging_log, hurried, http):
    before = len(hanging_log)
    assert (await http.get(f"/v1/audit/tasks/{TASK}")).status_code == 503
    assert "read_stream" in hanging_log[before:]


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/v1/uploads", {"content": zip_bytes(), "headers": ZIP}),
        ("PUT", f"/v1/blobs/{digest_of(b'image')}", {"content": b"image"}),
        ("POST", "/v1/blobs/missing", {"json": {"digests": []}}),
    ],
)
async def test_while_the_store_hangs_no_upload_is_begun(
    world, hurried, http, monkeypatch, method, path, content
):
    answers = asyncio.Event()
    stat, loop = world.store.stat, asyncio.get_running_loop()

    def hang(key: str):
        asyncio.run_coroutine_threadsafe(answers.wait(), loop).result(20)
        return stat(key)

    monkeypatch.setattr(world.store, "stat", hang)
    async with asyncio.timeout(5):
        refused = await http.request(method, path, **content)
    assert (refused.status_code, refused.json()["code"]) == (503, "store.unavailable")
    assert "the object store" in refused.json()["detail"]
    assert (await http.get("/v1/tasks")).status_code == 200  # which needs no store
    answers.set()
    monkeypatch.undo()


async def test_what_works_long_is_not_cut_off(world, hurried, http, monkeypatch):
    verify = world.log.verify

    async def slow():
        await asyncio.sleep(3 * answering.ANSWER_TIMEOUT_S)
        return await verify()

    monkeypatch.setattr(world.log, "verify", slow)
    assert (await http.get("/v1/audit/verify")).json()["complete"] is True
    assert (await http.get("/v1/audit/reconcile")).status_code == 200


async def test_an_answer_that_has_begun_is_not_cut_off(hurried, world):
    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(3 * answering.ANSWER_TIMEOUT_S)
        await send({"type": "http.response.body", "body": b"whole"})

    transport = httpx.ASGITransport(answering.Answering(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/")).content == b"whole"


async def test_every_answer_names_the_server(http):
    for path, status in (("/v1/version", 200), ("/v1/tasks/nothing", 404), ("/nowhere", 404)):
        response = await http.get(path)
        assert (response.status_code, "perdure-version" in response.headers) == (status, True)
    foreign = await http.get("/v1/version", headers={"host": "elsewhere"})
    assert (foreign.status_code, "perdure-version" in foreign.headers) == (400, True)


async def test_what_may_pass_says_when_to_come_again(world, http, monkeypatch):
    async def head():
        raise LogUnavailable("the event log's database does not answer")

    assert "retry-after" not in (await http.get("/v1/tasks/nothing")).headers
    monkeypatch.setattr(world.log, "head", head)
    response = await http.get("/v1/tasks")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


async def test_an_upload_again_mends_what_the_store_has_damaged(world, http):
    data = zip_bytes()
    first = await http.post("/v1/uploads", content=data, headers=ZIP)
    key = first.json()["key"]
    (blob,) = (path for path in (world.root / "store" / "data").rglob("*") if path.is_file())
    blob.chmod(0o644)
    blob.write_bytes(b"x" + data[1:])
    again = await http.post("/v1/uploads", content=data, headers=ZIP)
    assert again.json() == first.json()
    assert world.store.get_bytes(key, digest=digest_of(data)) == data
