"""Queues that vanish, messages that nobody can handle, and handlers that are slower than the broker
is patient: each task runs once, and nothing is lost.
"""

import asyncio
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import aio_pika
import asyncpg
import psutil
import pytest
from aio_pika.abc import AbstractConnection

from perdure.client import DeadLetter, Task
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.messaging import rabbitmq_queues, topology
from perdure.messaging.port import Queue, QueueView
from perdure.runtime.clock import SystemClock, new_id
from perdure_embedded.birds import draw_bird_dataset
from perdure_gateway.submission import task_id_for
from tests.builders.command_line import CommandLine
from tests.builders.proof import assert_succeeded_once
from tests.builders.services import Services, trains_with_a_checkpoint

# The work of a test takes a third of this, or less, where nothing else runs.
pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(600)]

# Above what a handler takes on a busy machine, and below the time of the shortest training.
CONSUMER_TIMEOUT_S = 5.0
CONSUMERS_BACK_S = 30.0
EPOCHS = 6
IMPORT_S = 120.0
TRAIN_S = 400.0
REPORT_S = 60.0  # a training says something each few seconds
DEATH_S = 60.0  # five tries take a second
POLL_S = 0.2
POISON = b"\xff\xfe no protobuf"

T = TypeVar("T")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("stack")
    with Services(folder, consumer_timeout_s=CONSUMER_TIMEOUT_S) as running:
        yield running


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=16, size_px=64)


