"""The network between each service and each server fails in every way that networks do, while tasks
run: afterwards every service is ready again by itself, the tasks end, and nothing is lost or twice
in effect.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.stack.processes import ServiceProcess
from infra.stack.proxy import Direction, Proxy
from infra.stack.stack import SERVICES, Link
from perdure.client import Task
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.proof import assert_proven
from tests.builders.services import Services, trains_with_a_checkpoint

# A quarter of this where nothing else runs.
pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(900)]

LATENCY_S = 0.2  # each way: twice around the world
READY_S = 30.0
IMPORT_S = 120.0
TRAIN_S = 400.0
LOST_S = 60.0  # a lease, and time to say so
EPOCHS = 60  # half a minute where nothing else runs: the faults last longer
PUBLISH_S = 8.0


@dataclass(frozen=True)
class Fault:
    """What is done to a link, and for how long. `noticed`: nothing that needs it can work."""

    name: str
    hurt: Callable[[Proxy], None]
    for_s: float = 0.0
    noticed: bool = True


CUT = Fault("cut", Proxy.cut, noticed=False)


def lasting(black_s: float, to_server_s: float, to_client_s: float) -> tuple[Fault, ...]:
    """The faults by which nothing, or only one direction, gets through."""
    return (
        Fault("black hole", Proxy.black_hole, black_s),
        Fault("half open", lambda proxy: proxy.half_open(Direction.TO_SERVER), to_server_s),
        Fault("half open", lambda proxy: proxy.half_open(Direction.TO_CLIENT), to_client_s),
    )


# The broker gives a silent connection up after 10 to 15 s, we after 18 to 20.
BUS_FAULTS = (CUT, *lasting(22.0, 16.0, 22.0))
# A leader gives up after 4 s, a request to the store is sent anew after 10, and for 20.
OTHER_FAULTS = (CUT, *lasting(14.0, 8.0, 8.0))


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    everywhere = {name: needs.links for name, needs in SERVICES.items()}
    with Services(tmp_path_factory.mktemp("stack"), proxied=everywhere) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(services: Services) -> Iterator[None]:
    """No test leaves a fault to the next one."""
    yield
    for proxies in links_to(services, "log", "bus", "store").values():
        for proxy in proxies:
            proxy.restore()


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


def links_to(services: Services, *kinds: Link) -> dict[str, list[Proxy]]:
    """The proxies before servers of these kinds, by service."""
    return {
        name: [services.proxy(name, kind) for kind in kinds if kind in needs.links]
        for name, needs in SERVICES.items()
        if set(kinds) & set(needs.links)
    }


def test_a_slow_network_makes_work_slow_and_nothing_else(services: Services, birds: Path) -> None:
    proxies = [p for found in links_to(services, "log", "bus", "store").values() for p in found]
    for proxy in proxies:
        proxy.delay(LATENCY_S)
    task = services.submit(birds, epochs=1)
    services.until(task, trains_with_a_checkpoint, TRAIN_S)
    await_ready(services, SERVICES)
    task = services.succeeded(task, TRAIN_S)
    for proxy in proxies:
        proxy.restore()
    assert [a["failure"] for a in task.json["attempts"]] == [None] * 3
    assert "WorkerLost" not in services.event_types()
    assert_proven(services.client, task)


@pytest.mark.parametrize(
    ("kinds", "faults"),
    [(("bus",), BUS_FAULTS), (("log", "store"), OTHER_FAULTS)],
    ids=["broker", "log-and-store"],
)
def test_every_service_comes_back_by_itself_and_what_ran_ends(
    services: Services, birds: Path, kinds: tuple[Link, ...], faults: tuple[Fault, ...]
) -> None:
    links = links_to(services, *kinds)
    training = services.submit(birds, epochs=EPOCHS)
    services.until(training, trains_with_a_checkpoint, TRAIN_S)
    imports: list[Task] = []
    for fault in faults:
        print(fault.name)  # pytest shows it when the test fails
        imports.append(services.client.push_dataset(birds, "during"))
        suffer(services, links, fault)
        imports.append(services.client.push_dataset(birds, "after"))
        for task in imports[-2:]:
            services.succeeded(task, IMPORT_S)
    training = services.succeeded(training, TRAIN_S)
    for task in (training, *imports):
        attempts = services.client.task(task.id).json["attempts"]
        assert {attempt["failure"] for attempt in attempts} == {None}
    assert services.client.model(training.model_id).status == "registered"
    assert "WorkerLost" not in services.event_types()
    assert_proven(services.client, training, *imports)


def test_a_worker_that_nobody_hears_loses_its_lease_and_the_log_says_why(
    services: Services, birds: Path
) -> None:
    task = services.submit(birds, epochs=12)
    services.until(task, trains_with_a_checkpoint, TRAIN_S)
    link = services.proxy("trainer-agent", "bus")
    link.black_hole()
    services.until(task, lambda t: t.json["attempts"][1]["failure"] is not None, LOST_S)
    link.restore()
    await_ready(services, ["trainer-agent"])

    services.until(task, publishes, TRAIN_S)
    publisher = {"publisher": [services.proxy("publisher", kind) for kind in ("bus", "store")]}
    suffer(services, publisher, Fault("black hole", Proxy.black_hole, PUBLISH_S))
    task = services.succeeded(task, TRAIN_S)

    lost, trained = [a for a in task.json["attempts"] if a["stage"] == "train"]
    assert lost["failure"] == "lost_worker"
    assert lost["detail"].startswith("worker trainer-agent was silent for 3")
    assert trained["outcome"] == "succeeded"
    assert trained["resumed_from_epoch"] >= 1
    types = [event["type"] for event in services.client.events(task.id)]
    assert types.count("HeartbeatTimedOut") == 1
    assert "WorkerLost" in services.event_types()
    assert services.client.model(task.model_id).status == "registered"
    assert_proven(services.client, task)


def publishes(task: Task) -> bool:
    """Whether the publisher's process has begun to work."""
    last = task.json["attempts"][-1]
    return last["stage"] == "publish" and bool(last["started_at"])


def suffer(services: Services, links: dict[str, list[Proxy]], fault: Fault) -> None:
    """Let the links fail for a while; then their services are ready again within READY_S."""
    proxies = [proxy for found in links.values() for proxy in found]
    back_at = time.monotonic() + fault.for_s
    for proxy in proxies:
        fault.hurt(proxy)
    if fault.noticed:
        time.sleep(max(0.0, back_at - time.monotonic()))
        assert ready(services, links) == set()
    for proxy in proxies:
        proxy.restore()
    await_ready(services, links)


def await_ready(services: Services, names: Iterable[str]) -> None:
    """All of the services are ready again within READY_S."""
    deadline = time.monotonic() + READY_S
    for name in names:
        services.services[name].await_ready(deadline - time.monotonic())


def ready(services: Services, names: Iterable[str]) -> set[str]:
    """Those of the services that say they are ready, all asked at the same time."""
    asked = {name: services.services[name] for name in names}
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(ServiceProcess.is_ready, asked.values())
        return {name for name, answer in zip(asked, answers, strict=True) if answer}
