"""A RabbitMQ node of our own on a folder, from the system's package; the system's own node is not
touched: name, cookie, ports and port mapper (epmd) are this node's alone.

Everything here blocks: call it in a thread where an event loop runs.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from infra.stack import leash
from infra.stack.ports import free_port
from perdure.errors import BusUnavailable, InvalidSetting
from perdure.runtime.started import Started

USER: Final = "perdure"
NODE_NAME: Final = "perdure@localhost"  # its data carry it; no other node has its port mapper
SCRIPTS: Final = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"  # the wrappers in sbin switch user

START_TIMEOUT_S: Final = 120.0  # takes 4 s alone, more when all cores are busy
STOP_TIMEOUT_S: Final = 30.0
EPMD_TIMEOUT_S: Final = 10.0
CONTROL_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
# How often the broker looks for consumers that hold a message too long; its default is a minute.
TIMEOUT_CHECK_MS: Final = 500

# Its schedulers sleep when there is nothing to do, instead of spinning for a while: a small machine
# has other work.
NO_BUSY_WAIT: Final = "+sbwt none +sbwtdcpu none +sbwtdio none"
LOOPBACK_ONLY: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
AMQP_GREETING: Final = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME: Final = b"\x01"


class RabbitNode(Started):
    """A node on 127.0.0.1, which ends with this process. The caller owns the folder.

    The port stays the same as long as this object, the password as long as the folder.

    `config` holds further lines of rabbitmq.conf. With `consumer_timeout_s` the broker closes the
    channel of a consumer that holds a message longer than that (its default is half an hour).
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        config: Mapping[str, str] | None = None,
        consumer_timeout_s: float | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.port = port or free_port()
        self.output = self.folder / "log" / f"{NODE_NAME}.log"
        self._dist_port = free_port()
        self._epmd_port = free_port()
        self._config = dict(config or {})
        self._consumer_timeout_s = consumer_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where to connect, password included. Stays the same over stop, kill and wipe."""
        return f"amqp://{USER}:{self._password()}@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int | None:
        """The process id of the node, None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the node ended (negative: by a signal), None while it runs, or was stopped."""
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the node if it does not run, and give its `url` once it takes connections.

        Raises InvalidSetting when RabbitMQ is not installed, BusUnavailable when it does not come
        up.
        """
        if self.pid is not None:
            return self.url
        scripts = _scripts()
        self.kill()  # the port mapper of a node that died by itself
        self._write_configuration()
        try:
            self._start_epmd()
            self._process = self._spawn([str(scripts / "rabbitmq-server")], "node")
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise
        return self.url

    def stop(self) -> None:
        """Stop the node as an operator would: clients are told, everything is on disk."""
        if self.pid is not None and self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Let the node die at once, with everything it had only in memory."""
        for process in (self._process, self._epmd):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):  # the group may be gone already
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._process = self._epmd = None

    def wipe(self) -> None:
        """Kill the node if it runs, and take everything it stored away: queues, exchanges,
        messages. The next `start` gives an empty node at the same address.
        """
        self.kill()
        shutil.rmtree(self.folder / "mnesia", ignore_errors=True)

    def add_vhosts(self, names: Sequence[str]) -> list[str]:
        """Make virtual hosts, which share nothing with each other, and give their addresses."""
        path = self.folder / "definitions.json"
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "vhosts": [{"name": name} for name in names],
            "permissions": [{"user": USER, "vhost": name, **everything} for name in names],
        }
        path.write_text(json.dumps(definitions))
        self.control("import_definitions", str(path))
        return [self.url + quote(name, safe="") for name in names]

    def delete_queue(self, name: str) -> None:
        """Delete a queue by hand, with its messages, whoever consumes it."""
        self.control("delete_queue", name)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl against the node and give what it printed.

        Raises BusUnavailable when it fails. It takes about a second: it starts a node of its own.
        """
        command = [str(_scripts() / "rabbitmqctl"), "--quiet", *arguments]
        done = subprocess.run(
            command,
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CONTROL_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BusUnavailable(
                f"rabbitmqctl {' '.join(arguments)} failed (exit {done.returncode}): "
                f"{done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(24))
        return path.read_text()

    def _write_configuration(self) -> None:
        lines = {
            "listeners.tcp.default": f"127.0.0.1:{self.port}",
            "default_user": USER,
            "default_pass": self._password(),
            "disk_free_limit.absolute": "50MB",
            "log.file.level": "info",
        } | self._config
        advanced: list[str] = []
        if self._consumer_timeout_s is not None:
            lines["consumer_timeout"] = str(round(self._consumer_timeout_s * 1000))
            advanced.append(f"{{rabbit, [{{channel_tick_interval, {TIMEOUT_CHECK_MS}}}]}}")
        self.folder.chmod(0o700)  # passwords, messages and logs are in it
        path = self.folder / "rabbitmq.conf"
        path.touch(mode=0o600)
        path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        (self.folder / "advanced.config").write_text(f"[{', '.join(advanced)}].\n")
        (self.folder / "enabled_plugins").write_text("[].\n")
        (self.folder / "rabbitmq-env.conf").write_text("")

    def _environment(self) -> dict[str, str]:
        """Nothing of the caller's RABBITMQ_* variables, which would lead to another node."""
        folder = self.folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "HOME": str(folder),  # holds the cookie, which only this node knows
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{LOOPBACK_ONLY} {NO_BUSY_WAIT}",
            "RABBITMQ_CTL_ERL_ARGS": LOOPBACK_ONLY,
            "RABBITMQ_NODENAME": NODE_NAME,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(folder / "rabbitmq.pid"),
            # The script then becomes the node, instead of waiting for it as its parent.
            "detached": "true",
        }

    def _start_epmd(self) -> None:
        """Start the port mapper as our own child: a node that finds none leaves one behind."""
        command = ["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)]
        self._epmd = self._spawn(command, "epmd")
        if not _await_port(self._epmd, self._epmd_port, EPMD_TIMEOUT_S, b"", b""):
            raise BusUnavailable(f"epmd did not start: see {self.folder / 'epmd.log'}")

    def _spawn(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        return leash.start(
            command,
            environment=self._environment(),
            folder=self.folder,
            output=self.folder / f"{name}.log",
        )

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        if not _await_port(process, self.port, START_TIMEOUT_S, AMQP_GREETING, METHOD_FRAME):
            raise BusUnavailable(
                f"RabbitMQ on {self.folder} did not start (exit status {process.poll()}): "
                f"see {self.folder / 'node.log'} and {self.folder / 'log'}"
            )


def _scripts() -> Path:
    """The folder of the scripts of the newest RabbitMQ that the system's package installed."""
    found = sorted(Path("/").glob(f"{SCRIPTS[1:]}/rabbitmq-server"))
    if not found:
        raise InvalidSetting(
            f"RabbitMQ is missing (looked for {SCRIPTS}/rabbitmq-server): "
            "install it, e.g. with `make setup-servers` as root on Debian or Ubuntu"
        )
    return found[-1].parent


def _await_port(
    process: subprocess.Popen[bytes], port: int, timeout_s: float, greeting: bytes, answer: bytes
) -> bool:
    """Wait until what listens on `port` answers `greeting` with bytes that start as `answer`.

    False when the process ended, or `timeout_s` passed, first.
    """
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),  # not yet
            socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection,
        ):
            connection.sendall(greeting)
            if connection.recv(len(answer)) == answer:
                return True
        time.sleep(POLL_S)
    return False
