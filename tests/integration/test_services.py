"""Services as processes of their own, with real servers behind them."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from infra.stack.ports import free_port
from infra.stack.processes import ServiceProcess
from infra.stack.stack import SERVICES, Stack
from perdure.client import Client
from perdure_embedded.birds import draw_bird_dataset

CONFIG = {"epochs": 50, "imgsz": 64, "batch": 8, "seed": 3, "workers": 0, "mosaic": 0.0}
DATA_PLANE = ("data-prep", "trainer-agent", "publisher")
# What each service's /readyz asks.
CHECKS = {
    "gateway": {"database", "broker", "store", "projections"},
    "scheduler": {"database", "broker", "leadership"},
    "relay": {"database", "broker", "leadership"},
    "data-prep": {"broker", "store"},
    "trainer-agent": {"broker", "store"},
    "publisher": {"broker", "store"},
}
QUEUES = {
    "scheduler": {"scheduler.reports", "scheduler.heartbeats", "dead-letters"},
    "data-prep": {"work.data-prep"},
    "trainer-agent": {"work.trainer-agent"},
    "publisher": {"work.publisher"},
}
SECRET = "hunter2"
END_S = 60.0
RECOVERY_S = 60.0
TRAIN_S = 180.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def wait_for(condition: Callable[[], object], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.05)


def told(service: ServiceProcess, page: str) -> httpx.Response:
    return httpx.get(f"{service.health_url}/{page}", timeout=10, trust_env=False)


def lines(service: ServiceProcess) -> list[dict]:
    return [json.loads(line) for line in service.output.read_text().splitlines()]


def given(stack: Stack, name: str) -> dict[str, str]:
    """The environment of a service of the stack, for another one beside it."""
    return stack.services[name].environment | {"PERDURE_HEALTH_PORT": str(free_port())}


def another(tmp_path: Path, name: str, environment: dict[str, str], **extra: str) -> ServiceProcess:
    environment = environment | extra
    port = int(environment.get("PERDURE_HEALTH_PORT", "0"))
    output = tmp_path / "another.log"
    return ServiceProcess(
        name, f"another {name}", environment=environment, health_port=port, output=output
    )


def refused(service: ServiceProcess) -> str:
    """The plain line, behind its log, of a service that ends because of a setting."""
    service.start()
    assert service.await_end(END_S) == 2, service.last_lines()
    *before, last = service.output.read_text().splitlines()
    assert all(json.loads(line)["level"] in ("info", "warning") for line in before)
    assert last.startswith("error: ")
    return last.removeprefix("error: ")


@pytest.mark.parametrize("name", SERVICES)
def test_without_settings_a_service_says_in_one_line_what_is_missing(
    name: str, tmp_path: Path
) -> None:
    service = another(tmp_path, name, {})
    service.start()
    assert service.await_end(END_S) == 2
    (line,) = service.output.read_text().splitlines()
    missing = set(re.findall(r"(PERDURE_\w+) is missing", line))
    assert missing == {f"PERDURE_{link.upper()}_URL" for link in SERVICES[name].links}


@pytest.mark.parametrize("name", SERVICES)
def test_a_wrong_address_is_told_in_one_line_without_its_password(
    name: str, tmp_path: Path
) -> None:
    wrong = {
        "PERDURE_LOG_URL": f"mysql://perdure:{SECRET}@db/perdure",
        "PERDURE_BUS_URL": f"amqp://perdure:{SECRET}@mq:http/",
        "PERDURE_STORE_URL": f"s3+http://key:{SECRET}@s3:8333/perdure",
    }
    service = another(tmp_path, name, wrong)
    service.start()
    assert service.await_end(END_S) == 2
    (line,) = service.output.read_text().splitlines()
    assert SECRET not in line
    for link in SERVICES[name].links:
        assert f"PERDURE_{link.upper()}_URL is '" in line


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_loads_only_what_its_plane_has(name: str) -> None:
    foreign = ("asyncpg", "fastapi") if name in DATA_PLANE else ("torch", "onnxruntime")
    code = (
        f"import sys, perdure_{name.replace('-', '_')}.service;"
        f"print([module for module in {foreign} if module in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_all_services_are_ready_and_say_what_they_have_asked(stack: Stack) -> None:
    for name, service in stack.services.items():
        ready, alive = told(service, "readyz"), told(service, "healthz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["checks"].keys() == CHECKS[name]
        assert (alive.status_code, alive.json()["status"]) == (200, "ok")
        assert alive.json()["service"] == name
        consumed = ready.json()["checks"]["broker"]["detail"]
        for queue in QUEUES.get(name, ()):
            assert f"1 at {queue}" in consumed
        assert "process_max_fds" in told(service, "metrics").text
    public = httpx.get(f"{stack.url}/readyz", trust_env=False)
    assert (public.status_code, public.json()["checks"].keys()) == (200, CHECKS["gateway"])


def test_the_data_plane_runs_without_a_database(stack: Stack) -> None:
    for name in DATA_PLANE:
        assert "PERDURE_LOG_URL" not in stack.services[name].environment
        assert stack.services[name].pid is not None


def test_the_log_is_json_lines_that_name_the_service_and_no_password(stack: Stack) -> None:
    secrets = [stack.postgres.url, stack.rabbitmq.url]
    passwords = [re.search(r":([^:@]+)@", url)[1] for url in secrets]
    passwords += stack.seaweedfs.environment.values()
    for name, service in stack.services.items():
        told_lines = lines(service)
        assert {line["service"] for line in told_lines} == {name}
        assert {"time", "level", "logger", "message"} <= told_lines[0].keys()
        assert {line["logger"].partition(".")[0] for line in told_lines} >= {"perdure"}
        text = service.output.read_text()
        assert not any(password in text for password in passwords)
        assert "***" in text


def test_a_second_scheduler_and_relay_stand_by_and_are_ready(stack: Stack, tmp_path: Path) -> None:
    for name in ("scheduler", "relay"):
        second = another(tmp_path, name, given(stack, name))
        second.start()
        try:
            second.await_ready()
            assert told(second, "readyz").json()["state"] == "standby"
            assert told(stack.services[name], "readyz").json()["state"] == "leading"
        finally:
            assert second.stop() == 0


def test_two_workers_never_share_a_folder(stack: Stack, tmp_path: Path) -> None:
    second = another(
        tmp_path, "data-prep", given(stack, "data-prep"), PERDURE_WORKER_ID="data-prep-2"
    )
    message = refused(second)
    assert message.startswith("PERDURE_DATA_DIR: ")
    assert f"pid {stack.services['data-prep'].pid} holds" in message


def test_a_worker_clears_away_what_a_killed_one_has_left(stack: Stack) -> None:
    service = stack.services["publisher"]
    left = Path(service.environment["PERDURE_DATA_DIR"]) / "work" / "t1" / "0001-publish"
    kept = Path(service.environment["PERDURE_DATA_DIR"]) / "cache" / "kept"
    service.kill()
    left.mkdir(parents=True)
    kept.mkdir(parents=True)
    service.start()
    service.await_ready()
    assert not left.exists()
    assert kept.exists()


def test_a_wrong_password_or_database_ends_the_start(stack: Stack, tmp_path: Path) -> None:
    right = stack.postgres.url
    wrong_password = re.sub(r":[^:@]+@", f":{SECRET}@", right)
    wrong_database = re.sub(r"/[^/?]*(\?|$)", r"/nowhere\1", right)
    for url, reason in ((wrong_password, "password"), (wrong_database, "nowhere")):
        service = another(tmp_path, "relay", given(stack, "relay"), PERDURE_LOG_URL=url)
        message = refused(service)
        assert message.startswith("PERDURE_LOG_URL: ")
        assert reason in message
        assert SECRET not in service.output.read_text()
        service.output.unlink()


def test_what_the_broker_refuses_ends_the_start(stack: Stack, tmp_path: Path) -> None:
    right = stack.rabbitmq.url
    wrong_password = re.sub(r":[^:@]+@", f":{SECRET}@", right)
    for url, reason in ((wrong_password, "ACCESS_REFUSED"), (right + "nowhere", "nowhere")):
        service = another(tmp_path, "relay", given(stack, "relay"), PERDURE_BUS_URL=url)
        message = refused(service)
        assert message.startswith("PERDURE_BUS_URL: ")
        assert reason in message
        assert SECRET not in service.output.read_text()
        service.output.unlink()


def test_wrong_keys_to_the_store_end_the_start(stack: Stack, tmp_path: Path) -> None:
    environment = given(stack, "data-prep") | {"PERDURE_DATA_DIR": str(tmp_path / "data")}
    service = another(tmp_path, "data-prep", environment, AWS_SECRET_ACCESS_KEY=SECRET)
    assert refused(service).startswith("PERDURE_STORE_URL: ")
    assert SECRET not in service.output.read_text()


def test_a_port_that_is_taken_ends_the_start(stack: Stack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        relay = another(tmp_path, "relay", given(stack, "relay"), PERDURE_HEALTH_PORT=port)
        message = refused(relay)
        assert message.startswith(f"PERDURE_HEALTH_PORT: cannot listen on 127.0.0.1:{port}")
        relay.output.unlink()
        environment = given(stack, "gateway") | {"PERDURE_DATA_DIR": str(tmp_path / "data")}
        gateway = another(tmp_path, "gateway", environment, PERDURE_HTTP_PORT=port)
        message = refused(gateway)
        assert message.startswith(f"PERDURE_HTTP_PORT: cannot listen on 127.0.0.1:{port}")


def test_while_servers_are_away_services_live_wait_and_come_back(
    stack: Stack, tmp_path: Path
) -> None:
    started_without = another(tmp_path, "relay", given(stack, "relay"))
    stack.postgres.stop()
    stack.rabbitmq.stop()
    try:
        started_without.start()
        wait_for(lambda: "waits for" in started_without.last_lines(), END_S)
        answer = told(started_without, "readyz")
        assert (answer.status_code, answer.json()["state"]) == (503, "starting")
        assert "PERDURE_LOG_URL" in answer.json()["checks"]
        assert told(started_without, "healthz").status_code == 200
        for name, service in stack.services.items():
            answer = told(service, "readyz")
            assert answer.status_code == 503
            failed = {n for n, check in answer.json()["checks"].items() if not check["ok"]}
            assert failed == CHECKS[name] & {"database", "broker"}
            assert told(service, "healthz").status_code == 200
        away = [line for line in lines(started_without) if "waits for" in line["message"]]
        assert len(away) <= 2  # and not one for each try
    finally:
        stack.postgres.start()
        stack.rabbitmq.start()
    for service in (*stack.services.values(), started_without):
        service.await_ready(RECOVERY_S)
    assert started_without.stop() == 0


def test_every_service_ends_with_0_when_it_is_told_to(stack: Stack) -> None:
    for service in stack.services.values():
        service.terminate()
    codes = {name: service.await_end(END_S) for name, service in stack.services.items()}
    assert codes == dict.fromkeys(SERVICES, 0)
    for service in stack.services.values():
        last = lines(service)[-1]
        assert (last["level"], last["message"]) == ("info", "stopped")
        service.start()
    for service in stack.services.values():
        service.await_ready()


@pytest.mark.slow
def test_a_drained_agent_leaves_a_checkpoint_from_which_the_next_start_goes_on(
    stack: Stack, tmp_path: Path
) -> None:
    data = draw_bird_dataset(tmp_path / "birds", images=16, size_px=64)
    agent = stack.services["trainer-agent"]
    with Client(stack.url) as client:
        task = client.submit(name="birds", upload=client.upload(data), config=CONFIG)
        wait_for(lambda: client.task(task.id).json["checkpoints"], TRAIN_S)

        assert agent.stop() == 0
        wait_for(lambda: client.task(task.id).json["attempts"][-1]["outcome"] == "failed", 30)
        stopped = client.task(task.id).json
        assert stopped["attempts"][-1]["failure"] == "worker_stopped"
        assert stopped["checkpoints"]

        agent.start()
        wait_for(lambda: client.task(task.id).json["attempts"][-1]["resumed_from_epoch"], TRAIN_S)
        client.cancel(task.id)
        wait_for(lambda: client.task(task.id).ended, TRAIN_S)


@pytest.mark.slow
def test_an_agent_that_is_stopped_while_the_store_is_away_ends_with_0_and_is_heard_later(
    stack: Stack, tmp_path: Path
) -> None:
    data = draw_bird_dataset(tmp_path / "birds", images=16, size_px=64)
    agent = stack.services["trainer-agent"]
    with Client(stack.url) as client:
        task = client.submit(name="birds", upload=client.upload(data), config=CONFIG)
        wait_for(lambda: client.task(task.id).json["checkpoints"], TRAIN_S)

        stack.seaweedfs.stop()
        wait_for(lambda: "checkpoint waits for the store" in agent.output.read_text(), END_S)
        agent.terminate()
        try:
            assert agent.await_end(END_S) == 0
        finally:
            stack.seaweedfs.start()
        told = [line for line in lines(agent) if line["message"].startswith("left behind: ")]
        assert len(told) == 1
        assert "1 attempts that were cut off" in told[0]["message"]

        agent.start()
        wait_for(lambda: client.task(task.id).json["attempts"][-1]["resumed_from_epoch"], TRAIN_S)
        assert "worker_stopped" in {a["failure"] for a in client.task(task.id).json["attempts"]}
        client.cancel(task.id)
        wait_for(lambda: client.task(task.id).ended, TRAIN_S)
