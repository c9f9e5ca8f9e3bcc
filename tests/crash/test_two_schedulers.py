"""Two schedulers and two relays on one stack: one of each decides, and the other takes over from a
leader that was killed or stood still.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from infra.stack.processes import ServiceProcess
from infra.stack.stack import SERVICES
from perdure.client import Task
from perdure.eventlog.leadership import CAMPAIGN_EVERY_S, IDLE_S
from perdure_embedded.birds import draw_bird_dataset
from perdure_scheduler.workers import LEASE_S
from tests.builders.proof import assert_proven
from tests.builders.published import Published
from tests.builders.services import Services, until

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

TASK_S = 240.0
BUSY_S = 10.0  # what a busy machine may add to a takeover
DEADLINE_S = 60.0
IMPORTS = 4
LEADERS = ("scheduler", "relay")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    others = [name for name in SERVICES if name not in LEADERS]
    with Services(tmp_path_factory.mktemp("stack"), services=others) as running:
        both = [running.add(name, instance) for name in LEADERS for instance in (1, 2)]
        for service in both:
            # The broker does not take back what it gave to one that stands still: when that goes
            # on, it finds old heartbeats and a report in its hands.
            service.environment["PERDURE_BUS_URL"] += "?heartbeat=600"
            service.start()
        for service in both:
            service.await_ready()
        yield running


@pytest.fixture(scope="module")
def published(services: Services) -> Published:
    return Published(services.rabbitmq.url, services.postgres.url)


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


def leads(service: ServiceProcess) -> bool:
    answer = httpx.get(f"{service.health_url}/readyz", timeout=10, trust_env=False)
    return bool(answer.json()["state"] == "leading")


def leader_first(services: Services, name: str) -> tuple[ServiceProcess, ServiceProcess]:
    one, other = services.services[name], services.services[f"{name}-2"]
    assert leads(one) is not leads(other)
    return (one, other) if leads(one) else (other, one)


def has_said(service: ServiceProcess, what: str, offset: int) -> bool:
    """Whether it has logged that, from there on."""
    return what in service.output.read_bytes()[offset:].decode()


def running(task: Task) -> bool:
    return bool(task.json["attempts"][-1]["outcome"] == "running")


def test_a_killed_leader_is_followed_within_seconds_and_the_order_holds(
    services: Services, birds: Path, published: Published
) -> None:
    training = services.submit(birds, epochs=2)
    imports = [services.client.push_dataset(birds, "birds") for _ in range(IMPORTS)]
    for name in LEADERS:
        killed, other = leader_first(services, name)
        killed.kill()
        took_s = until(partial(leads, other), DEADLINE_S)
        assert took_s < CAMPAIGN_EVERY_S + BUSY_S
        killed.start()
        killed.await_ready()
        assert not leads(killed)
    tasks = [services.succeeded(task, TASK_S) for task in (training, *imports)]
    assert [len(task.json["attempts"]) for task in tasks] == [3] + [1] * IMPORTS
    assert_proven(services.client, *tasks)
    published.assert_complete_and_in_order()


def test_a_leader_that_stood_still_decides_nothing_when_it_goes_on(
    services: Services, birds: Path, published: Published
) -> None:
    leaders = [leader_first(services, name) for name in LEADERS]
    imports = [services.client.push_dataset(birds, "birds") for _ in range(IMPORTS)]
    stood_still_from = time.monotonic()
    for stopped, _ in leaders:
        psutil.Process(stopped.pid).suspend()
    for _, other in leaders:
        until(partial(leads, other), DEADLINE_S)
    assert time.monotonic() - stood_still_from < IDLE_S + CAMPAIGN_EVERY_S + BUSY_S
    imports = [services.succeeded(task, TASK_S) for task in imports]
    until(lambda: time.monotonic() - stood_still_from > LEASE_S, DEADLINE_S)

    # What reached the stopped scheduler tells of the start of the agent that is killed here. It has
    # heard nothing of the one that holds the training when it goes on.
    training = services.submit(birds, epochs=2)
    services.until(training, lambda task: task.stage == "train" and running(task), TASK_S)
    services.services["trainer-agent"].kill()
    services.restart("trainer-agent")
    services.until(training, lambda task: task.json["fence"] == 3, TASK_S)
    scheduler, relay = (stopped for stopped, _ in leaders)
    said = {one.label: one.output.stat().st_size for one in (scheduler, relay)}
    for one in (scheduler, relay):
        psutil.Process(one.pid).resume()
    for one in (scheduler, relay):
        until(partial(has_said, one, "does not lead", said[one.label]), DEADLINE_S)
        until(one.is_ready, DEADLINE_S)
        assert not leads(one)

    training = services.succeeded(training, TASK_S)
    assert not has_said(scheduler, '"position"', said[scheduler.label])  # of an event that it made
    failures = [attempt["failure"] for attempt in training.json["attempts"]]
    assert failures == [None, "lost_worker", None, None]
    assert_proven(services.client, training, *imports)
    published.assert_complete_and_in_order()
