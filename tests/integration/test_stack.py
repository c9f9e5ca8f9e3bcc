"""`make stack`: the whole way on real servers and processes, an orderly end, and a sudden one."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.stack.notes import Notes
from infra.stack.stack import SERVICES, Stack
from perdure.client import Client
from perdure.errors import AlreadyRunning, InvalidSetting, Unavailable
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.processes import lives
from tests.builders.services import Services

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.timeout(290)]

SOON_S = 10.0
START_S = 120.0
STOP_S = 60.0
TASK_S = 150.0
# Killed, RabbitMQ 3.10 never again finds a leader for a quorum queue that it has only just made.
QUEUES_SETTLE_S = 3.0
GONE_S = 15.0
SERVERS = ("postgres", "rabbitmq", "seaweedfs")


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=32, size_px=64)


class Launcher:
    """`python -m infra.stack` as a process of its own, and what it prints."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.stack", "--data-dir", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def said(self, pattern: str, timeout_s: float = START_S) -> re.Match[str]:
        """Wait for a line."""
        until(
            lambda: (
                re.search(pattern, self.output, re.MULTILINE) is not None
                or self.process.poll() is not None
            ),
            timeout_s,
            self.output,
        )
        match = re.search(pattern, self.output, re.MULTILINE)
        assert match, self.output
        return match

    def pid(self, name: str) -> int:
        return int(self.said(rf"^{name} .* pid (\d+) +log ")[1])

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[[], Launcher]]:
    """Starts launchers on one folder; killed with the test."""
    started: list[Launcher] = []

    def start() -> Launcher:
        started.append(Launcher(tmp_path / "stack"))
        return started[-1]

    yield start
    for launcher in started:
        launcher.kill()


def until(condition: Callable[[], bool], timeout_s: float, detail: object = "") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, detail
        time.sleep(0.05)


def left(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if lives(p)]


def environment(pid: int | None) -> dict[str, str]:
    return psutil.Process(pid).environ()


def test_a_training_ends_in_a_model_and_ctrl_c_leaves_nothing(
    birds: Path, launch: Callable[[], Launcher], tmp_path: Path
) -> None:
    launcher = launch()
    launcher.said(r"^\d\d:\d\d:\d\d starting postgres, rabbitmq, seaweedfs \.\.\.$", SOON_S)
    url = launcher.said(r"^ +export PERDURE_URL=(\S+)$")[1]
    assert launcher.said(r"^API (\S+)")[1] == url
    health = launcher.said(r"^gateway +health (\S+) ")[1]
    assert httpx.get(f"{health}/readyz").status_code == 200
    for name in (*SERVERS, *SERVICES):
        launcher.said(rf"^\d\d:\d\d:\d\d {name} is ready$")
        log = Path(launcher.said(rf"^{name} .* log (\S+)$")[1])
        assert stat.filemode(log.stat().st_mode) == "-rw-------" or name == "postgres"
    assert {launcher.pid(name) for name in (*SERVERS, *SERVICES)} <= {
        p.pid for p in launcher.family()
    }
    listening = {
        place.laddr.ip
        for process in launcher.family()
        for place in process.net_connections("inet")
        if place.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::1"}

    with pytest.raises(AlreadyRunning, match=f"pid {launcher.process.pid} holds"):
        Stack(tmp_path / "stack").start()

    with Client(url) as client:
        os.kill(launcher.pid("relay"), signal.SIGKILL)
        config = {"epochs": 2, "imgsz": 64, "batch": 8, "workers": 0, "mosaic": 0.0}
        task = client.submit(name="birds", upload=client.upload(birds), config=config)
        model = client.result(task.id)
        assert model.status == "registered"
        assert client.verify().first == 1
        assert client.replay(task.id).json == client.task(task.id).json
    launcher.said(r"^\d\d:\d\d:\d\d relay was killed by SIGKILL: it is started again in \d+ s$")
    launcher.said(rf"^    its log: {tmp_path}/stack/logs/relay\.log$")
    launcher.said(r'^    which ends: {.*"service": "relay"')
    launcher.said(r"^\d\d:\d\d:\d\d relay is started again, pid \d+$")

    family = launcher.family()
    os.kill(launcher.process.pid, signal.SIGINT)
    assert launcher.process.wait(STOP_S) == 0, launcher.output
    assert left(family) == []
    launcher.said(r" stopping data-prep, trainer-agent, publisher \.\.\.$")
    launcher.said(r" stopped; ")
    assert "error" not in launcher.output


def test_a_killed_launcher_leaves_nothing_and_the_next_start_goes_on(
    birds: Path, launch: Callable[[], Launcher]
) -> None:
    launcher = launch()
    url = launcher.said(r"export PERDURE_URL=(\S+)")[1]
    time.sleep(QUEUES_SETTLE_S)
    with Client(url) as client:
        task = client.push_dataset(birds, "birds")
    family = launcher.family()
    launcher.kill()
    until(lambda: left(family) == [], GONE_S, family)

    again = launch()
    with Client(again.said(r"export PERDURE_URL=(\S+)")[1]) as client:
        until(lambda: client.task(task.id).ended, TASK_S)
        assert client.task(task.id).status == "succeeded"
        assert client.verify().first == 1


def test_a_service_gets_what_it_needs_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "1")
    monkeypatch.setenv("PERDURE_LOG_URL", "postgresql://somebody@elsewhere/else")
    with Stack(tmp_path / "stack", services=("relay", "data-prep")) as stack:
        relay = environment(stack.services["relay"].pid)
        worker = environment(stack.services["data-prep"].pid)
        assert "A_SECRET_OF_THE_CALLER" not in relay | worker
        assert relay["PERDURE_LOG_URL"] == stack.postgres.url
        assert "PERDURE_LOG_URL" not in worker
        assert "AWS_SECRET_ACCESS_KEY" not in relay
        assert worker["AWS_SECRET_ACCESS_KEY"]
        assert worker["PERDURE_STORE_URL"] == stack.seaweedfs.url
        secret = tmp_path / "stack/notes.json"
        assert secret.stat().st_mode & 0o777 == 0o600
        assert worker["AWS_SECRET_ACCESS_KEY"] in secret.read_text()


