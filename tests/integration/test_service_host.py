"""How a service's process behaves towards whoever started it. It needs no server."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from infra.stack.ports import free_port

END_S = 30.0
START = "exec " + sys.executable + " -m tests.children.service "


class Child:
    """tests/children/service.py as a process of one `kind`."""

    def __init__(self, folder: Path, script: str, *prefix: str, **settings: str) -> None:
        self.output = folder / "log"
        self.port = free_port()
        environment = {
            "PATH": os.environ["PATH"],
            "PERDURE_BUS_URL": "amqp://u:p@127.0.0.1:1/",
            "PERDURE_HEALTH_PORT": str(self.port),
            **settings,
        }
        with self.output.open("ab") as sink:
            self.process = subprocess.Popen(
                [*prefix, "sh", "-c", script], env=environment, stderr=sink, stdout=sink
            )

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.output.read_text().splitlines()]

    def said(self, start: str) -> None:
        """Wait until a line of the log begins so."""
        wait_for(lambda: any(line["message"].startswith(start) for line in self.lines()))

    def alive(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/healthz"
            return httpx.get(url, trust_env=False).status_code == 200
        except httpx.ConnectError:
            return False

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(END_S)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + END_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {END_S} s"
        time.sleep(0.02)


Start = Callable[..., Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a child, and ends it with the test."""
    started: list[Child] = []

    def begin(script: str, *prefix: str, **settings: str) -> Child:
        started.append(Child(tmp_path, script, *prefix, **settings))
        return started[-1]

    yield begin
    for child in started:
        if child.process.poll() is None:
            family = psutil.Process(child.process.pid).children(recursive=True)
            for process in (*family, child.process):
                process.kill()
            child.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_service_in_order(start: Start, number: signal.Signals) -> None:
    child = start(START + "obeys")
    child.said("runs")
    child.send(number)
    assert child.end() == 0
    assert [line["message"] for line in child.lines()][-2:] == [
        "stops: it brings to an end what it does, within 10 s",
        "stopped",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(("kind", "word"), [("takes_its_time", "stops"), ("blocks", "blocks")])
def test_a_second_signal_ends_it_at_once(
    start: Start, kind: str, word: str, number: signal.Signals, code: int
) -> None:
    child = start(START + kind, PERDURE_DRAIN_S="600")
    child.said("runs")
    child.send(signal.SIGTERM)
    child.said(word)
    child.send(number)
    assert child.end() == code


def test_a_service_that_does_not_come_to_an_end_is_cut_off(start: Start) -> None:
    child = start(START + "takes_its_time", PERDURE_DRAIN_S="0.3")
    child.said("runs")
    began = time.monotonic()
    child.send(signal.SIGTERM)
    assert child.end() == 1
    assert time.monotonic() - began < 5
    last = child.lines()[-1]
    assert last["level"] == "critical"
    assert "PERDURE_DRAIN_S" in last["message"]


def test_a_service_that_waits_for_a_server_can_be_stopped(start: Start) -> None:
    child = start(START + "waits")
    child.said("waits for PERDURE_LOG_URL")
    assert child.alive()
    child.send(signal.SIGTERM)
    assert child.end() == 0
    assert [line["message"] for line in child.lines()][-2:] == ["closed", "stopped"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fails", "failed: ZeroDivisionError: division by zero"),
        ("ends", "the service ended though nobody told it to"),
    ],
)
def test_a_service_that_fails_ends_with_1_and_says_why(
    start: Start, kind: str, message: str
) -> None:
    child = start(START + kind)
    assert child.end() == 1
    last = child.lines()[-1]
    assert (last["level"], last["message"]) == ("critical", message)
    assert ("Traceback" in last.get("exception", "")) is (kind == "fails")


def refusal(child: Child) -> str:
    """The plain line, behind its log, of a service that ends because of a setting."""
    assert child.end() == 2
    *before, last = child.output.read_text().splitlines()
    assert all(json.loads(line)["level"] == "info" for line in before)
    assert last.startswith("error: PERDURE_")
    return last.removeprefix("error: ")


def test_a_port_or_an_address_that_cannot_be_had_is_a_wrong_setting(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = refusal(start(START + "obeys", PERDURE_HEALTH_PORT=port))
    assert message.startswith(f"PERDURE_HEALTH_PORT: cannot listen on 127.0.0.1:{port}: Address al")


def test_a_wrong_setting_is_an_exit_code_also_where_nobody_reads(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert start(START + "obeys 2>&-", PERDURE_HEALTH_PORT=port).end() == 2


@pytest.mark.parametrize(
    "wrong", [{"OTEL_METRIC_EXPORT_INTERVAL": "-1"}, {"OTEL_BSP_MAX_QUEUE_SIZE": "0"}]
)
def test_what_opentelemetry_refuses_is_a_wrong_setting(start: Start, wrong: dict[str, str]) -> None:
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    child = start(START + "obeys", **collector, **wrong)
    assert child.end() == 2
    last = child.output.read_text().splitlines()[-1]
    assert last.startswith("error: a variable OTEL_... is wrong: ")


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "fe80::1%none"])
def test_an_address_that_this_machine_does_not_have_is_a_wrong_setting(
    start: Start, host: str
) -> None:
    message = refusal(start(START + "obeys", PERDURE_HEALTH_HOST=host))
    assert message.startswith("PERDURE_HEALTH_HOST: cannot listen on ")


