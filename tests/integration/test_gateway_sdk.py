"""The SDK against a gateway on a real port."""

import asyncio
import re
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from perdure.client import Client, Task
from perdure.client.following import server_sent
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.errors import (
    AlreadyRunning,
    Conflict,
    DamagedLog,
    DamagedObject,
    ForeignServer,
    InvalidConfig,
    InvalidInput,
    InvalidSetting,
    NotFound,
    PerdureError,
    ServerUnreachable,
    TaskFailed,
)
from perdure_gateway.server import GatewayServer
from perdure_gateway.settings import GatewaySettings
from tests.builders.gateway import (
    VERSION,
    ServerThread,
    World,
    assigned,
    digest_of,
    epoch,
    prepared,
    published,
    trained,
    zip_bytes,
)

OURS = {"Perdure-Version": "1"}
FILES = {"model.onnx": b"onnx" * 100_000, "card.json": b'{"name": "birds"}'}


@pytest.fixture
def world(tmp_path):
    # Without looking into the log by themselves, event streams live on what wakes them.
    return World(tmp_path, GatewaySettings(stream_poll_s=60))


def until(condition, timeout_s=10.0):
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return value


def submitted(server, client) -> Task:
    server.run(server.world.import_dataset())
    until(lambda: list(client.datasets()))
    return client.submit(name="birds", dataset_version=VERSION, config={"epochs": 2})


def test_a_folder_is_pushed_and_a_task_follows_from_it(client, tmp_path, world):
    folder = tmp_path / "birds"
    folder.mkdir()
    (folder / "data.yaml").write_text("names: [wren]")
    sent = []
    task = client.push_dataset(
        folder, "birds", on_progress=lambda done, total: sent.append((done, total))
    )
    assert (task.goal, task.status, task.name) == ("dataset", "queued", "birds")
    upload = task.json["upload"]
    assert sent[-1] == (upload["size_bytes"], upload["size_bytes"])
    assert world.store.stat(upload["key"]).digest == upload["digest"]


def test_a_large_archive_arrives_whole(client, tmp_path, world):
    data = zip_bytes(big="x" * 5_000_000)
    archive = tmp_path / "birds.zip"
    archive.write_bytes(data)
    upload = client.upload(archive)
    assert upload == {
        "key": f"uploads/{digest_of(data)}.zip",
        "digest": digest_of(data),
        "size_bytes": len(data),
    }


def test_an_archive_above_the_limit_is_refused(tmp_path):
    world = World(tmp_path, GatewaySettings(max_upload_bytes=1_000_000))
    archive = tmp_path / "birds.zip"
    archive.write_bytes(zip_bytes(big="x" * 5_000_000))
    with (
        ServerThread(world) as server,
        Client(server.url) as client,
        pytest.raises(InvalidInput, match="larger than the 1000000 bytes"),
    ):
        client.upload(archive)


def test_errors_come_back_as_what_they_were(server, client, world):
    with pytest.raises(NotFound, match="0123456789abcdef"):
        client.task("0123456789abcdef")
    with pytest.raises(NotFound):
        client.task("..")
    with pytest.raises(InvalidInput):
        client.task("a\0b")
    task = submitted(server, client)
    with pytest.raises(InvalidConfig) as caught:
        client.submit(name="birds", dataset_version=VERSION, config={"epoch": 3})
    assert caught.value.details["problems"][0]["nearest"] == "epochs"
    client.cancel(task.id)
    with pytest.raises(Conflict):
        client.cancel(task.id)

    async def verify():
        raise DamagedLog("position 7 is wrong")

    world.log.verify = verify
    with pytest.raises(DamagedLog, match="position 7"):
        client.verify()


def test_a_replay_equals_the_task_and_the_log_verifies(server, client, world):
    task = submitted(server, client)
    assert client.replay(task.id).json == client.task(task.id).json
    assert client.replay(task.id, 1).version == 1
    verification = client.verify()
    assert (verification.first, verification.last) == (1, 2)
    assert verification.head == server.run(world.log.head()).hash