@pytest.fixture
def perdure(
    services: Services, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    monkeypatch.setenv("PERDURE_URL", services.url)
    return CommandLine(monkeypatch, capsys)


def until(holds: Callable[[], T], timeout_s: float) -> T:
    """Wait until `holds` gives something true, and give that."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(POLL_S)
    return found


# ---- what somebody at the broker, and at the database, does and sees -----------------------------


def at_broker(services: Services, act: Callable[[AbstractConnection], Awaitable[T]]) -> T:
    """Do something with a connection of one's own."""

    async def connected() -> T:
        async with await aio_pika.connect(services.rabbitmq.url) as connection:
            return await act(connection)

    return asyncio.run(connected())


def view(services: Services, queue: Queue) -> QueueView:
    return at_broker(services, lambda connection: rabbitmq_queues.inspect(connection, queue))


def consumers_are_back(services: Services, *queues: Queue) -> bool:
    async def counted(connection: AbstractConnection) -> list[int]:
        async with connection.channel() as channel:
            return [
                (await channel.get_queue(queue.name)).declaration_result.consumer_count
                for queue in queues
            ]

    try:
        return at_broker(services, counted) == [1] * len(queues)
    except aio_pika.exceptions.ChannelNotFoundEntity:
        return False


def made_anew(services: Services, queue: Queue) -> int:
    """Delete the queue by hand and make it again, empty; gives how many messages went with it."""

    async def delete_and_declare(connection: AbstractConnection) -> int:
        async with connection.channel() as channel:
            deleted = await channel.queue_delete(queue.name)
        await rabbitmq_queues.declare(connection, queue)
        return deleted.message_count

    return at_broker(services, delete_and_declare)


def publish(services: Services, exchange: str, routing_key: str, message: aio_pika.Message) -> None:
    async def to_exchange(connection: AbstractConnection) -> None:
        async with connection.channel() as channel:
            await (await channel.get_exchange(exchange)).publish(message, routing_key)

    at_broker(services, to_exchange)


def timeouts(services: Services) -> int:
    """How often the broker has lost patience with a consumer."""
    logs = (services.rabbitmq.folder / "log").glob("*.log")
    return sum(len(re.findall(r"has timed out waiting", log.read_text())) for log in logs)


@contextmanager
def paused(services: Services, label: str) -> Iterator[None]:
    """A service that stands still as a whole."""
    process = psutil.Process(services.services[label].pid)
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def log_locked(services: Services) -> Iterator[None]:
    """Somebody holds a lock that each append waits for; all else in the database goes on."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(services.postgres.url))
        try:
            runner.run(connection.execute("BEGIN"))
            runner.run(connection.execute("SELECT * FROM perdure.log_head FOR UPDATE"))
            yield
        finally:
            runner.run(connection.close())


class Listening:
    """What a service logs from now on."""

    def __init__(self, services: Services, label: str) -> None:
        self._output = services.services[label].output
        self._from = len(self._output.read_text().splitlines())

    def lines(self) -> list[dict[str, Any]]:
        lines = self._output.read_text().splitlines()[self._from :]
        return [json.loads(line) for line in lines]

    def heard(self, text: str) -> bool:
        return any(text in line["message"] for line in self.lines())

    def worked_s(self, task: Task) -> float:
        """How long a worker took for its one attempt of the task."""
        begins, ended = (
            datetime.fromisoformat(line["time"])
            for line in self.lines()
            if line.get("task") == task.id and line["message"].startswith("attempt ")
        )
        return (ended - begins).total_seconds()


# ---- what must hold ------------------------------------------------------------------------------


def assert_ran_once(services: Services, task: Task, epochs: int = EPOCHS) -> None:
    """One attempt for each stage; each report recorded once, in order; nothing lost or parked."""
    shown = services.client.task(task.id).json
    assert [(a["stage"], a["outcome"]) for a in shown["attempts"]] == [
        ("prepare", "succeeded"),
        ("train", "succeeded"),
        ("publish", "succeeded"),
    ]
    assert_succeeded_once(services.client, task)
    events = list(services.client.events(task.id))
    assert [e["data"]["epoch"] for e in events if e["type"] == "EpochCompleted"] == list(
        range(1, epochs + 1)
    )
    saved = [e["data"]["epoch"] for e in events if e["type"] == "CheckpointSaved"]
    assert saved == list(range(1, epochs + 1))
    assert_nothing_lost(services, task)


def assert_nothing_lost(services: Services, task: Task) -> None:
    services.client.verify()
    counts = services.client.reconcile().counts
    assert (counts["lost"], counts["duplicated"], counts["differs"]) == (0, 0, 0)
    assert [letter for letter in services.client.dead_letters() if letter.task_id == task.id] == []


def has_reported(task: Task, reports: int) -> bool:
    """Whether so many reports about the training are recorded."""
    return bool(task.json["attempts"][1]["reports"] >= reports)


# ---- queues deleted by hand ----------------------------------------------------------------------


def test_queues_deleted_with_what_is_in_them_come_back_and_the_reports_are_sent_again(
    services: Services, birds: Path
) -> None:
    reports, beats = topology.SCHEDULER_REPORTS, topology.SCHEDULER_HEARTBEATS
    told = topology.work_queue("trainer-agent")
    agent = Listening(services, "trainer-agent")
    task = services.submit(birds, epochs=EPOCHS)
    services.until(task, trains_with_a_checkpoint, TRAIN_S)
    with paused(services, "scheduler"):
        until(lambda: view(services, reports).messages >= 2, REPORT_S)
        assert made_anew(services, reports) >= 2
        made_anew(services, beats)
        services.rabbitmq.delete_queue(told.name)  # and nobody makes it again but its consumer
    known = services.client.task(task.id).json["attempts"][-1]["reports"]
    back_by = time.monotonic() + CONSUMERS_BACK_S
    until(lambda: consumers_are_back(services, reports, beats, told), CONSUMERS_BACK_S)
    # The broker may count the consumer of the deleted queue on: what counts is that reports are
    # taken, besides the one that the scheduler has had in its hands all the time.
    services.until(task, lambda t: has_reported(t, known + 2), back_by - time.monotonic())
    services.succeeded(task, TRAIN_S)
    assert agent.heard("reports without an answer are sent again")
    assert_ran_once(services, task)


# ---- handlers slower than the broker is patient --------------------------------------------------


def test_a_report_that_waits_for_the_log_longer_than_the_broker_waits_counts_once(
    services: Services, birds: Path
) -> None:
    scheduler, agent = Listening(services, "scheduler"), Listening(services, "trainer-agent")
    task = services.submit(birds, epochs=EPOCHS)
    services.until(task, trains_with_a_checkpoint, TRAIN_S)
    before = timeouts(services)
    with log_locked(services):
        until(lambda: timeouts(services) > before, REPORT_S)
    services.succeeded(task, TRAIN_S)
    assert scheduler.heard("not consuming scheduler.reports: ")  # the broker took the report away
    assert_ran_once(services, task)

    # The assignment was acknowledged at once: its work may take as long as it likes.
    assert agent.worked_s(task) > CONSUMER_TIMEOUT_S
    assert not agent.heard("not consuming")


def test_a_log_that_is_away_for_longer_than_the_broker_waits_costs_nothing(
    services: Services, birds: Path
) -> None:
    task = services.submit(birds, epochs=EPOCHS)
    services.until(task, trains_with_a_checkpoint, TRAIN_S)
    services.postgres.stop_at_once()
    back_at = time.monotonic() + 2 * CONSUMER_TIMEOUT_S
    until(lambda: view(services, topology.SCHEDULER_REPORTS).messages >= 1, REPORT_S)
    until(lambda: time.monotonic() > back_at, REPORT_S)
    services.postgres.start()
    services.succeeded(task, TRAIN_S)
    assert_ran_once(services, task)


# ---- messages that nobody can handle -------------------------------------------------------------


def report_message(report: work_pb2.Report) -> aio_pika.Message:
    return aio_pika.Message(report.SerializeToString(), message_id=report.id, type="Report")


def letter(services: Services, letter_id: str, *, deaths: int) -> DeadLetter | None:
    """The dead letter, once it has died so often."""
    for found in services.client.dead_letters(prefix=letter_id):
        if found.id == letter_id and len(found.json["deaths"]) == deaths:
            return found
    return None


def dead(services: Services, letter_id: str, *, deaths: int = 1) -> DeadLetter:
    found = until(lambda: letter(services, letter_id, deaths=deaths), DEATH_S)
    assert found is not None
    return found


class ByHand:
    """A worker for stage "prepare" whose messages the test writes. No other comes before it in the
    alphabet, so that it is chosen as soon as it is heard.
    """

    def __init__(self, services: Services) -> None:
        self.id = "by-hand"
        self.incarnation = new_id()
        self._services = services

    def beats(self, *attempts: str, draining: bool = False) -> None:
        """A heartbeat: it holds the first attempt of each of these tasks."""
        heartbeat = work_pb2.Heartbeat(
            worker=events_pb2.WorkerRegistered(
                worker_id=self.id, incarnation=self.incarnation, stages=["prepare"], capacity=1
            ),
            time=SystemClock().now(),
            attempts=[work_pb2.AttemptProgress(task_id=task, fence=1) for task in attempts],
            draining=draining,
        )
        message = aio_pika.Message(
            heartbeat.SerializeToString(), message_id=new_id(), type="Heartbeat"
        )
        publish(self._services, topology.TELEMETRY, self.id, message)

    def reports(self, task_id: str, seq: int, **body: Any) -> str:
        """A report about the first attempt of a task; gives its id."""
        report = work_pb2.Report(
            id=new_id(),
            task_id=task_id,
            stage="prepare",
            fence=1,
            worker_id=self.id,
            incarnation=self.incarnation,
            time=SystemClock().now(),
            seq=seq,
            **body,
        )
        publish(self._services, topology.REPORTS, "prepare", report_message(report))
        return report.id


def test_a_report_that_came_too_early_takes_effect_when_it_is_replayed(
    services: Services, birds: Path
) -> None:
    upload, key = services.client.upload(birds), new_id()
    task_id = task_id_for(key)
    by_hand = ByHand(services)
    early = by_hand.reports(task_id, 1, started=events_pb2.AttemptStarted(fence=1, pid=4711))
    assert "there is no such task" in dead(services, early).json["deaths"][0]["error"]

    by_hand.beats()
    task = services.client.submit(goal="dataset", name="birds", upload=upload, idempotency_key=key)
    assert task.id == task_id
    task = services.until(task, lambda t: bool(t.json["attempts"]), IMPORT_S)
    assert task.json["attempts"][0]["worker_id"] == by_hand.id
    by_hand.beats(task.id)
    services.client.replay_dead_letter(early)
    task = services.until(task, lambda t: t.json["attempts"][0]["pid"] == 4711, IMPORT_S)
    shown = services.client.dead_letter(early)
    assert shown.status == "replayed"
    assert [effect["type"] for effect in shown.json["effect"]] == ["AttemptStarted"]

    # It goes, and the work is done by the worker that is there.
    by_hand.beats(task.id, draining=True)
    by_hand.reports(task.id, 2, failed=events_pb2.AttemptFailed(fence=1, failure="worker_stopped"))
    services.succeeded(task, IMPORT_S)
    assert_succeeded_once(services.client, task)
    parked = [finding.subject for finding in services.client.reconcile().findings]
    assert early not in parked


def test_messages_that_always_fail_are_parked_while_others_flow_and_can_be_replayed(
    services: Services, birds: Path, perdure: CommandLine
) -> None:
    orphan = work_pb2.Report(
        id=new_id(),
        task_id="0123456789abcdef",
        stage="train",
        fence=1,
        worker_id="nobody",
        seq=1,
        started=events_pb2.AttemptStarted(fence=1),
    )
    garbage = f"garbage-{new_id()}"
    publish(services, topology.REPORTS, "train", report_message(orphan))
    publish(
        services,
        topology.REPORTS,
        "train",
        aio_pika.Message(POISON, message_id=garbage, type="Report"),
    )
    task = services.succeeded(services.client.push_dataset(birds, "birds"), IMPORT_S)
    assert_succeeded_once(services.client, task)

    for letter_id, error in ((orphan.id, "there is no such task"), (garbage, "cannot be read")):
        (death,) = dead(services, letter_id).json["deaths"]
        assert (death["queue"], death["reason"]) == ("scheduler.reports", "failed")
        assert death["deliveries"] == topology.SCHEDULER_REPORTS.delivery_limit
        assert error in death["error"]
    listed = perdure("audit", "dead-letters", "ls", "--status", "parked", "--json").json
    assert {orphan.id, garbage} <= {form["id"] for form in listed}
    reconciled = perdure("audit", "reconcile", "--json")
    assert reconciled.code == 1
    parked = {f["subject"] for f in reconciled.json["findings"] if f["category"] == "parked"}
    assert {orphan.id, garbage} <= parked

    again = perdure("audit", "dead-letters", "replay", garbage)
    assert again.code == 0
    assert "put back into scheduler.reports" in again.out
    twice = dead(services, garbage, deaths=2)
    assert twice.status == "parked"
    assert [death["replay"] for death in twice.json["deaths"]] == [0, 1]
    shown = perdure("audit", "dead-letters", "show", garbage, "--json").json
    assert len(shown["replays"]) == 1
    assert view(services, topology.SCHEDULER_REPORTS).messages == 0
