"""The whole of Perdure on this machine: three servers, and six services as processes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from infra.stack.kept import Process
from infra.stack.notes import Notes
from infra.stack.postgres import Postgres
from infra.stack.processes import ServiceProcess
from infra.stack.proxy import HOST, Proxy
from infra.stack.rabbitmq import RabbitNode
from infra.stack.seaweedfs import Weed
from perdure.runtime.data_folder import held
from perdure.runtime.started import Started

Link = Literal["log", "bus", "store"]


@dataclass(frozen=True)
class Needs:
    """What a service is given: servers, and a folder of its own."""

    links: tuple[Link, ...]
    folder: bool = False
    worker: bool = False


SERVICES: Final = {
    "data-prep": Needs(("bus", "store"), folder=True, worker=True),
    "trainer-agent": Needs(("bus", "store"), folder=True, worker=True),
    "publisher": Needs(("bus", "store"), folder=True, worker=True),
    "scheduler": Needs(("log", "bus")),
    "relay": Needs(("log", "bus")),
    "gateway": Needs(("log", "bus", "store"), folder=True),
}


class Server(Process, Protocol):
    """What PostgreSQL, RabbitMQ and SeaweedFS have in common here."""

    @property
    def url(self) -> str:
        """What a service is given to reach it, password included."""

    @property
    def port(self) -> int:
        """Where it listens."""

    def stop(self) -> None:
        """Stop it in order."""


class Stack(Started):
    """Servers and services on a folder, from `start` to `stop` (or as a context).

    `services` are those that `start` brings up; others, and further instances, may be added.
    `proxied` names the links that go through a proxy: {"relay": ("bus", "log")}. `environment`
    holds more variables for a service. Both go by label: "relay", and "relay-2" for a second one.
    `tell` is told, in a line each time, what is being waited for and what is there.

    Everything listens on 127.0.0.1 only. The servers and services end with this process, however it
    ends; what they have stored is there again at the next start on the same folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        services: Iterable[str] = tuple(SERVICES),
        proxied: Mapping[str, Collection[Link]] | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
        consumer_timeout_s: float | None = None,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.folder = folder.absolute()
        self.services: dict[str, ServiceProcess] = {}
        self._at_start = tuple(services)
        self._proxied = proxied or {}
        self._environment = environment or {}
        self._consumer_timeout_s = consumer_timeout_s
        self._tell = tell
        self._proxies: dict[tuple[str, Link], Proxy] = {}
        self._at_end = ExitStack()

    @property
    def url(self) -> str:
        """Where the gateway is: what PERDURE_URL has to be."""
        return f"http://{HOST}:{self._notes.port('gateway')}"

    @property
    def servers(self) -> dict[str, Server]:
        """The servers by name."""
        return {
            "postgres": self.postgres,
            "rabbitmq": self.rabbitmq,
            "seaweedfs": self.seaweedfs,
        }

    def proxy(self, label: str, link: Link) -> Proxy:
        """The proxy on the way from a service to a server. Raises KeyError where there is none."""
        return self._proxies[label, link]

    def start(self) -> None:
        """Start the servers, then the services, and wait until all are ready.

        Raises AlreadyRunning when another process holds the folder, InvalidSetting when a program
        is missing, Unavailable when something does not come up. Then nothing runs.
        """
        try:
            self._at_end.enter_context(held(self.folder, otherwise="--data-dir"))
            self._make_servers()
            self._start_servers()
            self._at_end.callback(self._stop_proxies)
            self._at_end.callback(self._stop_services)
            self._tell(f"starting {', '.join(self._at_start)} ...")
            for name in self._at_start:
                self.add(name).start()
            for service in self.services.values():
                service.await_ready()
                self._tell(f"{service.label} is ready")
        except BaseException:
            self.stop()
            raise

    def add(self, name: str, instance: int = 1) -> ServiceProcess:
        """A further service, not yet started."""
        label = name if instance == 1 else f"{name}-{instance}"
        service = ServiceProcess(
            name,
            label,
            environment=self._settings(name, label),
            health_port=self._notes.port(f"{label} health"),
            output=self.folder / "logs" / f"{label}.log",
        )
        self.services[label] = service
        return service

    def stop(self) -> None:
        """Stop everything, last things first: services drain while the servers are there."""
        self._at_end.close()

    def _start_servers(self) -> None:
        """All at once."""
        self._tell(f"starting {', '.join(self.servers)} ...")
        for server in self.servers.values():
            self._at_end.callback(server.stop)
        with ThreadPoolExecutor(len(self.servers)) as pool:
            starts = {pool.submit(server.start): name for name, server in self.servers.items()}
            for started in as_completed(starts):
                started.result()
                self._tell(f"{starts[started]} is ready")
        self._at_end.callback(self._tell, f"stopping {', '.join(self.servers)} ...")

    def _make_servers(self) -> None:
        notes, place = Notes(self.folder), self.folder / "servers"
        self._notes = notes
        self.postgres = Postgres(
            place / "postgres", port=notes.port("postgres"), password=notes.secret("postgres")
        )
        self.rabbitmq = RabbitNode(
            place / "rabbitmq",
            notes.port("rabbitmq"),
            consumer_timeout_s=self._consumer_timeout_s,
        )
        self.seaweedfs = Weed(
            place / "seaweedfs",
            notes.port("seaweedfs"),
            notes.secret("store access key"),
            notes.secret("store secret key"),
        )

    def _settings(self, name: str, label: str) -> dict[str, str]:
        needs = SERVICES[name]
        settings = {f"PERDURE_{link.upper()}_URL": self._url(label, link) for link in needs.links}
        settings["PERDURE_HEALTH_PORT"] = str(self._notes.port(f"{label} health"))
        if "store" in needs.links:
            settings |= self.seaweedfs.environment
        if needs.folder:
            settings["PERDURE_DATA_DIR"] = str(self.folder / "services" / label)
        if needs.worker:
            settings["PERDURE_WORKER_ID"] = label
        if name == "gateway":
            settings["PERDURE_HTTP_PORT"] = str(self._notes.port(label))
        return {**settings, **self._environment.get(label, {})}

    def _url(self, label: str, link: Link) -> str:
        """The address of a server for a service: the server's own, or that of a proxy before it."""
        servers: dict[Link, Server] = {
            "log": self.postgres,
            "bus": self.rabbitmq,
            "store": self.seaweedfs,
        }
        server = servers[link]
        if link not in self._proxied.get(label, ()):
            return server.url
        if (label, link) not in self._proxies:
            proxy = self._proxies[label, link] = Proxy(server.port)
            proxy.start()
        port = self._proxies[label, link].port
        return server.url.replace(f"{HOST}:{server.port}", f"{HOST}:{port}")

    def _stop_services(self) -> None:
        for proxy in self._proxies.values():
            proxy.restore()  # what they still have to say is to arrive
        workers = [s for s in self.services.values() if SERVICES[s.name].worker]
        others = [s for s in self.services.values() if not SERVICES[s.name].worker]
        for together in (workers, others):
            self._tell(f"stopping {', '.join(service.label for service in together)} ...")
            for service in together:
                service.terminate()
            for service in together:
                service.end()
        self.services.clear()

    def _stop_proxies(self) -> None:
        for proxy in self._proxies.values():
            proxy.stop()
        self._proxies.clear()