def test_ids_may_be_shortened_as_long_as_they_are_unique(server, client):
    tasks = [submitted(server, client) for _ in range(17)]  # of 17 ids two begin alike
    firsts = [task.id[0] for task in tasks]
    shared = next(first for first in firsts if firsts.count(first) > 1)
    assert client.find_task_id(tasks[0].id[:12]) == tasks[0].id
    assert client.find_task_id(tasks[0].id) == tasks[0].id
    with pytest.raises(InvalidInput, match="more than one task"):
        client.find_task_id(shared)
    with pytest.raises(NotFound):
        client.find_task_id("xyz")
    with pytest.raises(NotFound):
        client.find_task_id("")
    assert client.find_dataset_version("abab") == VERSION
    assert {task.id for task in client.tasks()} == {task.id for task in tasks}
    assert len(list(client.tasks(limit=3))) == 3


def test_lists_longer_than_a_page_come_whole(server, client):
    submitted(server, client)
    for _ in range(104):
        client.submit(name="birds", dataset_version=VERSION)
    assert len({task.id for task in client.tasks()}) == 105


class Watcher(threading.Thread):
    """Watches a task in a thread, and keeps what it saw."""

    def __init__(self, client: Client, task: Task, **options) -> None:
        super().__init__(daemon=True)
        self._updates = client.watch(task, **options)
        self.seen: list = []
        self.error: PerdureError | None = None
        self.start()

    def run(self) -> None:
        try:
            for update in self._updates:
                self.seen.append(update)
        except PerdureError as error:
            self.error = error

    def events(self) -> list[str]:
        return [update.event["type"] for update in self.seen if update.event]

    def end(self) -> None:
        self.join(20)
        assert not self.is_alive()


async def finish(world, task_id: str) -> None:
    await world.append(f"task-{task_id}", trained(2), assigned(3, "publish"))
    await world.append(
        f"task-{task_id}",
        published(3, "m1"),
        events_pb2.TaskSucceeded(dataset_version=VERSION, model_id="m1"),
    )


def test_a_watch_sees_every_event_and_the_telemetry_and_ends_with_the_task(server, client, world):
    task = submitted(server, client)
    watcher = Watcher(client, task)
    stream = f"task-{task.id}"
    server.run(world.append(stream, assigned(), prepared(), assigned(2, "train"), epoch(2, 1)))
    until(lambda: "EpochCompleted" in watcher.events())
    server.run(
        world.heartbeat(
            work_pb2.AttemptProgress(task_id=task.id, fence=2, phase="training", step=7)
        )
    )
    until(lambda: any(u.progress and u.progress["step"] == 7 for u in watcher.seen))
    server.run(world.append(stream, epoch(2, 2)))
    server.run(finish(world, task.id))
    watcher.end()
    assert watcher.error is None
    assert watcher.events() == [
        "AttemptAssigned",
        "AttemptSucceeded",
        "AttemptAssigned",
        "EpochCompleted",
        "EpochCompleted",
        "AttemptSucceeded",
        "AttemptAssigned",
        "AttemptSucceeded",
        "TaskSucceeded",
    ]
    assert watcher.seen[-1].task.json == client.task(task.id).json
    assert (watcher.seen[-1].task.status, watcher.seen[-1].task.model_id) == ("succeeded", "m1")


def test_a_watch_misses_no_event_that_the_bus_lost(tmp_path):
    world = World(tmp_path, GatewaySettings(stream_poll_s=0.05))
    with ServerThread(world) as server, Client(server.url) as client:
        task = submitted(server, client)
        watcher = Watcher(client, task)
        until(lambda: len(watcher.seen) == 2)  # the task as it was, and as the stream begins
        ended = events_pb2.TaskCancelled(detail="before it ran")
        server.run(world.append(f"task-{task.id}", ended, publish=False))
        watcher.end()
        assert watcher.events() == ["TaskCancelled"]


def test_a_watch_outlives_a_restart_and_misses_no_event(server, client, world):
    task = submitted(server, client)
    watcher = Watcher(client, task)
    server.run(world.append(f"task-{task.id}", assigned()))
    until(lambda: "AttemptAssigned" in watcher.events())
    port = server.port
    server.stop()
    server.run(world.append(f"task-{task.id}", prepared(), assigned(2, "train")))
    until(lambda: not watcher.seen[-1].connected)
    server.start(port)
    server.run(finish(world, task.id))
    watcher.end()
    assert watcher.error is None
    assert watcher.events() == [
        "AttemptAssigned",
        "AttemptSucceeded",
        "AttemptAssigned",
        "AttemptSucceeded",
        "AttemptAssigned",
        "AttemptSucceeded",
        "TaskSucceeded",
    ]