def test_services_are_killed_armed_doubled_and_cut_off(birds: Path, tmp_path: Path) -> None:
    proxied = {"relay": ("bus",), "relay-2": ("log", "bus")}
    with Services(tmp_path / "stack", services=("gateway", "relay"), proxied=proxied) as services:
        relay = services.services["relay"]
        bus = services.proxy("relay", "bus")
        assert bus.connections > 0
        assert f":{bus.port}/" in environment(relay.pid)["PERDURE_BUS_URL"]

        bus.black_hole()
        until(lambda: not relay.is_ready(), START_S)
        bus.restore()
        until(relay.is_ready, START_S)

        second = services.add("relay", instance=2)
        second.start()
        second.await_ready()
        assert second.pid != relay.pid
        assert services.proxy("relay-2", "log").connections > 0
        assert second.stop() == 0

        services.arm("relay", "relay.read")
        services.client.push_dataset(birds, "birds")
        services.await_crash("relay")
        services.restart("relay")
        assert "PERDURE_CRASH_AT" not in environment(relay.pid)
        started = list(services.services.values())
    assert {service.label: service.exit_code for service in started} == {
        "gateway": 0,
        "relay": 0,
        "relay-2": 0,
    }


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    wrong = {"relay": {"PERDURE_LOG_LEVEL": "loud"}}
    stack = Stack(tmp_path / "stack", services=("relay",), environment=wrong)
    with pytest.raises(Unavailable, match=r"relay ended with 2.*\n.*PERDURE_LOG_LEVEL is 'loud'"):
        stack.start()
    assert stack.postgres.pid is None
    assert stack.rabbitmq.pid is None
    assert stack.seaweedfs.pid is None


def test_ports_and_secrets_stay_and_a_taken_port_is_replaced(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    port, secret = notes.port("a"), notes.secret("s")
    assert (notes.port("a"), notes.secret("s")) == (port, secret)
    assert notes.secret("t") != secret

    assert (Notes(tmp_path).port("a"), Notes(tmp_path).secret("s")) == (port, secret)
    with socket.create_server(("127.0.0.1", port)):
        assert Notes(tmp_path).port("a") != port
    (tmp_path / "notes.json").write_text("{")
    with pytest.raises(InvalidSetting, match="is damaged"):
        Notes(tmp_path)
