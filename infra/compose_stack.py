"""The containers of docker-compose.yml as a project of its own, and what can be done to them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

ROOT: Final = Path(__file__).resolve().parent.parent
SERVICES: Final = ("gateway", "scheduler", "relay", "data-prep", "trainer-agent", "publisher")
SERVERS: Final = ("postgres", "rabbitmq", "s3")

# Not the name that a checkout's folder gives: a stack that people use is left alone.
PROJECT: Final = "perdure-smoke"

BUILD_S: Final = 3600.0  # some gigabytes are downloaded
HEALTHY_S: Final = 180.0  # the slowest start: RabbitMQ and six Pythons on two cores
RESTART_S: Final = 60.0
COMMAND_S: Final = 300.0  # `up` waits until servers are healthy, `down` until all have drained
POLL_S: Final = 0.5
SHOWN_LINES: Final = 40  # of what a command or a container has said, when things go wrong

T = TypeVar("T")


class SmokeFailed(Exception):
    """What did not go as it has to."""


class Stack:
    """The containers of one compose project, and what can be done to them."""

    def __init__(self, env_file: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._compose = (*_compose(), "-p", PROJECT, "--env-file", str(env_file))

    def up(self) -> None:
        """Build the images, start everything, and wait until all is healthy."""
        began = time.monotonic()
        say("building the images; the first time, some gigabytes are downloaded ...")
        self.compose("build", timeout_s=BUILD_S)
        built = time.monotonic()
        say("starting everything ...")
        self.compose("up", "-d")
        for service in (*SERVERS, *SERVICES):
            self._healthy(service, HEALTHY_S)
        up = time.monotonic()
        say(f"images built in {built - began:.0f} s; all healthy after {up - built:.0f} s")

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "60")

    def compose(self, *arguments: str, timeout_s: float = COMMAND_S) -> str:
        """Run a compose command for this project; gives what it prints."""
        return _run(*self._compose, *arguments, timeout_s=timeout_s)

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self.compose("ps", "-a", "-q", service).strip()

    def show_logs(self) -> None:
        """Print the containers and the end of each one's log."""
        print(
            self.compose("ps"),
            self.compose("logs", "--no-color", "--tail", str(SHOWN_LINES)),
            sep="\n",
        )

    def check_ports(self) -> None:
        """One port is published, on loopback."""
        containers = self.compose("ps", "-q").split()
        published = [
            (binding["HostIp"], binding["HostPort"])
            for container in containers
            for bindings in _inspect(container)["NetworkSettings"]["Ports"].values()
            for binding in bindings or ()
        ]
        if published != [("127.0.0.1", self.url.rpartition(":")[2])]:
            raise SmokeFailed(f"published ports are {published}")

    def check_no_torch(self, service: str) -> None:
        """The image of a service of the control plane has no torch."""
        find = (
            "from importlib.util import find_spec\n"
            "print([name for name in ('torch', 'ultralytics', 'onnx') if find_spec(name)])"
        )
        found = self.compose("exec", "-T", service, "python", "-c", find).strip()
        if found != "[]":
            raise SmokeFailed(f"the image of {service} has {found}")

    def check_no_database(self, service: str) -> None:
        """A service of the data plane knows no database, and cannot reach it."""
        ask = (
            "import os, socket\n"
            "assert not [name for name in os.environ if 'LOG_URL' in name]\n"
            "try: socket.getaddrinfo('postgres', 5432)\n"
            "except socket.gaierror: print('unknown')"
        )
        if self.compose("exec", "-T", service, "python", "-c", ask).strip() != "unknown":
            raise SmokeFailed(f"{service} can find the database")

    @contextmanager
    def cut(self, service: str, network: str) -> Iterator[None]:
        """A service without its network, within the block."""
        container, name = self.container(service), f"{PROJECT}_{network}"
        _run("docker", "network", "disconnect", name, container)
        try:
            yield
        finally:
            _run("docker", "network", "connect", "--alias", service, name, container)

    def kill_and_start(self, service: str) -> float:
        """`docker kill`, then `docker start`; seconds from the start until it is healthy."""
        container = self.container(service)
        _run("docker", "kill", container)
        until(
            lambda: not _inspect(container)["State"]["Running"] or None,
            RESTART_S,
            f"{service} is dead",
        )
        _run("docker", "start", container)
        return self._healthy(service, RESTART_S)

    def crash(self, service: str) -> float:
        """Kill a container's processes from inside; seconds until it is back and healthy."""
        container = self.container(service)
        restarts = _inspect(container)["RestartCount"]
        # It ends the shell's own connection as well, so that its exit code says nothing.
        subprocess.run(
            ["docker", "exec", container, "bash", "-c", "kill -KILL -1"],
            check=False,
            capture_output=True,
            timeout=RESTART_S,
        )
        began = time.monotonic()
        until(
            lambda: _inspect(container)["RestartCount"] > restarts or None,
            RESTART_S,
            f"the restart policy starts {service} anew",
        )
        self._healthy(service, RESTART_S)
        return time.monotonic() - began

    def stop(self) -> float:
        """Stop everything; seconds until all have ended as they do when they are asked to."""
        began = time.monotonic()
        self.compose("stop")
        codes = {
            service: _inspect(self.container(service))["State"]["ExitCode"]
            for service in (*SERVICES, *SERVERS)
        }
        if any(codes.values()):
            raise SmokeFailed(f"stopped services ended with {codes}")
        return time.monotonic() - began

    def perdure(self, *arguments: str) -> None:
        """Run a command line of Perdure against the stack. It has to succeed."""
        environment = os.environ | {"PERDURE_URL": self.url}
        printed = _run(sys.executable, "-m", "perdure", *arguments, environment=environment)
        say(f"perdure {' '.join(arguments)}: {' '.join(printed.split())}")

    def _healthy(self, service: str, timeout_s: float) -> float:
        container = self.container(service)
        began = time.monotonic()
        until(
            lambda: _inspect(container)["State"]["Health"]["Status"] == "healthy" or None,
            timeout_s,
            f"{service} is healthy",
        )
        return time.monotonic() - began


