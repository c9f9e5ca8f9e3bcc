"""docker-compose.yml, the images and .env, as far as they can be judged without Docker; the rest is
tried by `make compose-smoke`.
"""

import os
import re
import shutil
import stat
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.compose_stack import SmokeFailed, Stack
from infra.docker.needed_packages import needed
from perdure.runtime.host import CANCEL_S, CLOSE_S
from perdure.runtime.settings import ServiceSettings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCKERFILE = (ROOT / "infra" / "docker" / "Dockerfile").read_text(encoding="utf-8")

SERVERS = {"postgres", "rabbitmq", "s3"}
CONTROL_PLANE = {"gateway", "scheduler", "relay"}
DATA_PLANE = {"data-prep", "trainer-agent", "trainer-agent-gpu", "publisher"}
# What has no default and stops Compose when it is missing.
REQUIRED = re.compile(r"\$\{(PERDURE_[A-Z0-9_]+):\?[^}]*make compose-env[^}]*\}")


def each_service() -> Any:
    return pytest.mark.parametrize("name", sorted(SERVICES))


def environment(name: str) -> dict[str, str]:
    return SERVICES[name].get("environment", {})


def test_it_runs_the_servers_and_every_service_that_perdure_has() -> None:
    commands = {s["command"][0] for n, s in SERVICES.items() if n not in SERVERS}
    assert set(SERVICES) == SERVERS | CONTROL_PLANE | DATA_PLANE
    assert commands == set(PROJECT["entry-points"]["perdure.services"])


def test_its_top_level_keys_are_known_to_docker_compose_1_29_and_to_compose_v2() -> None:
    keys = {key for key in COMPOSE if not key.startswith("x-")}
    assert keys == {"services", "networks", "volumes"}


@each_service()
def test_a_service_has_a_health_check(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert check.keys() >= {"interval", "timeout", "retries", "start_period"}


@each_service()
def test_a_service_waits_until_what_it_needs_is_healthy(name: str) -> None:
    setting_of = {"postgres": "LOG_URL", "rabbitmq": "BUS_URL", "s3": "STORE_URL"}
    used = {server for server, url in setting_of.items() if f"PERDURE_{url}" in environment(name)}
    expected = {server: {"condition": "service_healthy"} for server in used}
    assert bool(used) is (name not in SERVERS)
    if name in DATA_PLANE:  # so that it stops before the one that answers its last reports
        expected["scheduler"] = {"condition": "service_started"}
    assert SERVICES[name].get("depends_on", {}) == expected


@each_service()
def test_an_image_is_pinned_by_a_version_or_built_here(name: str) -> None:
    service = SERVICES[name]
    if "image" in service:
        assert re.fullmatch(r"[a-z/]+:\d+\.\d+[\w.-]*", service["image"])
    else:
        assert f" AS {service['build']['target']}\n" in DOCKERFILE


@each_service()
def test_store_keys_are_given_to_those_who_use_the_store(name: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    given = keys & environment(name).keys()
    assert given == (keys if name == "s3" or "PERDURE_STORE_URL" in environment(name) else set())


def test_images_are_built_on_a_pinned_one() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    names = {name for _origin, name in stages}
    outside = {origin for origin, _name in stages if origin not in names}
    assert outside == {"python:3.11-slim-bookworm"}


@each_service()
def test_a_container_is_given_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    # With all rights dropped, an init that is root cannot signal a server that is not.
    assert service.get("init") is (None if name in SERVERS else True)
    assert service["pids_limit"] > 0
    assert service["read_only"] is (name != "rabbitmq")
    assert not service.keys() & {"privileged", "network_mode", "pid", "ipc", "user"}
    if name not in SERVERS:
        assert "cap_add" not in service


def test_processes_of_our_images_are_not_root() -> None:
    for target in ("control", "data-prep", "worker"):
        stage = DOCKERFILE.split(f" AS {target}\n")[1].split("\nFROM ")[0]
        assert stage.rstrip().endswith('USER perdure\nENTRYPOINT ["perdure", "service"]')


@each_service()
def test_a_port_is_published_on_loopback_and_by_the_gateway_only(name: str) -> None:
    published = SERVICES[name].get("ports", [])
    expected = ["127.0.0.1:${PERDURE_HTTP_PORT:-7412}:7412"] if name == "gateway" else []
    assert published == expected


@each_service()
def test_a_secret_is_named_and_has_no_default(name: str) -> None:
    for variable, value in environment(name).items():
        if re.search("PASS|SECRET|KEY|TOKEN", variable):
            assert REQUIRED.fullmatch(value), variable
        if "@" in value:
            password = value.split("://perdure:")[1].rpartition("@")[0]
            assert REQUIRED.fullmatch(password), variable


@each_service()
def test_only_the_control_plane_can_reach_the_database(name: str) -> None:
    networks = set(SERVICES[name]["networks"])
    if name in CONTROL_PLANE:
        assert environment(name)["PERDURE_LOG_URL"].endswith("@postgres:5432/perdure")
        assert networks >= {"control", "data"}
    elif name != "postgres":
        assert networks == {"data"}
        assert "PERDURE_LOG_URL" not in environment(name)
        assert "POSTGRES" not in str(environment(name))


def test_only_the_gateways_own_network_leads_out() -> None:
    open_ones = {name for name, network in COMPOSE["networks"].items() if not network}
    users = {name for name, service in SERVICES.items() if open_ones & set(service["networks"])}
    assert open_ones == {"edge"}
    assert users == {"gateway"}
    assert COMPOSE["networks"]["control"] == COMPOSE["networks"]["data"] == {"internal": True}


@each_service()
def test_a_service_is_killed_only_after_the_time_that_it_takes_to_stop(name: str) -> None:
    grace_s = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    if name in SERVERS:
        assert grace_s >= 30
    else:
        default_s = ServiceSettings.model_fields["drain_s"].default
        drain_s = float(environment(name).get("PERDURE_DRAIN_S", default_s))
        assert drain_s + CANCEL_S + CLOSE_S < grace_s


@each_service()
def test_a_log_does_not_fill_the_disk(name: str) -> None:
    logging = SERVICES[name]["logging"]
    assert logging["driver"] == "json-file"
    assert logging["options"] == {"max-size": "10m", "max-file": "5"}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is missing")
@pytest.mark.parametrize("with_env", [True, False])
def test_docker_compose_takes_it_with_the_passwords_only(tmp_path: Path, with_env: bool) -> None:
    env = tmp_path / ".env"
    make_env(env) if with_env else env.touch()
    file = str(ROOT / "docker-compose.yml")
    command = ["docker-compose", "-f", file, "--env-file", str(env), "config"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath}
    )
    assert (done.returncode == 0) is with_env, done.stderr
    if with_env:
        # Those of the profile too, in docker-compose 1.29.
        assert set(yaml.safe_load(done.stdout)["services"]) | {"trainer-agent-gpu"} == set(SERVICES)
    else:
        assert "run make compose-env" in done.stderr


def test_the_smoke_test_says_what_of_docker_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SmokeFailed, match="docker is missing"):
        Stack(tmp_path / ".env", 1)
    (tmp_path / "docker").write_text("#!/bin/sh\necho Cannot connect. >&2; exit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(SmokeFailed, match=r"no Docker engine answers.*Cannot connect"):
        Stack(tmp_path / ".env", 1)
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = version ]\n')
    with pytest.raises(SmokeFailed, match="Docker has no Compose"):
        Stack(tmp_path / ".env", 1)


