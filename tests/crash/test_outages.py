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
RECOVERY_S = 5.0  # about, from a server's start until what waited for it is recorded
SPARE = 1.15  # by which the training is longer than all outages, at the pace of its beginning
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


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("stack")) as running:
        yield running


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


def test_a_training_goes_on_while_one_server_after_the_other_is_away(
    services: Services, birds: Path
) -> None:
    away_s = 2 * LONG_S + 2 * SHORT_S + 4 * RECOVERY_S
    epochs = math.ceil(SPARE * away_s / epoch_s(services, birds))
    training = Training(services, services.submit(birds, epochs=epochs))
    rabbitmq, postgres, s3 = services.rabbitmq, services.postgres, services.seaweedfs
    outlive(services, training, rabbitmq.stop, rabbitmq.start, LONG_S)
    outlive(services, training, rabbitmq.wipe, rabbitmq.start, SHORT_S)
    outlive(services, training, postgres.stop_at_once, postgres.start, SHORT_S)
    outlive(services, training, s3.stop, s3.start, LONG_S)

    task = services.succeeded(training.task, TRAIN_S)
    assert_nothing_is_lost(services, training)
    assert services.client.model(task.model_id).status == "registered"
    assert_proven(services.client, task)


def epoch_s(services: Services, birds: Path) -> float:
    """How long an epoch takes on this machine."""
    task = services.submit(birds, epochs=50)
    services.until(task, lambda t: len(t.json["epochs"]) >= 4, TRAIN_S)
    services.client.cancel(task.id)
    services.until(task, lambda t: t.status == "cancelled", READY_S)
    events = services.client.events(task.id)
    ends = [datetime.fromisoformat(e["time"]) for e in events if e["type"] == "EpochCompleted"]
    return (ends[3] - ends[0]).total_seconds() / 3


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