@contextmanager
def fresh_stack(folder: Path) -> Iterator[Stack]:
    env_file = folder / ".env"
    _run("bash", str(ROOT / "infra" / "compose-env.sh"), str(env_file))
    port = _free_port()
    with env_file.open("a", encoding="utf-8") as file:
        file.write(f"PERDURE_HTTP_PORT={port}\n")
    stack = Stack(env_file, port)
    stack.down()  # what a run that was killed has left
    try:
        stack.up()
        yield stack
    except Exception:
        stack.show_logs()
        raise
    finally:
        say("removing containers, networks and volumes ...")
        stack.down()


def _compose() -> tuple[str, ...]:
    if shutil.which("docker") is None:
        raise SmokeFailed("the program docker is missing: install Docker 20.10 or newer")
    engine = subprocess.run(["docker", "version"], check=False, capture_output=True, text=True)
    if engine.returncode != 0:
        why = (engine.stderr.strip() or engine.stdout.strip()).splitlines()[-1:]
        raise SmokeFailed(
            f"no Docker engine answers: start it, or set DOCKER_HOST ({''.join(why)})"
        )
    v2 = subprocess.run(["docker", "compose", "version"], check=False, capture_output=True)
    if v2.returncode == 0:
        return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        raise SmokeFailed("Docker has no Compose: install Compose v2, or docker-compose 1.29")
    return ("docker-compose",)


def _inspect(container: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(_run("docker", "inspect", container))
    return found[0]


def _run(
    *command: str, environment: dict[str, str] | None = None, timeout_s: float = COMMAND_S
) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise SmokeFailed(f"{' '.join(command)} took more than {timeout_s:.0f} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-SHOWN_LINES:]
        raise SmokeFailed(f"{' '.join(command)} ended with {done.returncode}:\n" + "\n".join(said))
    return done.stdout


def until(look: Callable[[], T | None], timeout_s: float, what: str) -> T:
    """What `look` finds, once it finds something."""
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise SmokeFailed(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(POLL_S)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