@pytest.mark.parametrize("name", sorted(DATA_PLANE))
def test_a_worker_keeps_its_files(name: str) -> None:
    settings = environment(name)
    volume, _colon, folder = SERVICES[name]["volumes"][0].partition(":")
    assert folder == settings["PERDURE_DATA_DIR"]
    assert volume == f"{name}-data"
    assert volume in COMPOSE["volumes"]


def test_workers_have_names_of_their_own() -> None:
    names = [environment(name)["PERDURE_WORKER_ID"] for name in DATA_PLANE]
    assert len(set(names)) == len(names)


def test_a_gpu_is_reserved_in_a_profile_only() -> None:
    reserving = {name for name, service in SERVICES.items() if "deploy" in service}
    profiled = {name for name, service in SERVICES.items() if "profiles" in service}
    (device,) = SERVICES["trainer-agent-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert reserving == profiled == {"trainer-agent-gpu"}
    assert device["driver"] == "nvidia"
    assert "gpu" in device["capabilities"]


@pytest.mark.parametrize("extras", [["gateway", "scheduler", "relay"], ["data-prep"]])
def test_images_without_training_have_neither_torch_nor_onnx(extras: list[str]) -> None:
    packages = {re.split(r"[^\w.-]", requirement)[0] for requirement in needed(PROJECT, extras)}
    assert packages >= {"aio-pika", "minio", "pydantic"}
    assert not packages & {"torch", "torchvision", "ultralytics", "onnx", "onnxruntime"}


def test_the_secrets_stay_out_of_git_and_of_images() -> None:
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert not let_in & {".env", ".", "*"}
    assert all((ROOT / path).exists() for path in let_in)


def make_env(file: Path) -> dict[str, str]:
    script = ROOT / "infra" / "compose-env.sh"
    subprocess.run(["bash", script, file], check=True, capture_output=True, timeout=30)
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_compose_env_writes_what_compose_asks_for(tmp_path: Path) -> None:
    asked = set(REQUIRED.findall((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert set(make_env(tmp_path / ".env")) == asked
    assert asked


def test_compose_env_writes_random_passwords_for_its_owner_only(tmp_path: Path) -> None:
    first, second = make_env(tmp_path / "one"), make_env(tmp_path / "two")
    values = [*first.values(), *second.values()]
    assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[0-9a-f]{48}", value) for value in values)
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("dangling", [False, True])
def test_compose_env_leaves_a_file_as_it_is(tmp_path: Path, dangling: bool) -> None:
    file = tmp_path / ".env"
    if dangling:
        file.symlink_to(tmp_path / "elsewhere")
    else:
        file.write_text("PERDURE_RABBITMQ_PASSWORD=mine\n", encoding="utf-8")
    script = ROOT / "infra" / "compose-env.sh"
    subprocess.run(["bash", script, file], check=True, capture_output=True, timeout=30)
    if dangling:
        assert not (tmp_path / "elsewhere").exists()
    else:
        assert file.read_text(encoding="utf-8") == "PERDURE_RABBITMQ_PASSWORD=mine\n"


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a server that answers /readyz with `status`, and anything else with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()
            self.wfile.write(b'{"status": "as it is"}')

        def log_message(self, *_arguments: object) -> None:
            """Keep the test's output clean."""

        protocol_version = "HTTP/1.1"

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()


def healthy(port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", ROOT / "infra" / "docker" / "perdure-healthy.sh"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PERDURE_HEALTH_PORT": str(port)},
        timeout=30,
    )


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (404, 1)])
def test_a_container_is_healthy_when_its_service_is_ready(status: int, code: int) -> None:
    with answering(status) as port:
        done = healthy(port)
    assert done.returncode == code, done.stderr
    assert done.stdout == '{"status": "as it is"}\n'


def test_a_container_is_not_healthy_when_nothing_listens() -> None:
    with answering(200) as port:
        pass
    assert healthy(port).returncode != 0