def test_missing_keys_to_a_store_are_a_wrong_setting(start: Start) -> None:
    message = refusal(start(START + "obeys", PERDURE_STORE_URL="s3+http://127.0.0.1:1/bucket"))
    assert message.startswith("PERDURE_STORE_URL: ")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set" in message


def test_a_bucket_that_cannot_be_one_is_a_wrong_setting(start: Start) -> None:
    message = refusal(start(START + "obeys", PERDURE_STORE_URL="s3+http://127.0.0.1:1/No_bucket"))
    assert message.startswith("PERDURE_STORE_URL: the URL of the object store is wrong: its bucket")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "Not a directory"),
        ("file/below", "Not a directory"),
        ("loop", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("work-is-a-file", "work cannot be used: Not a directory"),
    ],
)
def test_a_folder_that_cannot_be_used_is_a_wrong_setting(
    start: Start, tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "work-is-a-file").mkdir()
    (tmp_path / "work-is-a-file" / "work").symlink_to(tmp_path / "file")
    message = refusal(start(START + "obeys", PERDURE_DATA_DIR=str(tmp_path / name)))
    assert message.startswith("PERDURE_DATA_DIR: ")
    assert reason in message


@pytest.mark.parametrize("folder", ["/proc/none", "/proc", "/sys"])
def test_a_folder_on_a_disk_that_takes_nothing_is_a_wrong_setting(
    start: Start, folder: str
) -> None:
    message = refusal(start(START + "obeys", PERDURE_DATA_DIR=folder))
    assert message.startswith("PERDURE_DATA_DIR: ")


def test_a_folder_without_rights_is_a_wrong_setting(start: Start, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    account = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
    child = start(START + "obeys", *account, PERDURE_DATA_DIR=str(tmp_path / "data"))
    assert "data cannot be used: Permission denied" in refusal(child)


def test_a_folder_that_another_process_holds_is_a_wrong_setting(
    start: Start, tmp_path: Path
) -> None:
    folder = str(tmp_path / "data")
    first = start(START + "obeys", PERDURE_DATA_DIR=folder)
    first.said("runs")
    first.output.rename(tmp_path / "log of the first")
    message = refusal(start(START + "obeys", PERDURE_DATA_DIR=folder))
    assert message.startswith("PERDURE_DATA_DIR: ")
    assert f"pid {first.process.pid} holds {folder}" in message


def test_a_service_in_the_background_leaves_ctrl_c_to_others(start: Start) -> None:
    child = start("trap '' INT; " + START + "obeys")
    child.said("runs")
    child.send(signal.SIGINT)
    child.send(signal.SIGINT)
    assert child.alive()
    child.send(signal.SIGTERM)
    assert child.end() == 0


def test_closed_standard_streams_do_not_become_connections(start: Start) -> None:
    child = start(START + "obeys <&- >&- 2>&-")
    wait_for(child.alive)
    descriptors = Path(f"/proc/{child.process.pid}/fd")
    assert [str((descriptors / n).readlink()) for n in "012"] == ["/dev/null"] * 3
    child.send(signal.SIGTERM)
    assert child.end() == 0


def _can_unshare() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command).returncode == 0


@pytest.mark.skipif(not _can_unshare(), reason="needs the right to make a PID namespace")
class TestAsTheFirstProcessOfAContainer:
    """`unshare --pid --fork` makes its child PID 1 of a namespace, as a container engine does."""

    UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")

    def first(self, child: Child) -> psutil.Process:
        wait_for(lambda: psutil.Process(child.process.pid).children())
        return psutil.Process(child.process.pid).children()[0]

    def test_orphans_do_not_stay_as_zombies(self, start: Start) -> None:
        child = start(START + "leaves_orphans", *self.UNSHARE)
        child.said("left")
        first = self.first(child)
        wait_for(lambda: len(first.children(recursive=True)) == 1)
        first.send_signal(signal.SIGTERM)
        assert child.end() == 0

    def test_signals_and_exit_codes_are_passed_on(self, start: Start) -> None:
        child = start(START + "takes_its_time", *self.UNSHARE, PERDURE_DRAIN_S="600")
        child.said("runs")
        first = self.first(child)
        first.send_signal(signal.SIGTERM)
        child.said("stops")
        first.send_signal(signal.SIGTERM)
        assert child.end() == 143

    def test_a_service_that_is_killed_ends_the_container(self, start: Start) -> None:
        child = start(START + "obeys", *self.UNSHARE)
        child.said("runs")
        (service,) = self.first(child).children()
        service.kill()
        assert child.end() == 137