def test_a_watch_gives_up_when_the_server_stays_away(server, client):
    watcher = Watcher(client, submitted(server, client), max_outage_s=0.5)
    until(lambda: watcher.seen)
    server.stop()
    watcher.end()
    assert isinstance(watcher.error, ServerUnreachable)
    server.start()


def test_an_open_event_stream_does_not_hold_up_the_stop_of_the_server(server, client):
    watcher = Watcher(client, submitted(server, client), max_outage_s=0.1)
    until(lambda: watcher.seen)
    begun = time.monotonic()
    server.stop()
    # Without an end to the streams, the server's own limit for running requests (3 s) would pass.
    assert time.monotonic() - begun < 2
    server.start()


def test_logs_are_followed_until_the_task_ends(server, client, world):
    task = submitted(server, client)
    pieces: list[str] = []
    follower = threading.Thread(
        target=lambda: pieces.extend(client.follow_logs(task.id)), daemon=True
    )
    follower.start()
    world.store.put_bytes(f"logs/{task.id}/0001-prepare/{0:012d}.log", b"one\n")
    until(lambda: "one" in "".join(pieces))
    world.store.put_bytes(f"logs/{task.id}/0001-prepare/{4:012d}.log", b"two\n")
    client.cancel(task.id)
    follower.join(10)
    assert not follower.is_alive()
    assert "".join(pieces) == "==> attempt 1: prepare <==\none\ntwo\n"


def test_the_result_of_a_task_is_its_model(server, client, world):
    task = submitted(server, client)
    server.run(world.append(f"task-{task.id}", assigned(), prepared(), assigned(2, "train")))
    server.run(finish(world, task.id))
    server.run(world.register_model("m1", FILES))
    assert client.result(task.id).id == "m1"


def test_a_task_without_a_result_says_why(server, client, world):
    task = submitted(server, client)
    told = {"failure": "non_finite_loss", "detail": "NaN at step 3"}
    server.run(
        world.append(
            f"task-{task.id}",
            assigned(),
            events_pb2.AttemptFailed(fence=1, **told),
            events_pb2.TaskFailed(**told, advice="Lower lr0."),
        )
    )
    with pytest.raises(TaskFailed, match=r"non_finite_loss: NaN at step 3\nLower lr0\.") as caught:
        client.result(task.id)
    assert caught.value.details["failure"] == "non_finite_loss"
    cancelled = client.cancel(submitted(server, client).id)
    with pytest.raises(TaskFailed, match="was cancelled"):
        client.result(cancelled.id)
    assert client.wait(task.id).model_id == ""
    for fetch in (client.model, lambda model_id: client.pull_model(model_id, Path("out"))):
        with pytest.raises(NotFound, match="the task has no model"):
            fetch("")


def test_all_events_of_a_task_come_oldest_first(server, client, world):
    task = submitted(server, client)
    epochs = [epoch(2, number, epochs=600) for number in range(1, 601)]
    server.run(world.append(f"task-{task.id}", assigned(2, "train"), *epochs))
    assert [event["version"] for event in client.events(task.id)] == list(range(1, 603))


def test_a_model_is_pulled_checked_and_whole(server, client, world, tmp_path):
    server.run(world.register_model("m1", FILES))
    until(lambda: list(client.models()))
    out = tmp_path / "out" / "deep"
    paths = client.pull_model("m1", out)
    assert {path.name: path.read_bytes() for path in paths} == FILES
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert client.model_card("m1") == {"name": "birds"}
    assert client.pull_model("m1", out) == paths  # the same files again are no conflict
    (out / "model.onnx").write_bytes(b"somebody's work")
    with pytest.raises(Conflict, match=r"model\.onnx"):
        client.pull_model("m1", out)
    assert (out / "model.onnx").read_bytes() == b"somebody's work"


def test_damaged_bytes_leave_nothing_behind(server, client, world, tmp_path):
    server.run(world.register_model("m1", FILES))
    until(lambda: list(client.models()))
    world.store.put_bytes("models/m1/card.json", b'{"name": "bards"}')
    with pytest.raises(DamagedObject, match=r"card\.json"):
        client.pull_model("m1", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "..", "a/b", "/etc/passwd", ".hidden", "nul\0", ""])
