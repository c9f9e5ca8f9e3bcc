"""A training while a server is away for longer than a lease: it goes on, nothing is declared lost,
and what it had to say meanwhile is recorded afterwards, in order.
"""

import math
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from perdure.client import Task
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.proof import assert_proven
from tests.builders.services import Services, trains_with_a_checkpoint

# A quarter of this where nothing else runs.
pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1200)]

LONG_S = 60.0  # two leases
SHORT_S = 5.0
READY_S = 30.0
ARRIVE_S = 60.0  # after at most 10 s, a report without an answer is sent again
TRAIN_S = 400.0
RECOVERY_S = 15.0  # more than from a server's start until what waited for it is recorded
SPARE = 1.3  # by which a training is longer than that, at the pace measured before
PACE_EPOCHS = 20
EPOCHS_S = 30.0  # more than two epochs take
POLL_S = 0.2


class Training:
    """A training that runs, as its process and its folder show it, whatever else is away."""

    def __init__(self, services: Services, task: Task) -> None:
        self.task = services.until(task, trains_with_a_checkpoint, TRAIN_S)
        attempt = self.task.json["attempts"][-1]
        work = services.folder / "services/trainer-agent/work"
        self._checkpoints = work / task.id / f"{attempt['fence']:04}-train/checkpoints"
        self.pid = attempt["pid"]
        self.epochs = 0

    def look(self) -> int:
        """How many epochs it has completed. Its folder is gone once all of it has been stored."""
        names = [path.name for path in self._checkpoints.glob("epoch*")]
        numbers = [int(name[len("epoch") :].partition("-")[0]) for name in names]
        self.epochs = max([self.epochs, *numbers])
        return self.epochs


Outage = tuple[Callable[[], None], Callable[[], object], float]

OUTAGES: dict[str, Callable[[Services], Outage]] = {
    "rabbitmq": lambda s: (s.rabbitmq.stop, s.rabbitmq.start, LONG_S),
    "rabbitmq, wiped": lambda s: (s.rabbitmq.wipe, s.rabbitmq.start, SHORT_S),
    "postgres": lambda s: (s.postgres.stop_at_once, s.postgres.start, SHORT_S),
    "s3": lambda s: (s.seaweedfs.stop, s.seaweedfs.start, LONG_S),
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


@pytest.fixture(scope="module")
def epoch_s(services: Services, birds: Path) -> float:
    """How long an epoch takes on this machine."""
    task = services.submit(birds, epochs=PACE_EPOCHS * 10)
    services.until(task, lambda t: len(t.json["epochs"]) > PACE_EPOCHS, TRAIN_S)
    services.client.cancel(task.id)
    services.until(task, lambda t: t.status == "cancelled", READY_S)
    events = services.client.events(task.id)
    ends = [datetime.fromisoformat(e["time"]) for e in events if e["type"] == "EpochCompleted"]
    return (ends[PACE_EPOCHS] - ends[0]).total_seconds() / PACE_EPOCHS


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_training_goes_on_while_a_server_is_away(
    services: Services, birds: Path, epoch_s: float, outage: str
) -> None:
    stop, start, for_s = OUTAGES[outage](services)
    epochs = math.ceil(SPARE * (for_s + RECOVERY_S) / epoch_s)
    training = Training(services, services.submit(birds, epochs=epochs))
    outlive(services, training, stop, start, for_s)

    task = services.succeeded(training.task, TRAIN_S)
    assert_nothing_is_lost(services, training)
    assert services.client.model(task.model_id).status == "registered"
    assert_proven(services.client, task)


def outlive(
    services: Services,
    training: Training,
    stop: Callable[[], None],
    start: Callable[[], object],
    for_s: float,
) -> None:
    """The training goes on while a server is away for `for_s`, and nothing is lost by it."""
    stop()
    before, stopped_at = training.look(), time.monotonic()
    while training.look() < before + 2 or time.monotonic() < stopped_at + for_s:
        assert time.monotonic() < stopped_at + for_s + EPOCHS_S
        time.sleep(POLL_S)
    meanwhile = training.look()

    start()
    for service in services.services.values():
        service.await_ready(READY_S)
    services.until(training.task, lambda task: is_recorded(task, meanwhile), ARRIVE_S)
    assert_nothing_is_lost(services, training)


def is_recorded(task: Task, epochs: int) -> bool:
    """Whether the log knows of so many epochs, and of a checkpoint that is no older."""
    return len(task.json["epochs"]) >= epochs and task.json["checkpoints"][-1]["epoch"] >= epochs


def assert_nothing_is_lost(services: Services, training: Training) -> None:
    """The one attempt has reported each epoch, in order; no lease has ended."""
    events = list(services.client.events(training.task.id))
    assert {event["type"] for event in events}.isdisjoint(
        {"HeartbeatTimedOut", "AttemptFailed", "StaleReportRecorded"}
    )
    epochs = [e["data"]["epoch"] for e in events if e["type"] == "EpochCompleted"]
    assert epochs == list(range(1, len(epochs) + 1))
    attempts = services.client.task(training.task.id).json["attempts"]
    assert [a["pid"] for a in attempts if a["stage"] == "train"] == [training.pid]
    assert "WorkerLost" not in services.event_types()
