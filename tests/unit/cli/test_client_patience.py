"""How long the client waits, for what, and what it says meanwhile."""

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from perdure.client import Client, connection, waiting
from perdure.client.connection import Connection
from perdure.errors import ForeignServer, LogUnavailable, ServerUnreachable
from tests.builders.command_line import CommandLine

URL = "http://127.0.0.1"
PROBLEM = {"type": "urn:perdure:problem:log.unavailable", "code": "log.unavailable", "detail": "x"}


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


class FakeTime:
    """A clock that only moves when somebody sleeps, or a server takes its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(connection, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Servers:
    """A transport behind which each request takes `takes_s` and ends as `answer` says."""

    def __init__(self, clock: FakeTime, takes_s: float, answer: httpx.Response | Exception) -> None:
        self.timeouts: list[dict[str, float]] = []
        self.transport = httpx.MockTransport(self._handle)
        self._clock, self._takes_s, self._answer = clock, takes_s, answer

    def _handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.timeouts.append(request.extensions["timeout"])
        self._clock.now_s += self._takes_s
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_a_server_that_hangs_is_asked_once_and_given_up_within_20_s(monkeypatch):
    clock = FakeTime(monkeypatch)
    servers = Servers(clock, 15, httpx.ReadTimeout("timed out"))
    with (
        Client(URL, transport=servers.transport) as client,
        pytest.raises(ServerUnreachable, match="silent for too long"),
    ):
        list(client.tasks())
    (timeout,) = servers.timeouts
    assert timeout["connect"] + timeout["read"] <= 20


@pytest.mark.parametrize(("takes_s", "tries"), [(0.0, 5), (8.0, 3), (20.0, 1)])
def test_all_tries_together_end_within_30_s(monkeypatch, takes_s, tries):
    clock = FakeTime(monkeypatch)
    answer = httpx.Response(503, json=PROBLEM, headers={"Retry-After": "1"})
    servers = Servers(clock, takes_s, answer)
    with (
        Client(URL, transport=servers.transport) as client,
        pytest.raises(LogUnavailable) as caught,
    ):
        list(client.tasks())
    assert clock.now_s <= 30
    assert len(servers.timeouts) == tries
    assert caught.value.details["retry_after_s"] == 1


def test_the_pause_is_as_long_as_the_server_asks_for_within_reason(monkeypatch):
    clock = FakeTime(monkeypatch)
    answer = httpx.Response(503, json=PROBLEM, headers={"Retry-After": "3600"})
    servers = Servers(clock, 0, answer)
    with Client(URL, transport=servers.transport) as client, pytest.raises(LogUnavailable):
        client.version()
    assert (clock.now_s, len(servers.timeouts)) == (30, 4)


@pytest.mark.parametrize("question", ["verify", "reconcile"])
def test_what_takes_long_begins_with_a_short_question(monkeypatch, question):
    clock = FakeTime(monkeypatch)
    servers = Servers(clock, 15, httpx.ReadTimeout("timed out"))
    with Client(URL, transport=servers.transport) as client, pytest.raises(ServerUnreachable):
        getattr(client, question)()
    assert [timeout["read"] for timeout in servers.timeouts] == [15]


def test_an_upload_begins_with_a_short_question(monkeypatch, tmp_path):
    (tmp_path / "birds.zip").write_bytes(b"zip")
    servers = Servers(FakeTime(monkeypatch), 15, httpx.ReadTimeout("timed out"))
    with Client(URL, transport=servers.transport) as client, pytest.raises(ServerUnreachable):
        client.upload(tmp_path / "birds.zip")
    assert [timeout["read"] for timeout in servers.timeouts] == [15]


def test_a_real_server_that_hangs_is_given_up(silent):
    heard: list[str] = []
    asking = Connection(silent, on_wait=heard.append)
    with pytest.raises(ServerUnreachable, match="silent for too long"):
        asking.request("GET", "/v1/version", reply_timeout_s=0.2)
    asking.close()
    assert heard == []


def test_what_speaks_no_http_is_no_perdure_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as speaker:
                speaker.recv(65536)
                speaker.sendall(b"-ERR unknown command\r\n\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with (
            Client(f"http://127.0.0.1:{listener.getsockname()[1]}") as client,
            pytest.raises(ForeignServer, match="does not speak HTTP"),
        ):
            client.version()
        thread.join(10)


def test_a_wait_is_told_once(silent, monkeypatch):
    monkeypatch.setattr(waiting, "NOTICE_AFTER_S", 0.05)
    heard: list[str] = []
    asking = Connection(silent, on_wait=heard.append)
    with pytest.raises(ServerUnreachable):
        asking.request("GET", "/v1/version", reply_timeout_s=0.5)
    asking.close()
    assert heard == [silent]


def test_as_long_as_an_upload_moves_nobody_waits(monkeypatch):
    class Timers:
        begun = 0

        def __init__(self, interval_s: float, function: object, arguments: object) -> None:
            type(self).begun += 1

        def start(self) -> None: ...
        def cancel(self) -> None: ...

    monkeypatch.setattr(waiting.threading, "Timer", Timers)
    ours = httpx.Response(201, json={}, headers={"Perdure-Version": "1"})
    servers = Servers(FakeTime(monkeypatch), 0, ours)
    asking = Connection(URL, servers.transport, on_wait=print)
    asking.request("POST", "/v1/uploads", content=lambda: iter([b"a", b"b", b"c"]))
    assert Timers.begun == 1 + 3  # anew after each piece


@pytest.fixture
def perdure(monkeypatch, capsys, silent):
    monkeypatch.setenv("PERDURE_URL", silent)
    monkeypatch.setattr(waiting, "NOTICE_AFTER_S", 0.05)
    request = Connection.request
    impatient = {"reply_timeout_s": 0.5}
    monkeypatch.setattr(Connection, "request", lambda *a, **k: request(*a, **{**k, **impatient}))
    return CommandLine(monkeypatch, capsys)


def test_a_command_says_that_it_waits_and_ends_with_3(perdure, silent):
    ran = perdure("task", "ls")
    assert (ran.code, ran.out) == (3, "")
    waits, ends = ran.err.splitlines()
    assert waits == f"still waiting for an answer from {silent}"
    assert ends.startswith("error: ")
    assert "PERDURE_URL" in ends


def test_programs_are_not_told_that_a_command_waits(perdure):
    ran = perdure("task", "ls", "--json")
    assert ran.code == 3
    assert json.loads(ran.out)["error"]["code"] == "server.unreachable"
    assert "still waiting" not in ran.err