def test_unsafe_file_names_are_refused_before_anything_is_fetched(name, tmp_path):
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/models/m1"
        files = [{"name": name, "digest": "0" * 64, "size_bytes": 1}]
        model = {"id": "m1", "status": "registered", "files": files}
        return httpx.Response(200, json=model, headers=OURS)

    with (
        Client("http://127.0.0.1", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(InvalidInput, match="unsafe name"),
    ):
        client.pull_model("m1", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_server_is_said_in_words_that_help(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(ServerUnreachable, match="base_url names it"),
    ):
        client.version()
    with Client("not a url") as client, pytest.raises(InvalidSetting):
        client.version()


@pytest.mark.parametrize(
    ("status", "headers", "body", "told"),
    [
        (404, {"content-type": "text/html"}, "<html>nginx", "404 with text/html"),
        (200, {"content-type": "text/html"}, "<html>nginx", "200 with text/html"),
        (200, {}, '{"tasks": 3}', "200"),
        (404, {"content-type": "application/json"}, '{"code": "x"}', "404 with application/json"),
        (302, {"location": "https://login"}, "", "302 and leads to https://login"),
        (200, {"content-encoding": "gzip"}, "no gzip", "no Perdure server"),
    ],
)
def test_something_else_on_the_port_is_no_perdure_server(status, headers, body, told):
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, stream=httpx.ByteStream(body.encode()), headers=headers)

    with (
        Client("http://127.0.0.1", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(ForeignServer, match=re.escape(told)) as caught,
    ):
        client.version()
    assert "is no Perdure server" in caught.value.message
    assert len(caught.value.message.splitlines()) == 1
    assert len(asked) == 1


def test_a_proxy_whose_server_is_away_is_asked_again():
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if len(asked) < 3:
            return httpx.Response(502, text="<html>Bad Gateway")
        return httpx.Response(200, json={"version": "1"}, headers=OURS)

    with Client("http://127.0.0.1", transport=httpx.MockTransport(answer)) as client:
        assert client.version() == "1"
    assert len(asked) == 3


def test_the_address_is_taken_from_variable_file_and_default_in_this_order(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_DATA_DIR", raising=False)
    monkeypatch.delenv("PERDURE_URL", raising=False)
    client = Client()
    assert client.url == "http://127.0.0.1:7412"
    file = Path(tmp_path, ".local/share/perdure/server.json")
    file.parent.mkdir(parents=True)
    file.write_text('{"url": "http://127.0.0.1:1234", "pid": 1}')
    assert client.url == "http://127.0.0.1:1234"
    file.write_text('{"url"')
    assert client.url == "http://127.0.0.1:7412"
    monkeypatch.setenv("PERDURE_URL", "http://127.0.0.1:5678/")
    assert client.url == "http://127.0.0.1:5678"


def flaky(failures: int, calls: list[str]) -> httpx.MockTransport:
    """A server that breaks off `failures` times before it answers."""

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request.headers.get("Idempotency-Key", ""))
        if len(calls) <= failures:
            raise httpx.ReadError("connection reset")
        return httpx.Response(200, json={"version": "1"}, headers=OURS)

    return httpx.MockTransport(answer)


def test_a_refused_connection_is_told_at_once():
    calls = []

    def refuse(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        raise httpx.ConnectError("refused")

    with (
        Client("http://127.0.0.1", transport=httpx.MockTransport(refuse)) as client,
        pytest.raises(ServerUnreachable),
    ):
        client.version()
    assert len(calls) == 1


def test_reading_is_tried_again_and_submitting_with_the_same_key():
    calls: list[str] = []
    with Client("http://127.0.0.1", transport=flaky(2, calls)) as client:
        assert client.version() == "1"
    assert len(calls) == 3
    calls.clear()
    with (
        Client("http://127.0.0.1", transport=flaky(1, calls)) as client,
        pytest.raises(KeyError),  # the stand-in answers with no task
    ):
        client.submit(name="birds", dataset_version=VERSION)
    assert len(calls) == 2
    assert calls[0] == calls[1] != ""


def test_a_stream_of_messages_is_read_line_by_line():
    lines = [
        ": hello",
        "",
        "id: 3",
        "event: task",
        "data: {",
        "data: }",
        "",
        "data:x",
        "",
        "event: lost",
    ]
    assert list(server_sent(iter(lines))) == [("task", "{\n}", "3"), ("message", "x", "3")]


def test_the_server_refuses_addresses_that_others_can_reach_and_ports_that_are_taken(world):
    for host in ("0.0.0.0", "10.0.0.1", "perdure.example"):
        with pytest.raises(InvalidSetting, match="loopback"):
            GatewayServer(world.app(), host=host)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AlreadyRunning, match=str(port)):
            asyncio.run(GatewayServer(world.app(), port=port).start())
