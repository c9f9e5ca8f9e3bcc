"""The main job on the real server, with real processes, killed at the worst times."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.artifacts.folder import FolderStore
from perdure.client import Task
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.processes import lives
from tests.builders.server import Server, until

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(280)]
CONFIG = {"epochs": 4, "imgsz": 64, "batch": 8, "seed": 3, "workers": 0, "mosaic": 0.0}
TRAIN_S = 180.0


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_bird_dataset(tmp_path_factory.mktemp("data") / "birds", images=32, size_px=64)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers that the test starts; ended with the test."""
    started: list[Server] = []
    yield started
    for server in started:
        server.end()


def submitted(server: Server, birds: Path) -> Task:
    return server.client.submit(name="birds", upload=server.client.upload(birds), config=CONFIG)


def trains_with_a_checkpoint(task: Task) -> bool:
    """Whether a training runs that has saved a checkpoint of its own."""
    attempt, saved = task.json["attempts"][-1:], task.json["checkpoints"][-1:]
    return bool(attempt and saved) and attempt[0]["fence"] == saved[0]["fence"]


def assert_proven(server: Server, task: Task) -> None:
    """The log is whole, and tells the same as the projection."""
    verification = server.client.verify()
    assert verification.first == 1
    assert verification.last > 10
    assert server.client.replay(task.id).json == server.client.task(task.id).json


def test_a_killed_training_and_a_killed_server_cost_nothing(
    birds: Path, tmp_path: Path, servers: list[Server]
) -> None:
    servers.append(Server(tmp_path / "data"))
    task = submitted(servers[-1], birds)

    task = until(servers[-1], task, trains_with_a_checkpoint, TRAIN_S)
    os.kill(task.json["attempts"][-1]["pid"], signal.SIGKILL)
    task = until(servers[-1], task, lambda t: t.json["attempts"][-1]["fence"] == 3, 30)
    assert task.json["attempts"][1]["failure"] == "killed"
    assert task.json["attempts"][1]["exit_code"] == -signal.SIGKILL

    task = until(servers[-1], task, trains_with_a_checkpoint, TRAIN_S)
    family = servers[-1].descendants()
    servers[-1].kill_with_all_children()
    assert not any(lives(p) for p in family)

    servers.append(Server(tmp_path / "data"))
    task = until(servers[-1], task, lambda t: t.status == "succeeded", TRAIN_S)
    trainings = [a for a in task.json["attempts"] if a["stage"] == "train"]
    assert [a["outcome"] for a in trainings] == ["failed", "failed", "succeeded"]
    assert trainings[0]["resumed_from_epoch"] is None
    assert trainings[1]["resumed_from_epoch"] >= 1
    assert trainings[2]["resumed_from_epoch"] >= 2
    assert trainings[1]["failure"] == "lost_worker"
    model = servers[-1].client.model(task.model_id)
    assert model.status == "registered"
    assert_proven(servers[-1], task)

    again = submitted(servers[-1], birds)
    again = until(servers[-1], again, lambda t: t.status == "succeeded", TRAIN_S)
    assert [a["outcome"] for a in again.json["attempts"]] == ["succeeded"] * 3
    digests = {t.json["trained"]["weights_digest"] for t in (task, again)}
    for each in (task, again):
        card = servers[-1].client.model_card(each.model_id)
        digests.add(card["checkpoint"]["weights_digest"])
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def test_a_killed_postgres_is_started_again_and_the_server_still_stops_in_time(
    birds: Path, tmp_path: Path, servers: list[Server]
) -> None:
    servers.append(Server(tmp_path / "data"))
    postmaster = tmp_path / "data/postgres/data/postmaster.pid"
    first = int(postmaster.read_text().splitlines()[0])
    os.kill(first, signal.SIGKILL)
    task = servers[-1].client.push_dataset(birds, "birds")
    task = until(servers[-1], task, lambda t: t.status == "succeeded", 60)
    assert int(postmaster.read_text().splitlines()[0]) != first
    verification = servers[-1].client.verify()
    assert verification.first == 1
    assert servers[-1].client.replay(task.id).json == servers[-1].client.task(task.id).json
    os.kill(int(postmaster.read_text().splitlines()[0]), signal.SIGKILL)
    assert servers[-1].stop(signal.SIGINT) < 10


def test_a_damaged_newest_checkpoint_is_passed_over(
    birds: Path, tmp_path: Path, servers: list[Server]
) -> None:
    servers.append(Server(tmp_path / "data"))
    task = submitted(servers[-1], birds)
    task = until(servers[-1], task, lambda t: len(t.json["checkpoints"]) == 2, TRAIN_S)
    servers[-1].kill_with_all_children()

    store = FolderStore(tmp_path / "data/store")
    newest = list(store.list(f"checkpoints/{task.id}/"))[-1]
    path = (tmp_path / "data/store/keys" / f"{newest.key}@").resolve()
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-100])

    servers.append(Server(tmp_path / "data"))
    task = until(servers[-1], task, lambda t: t.status == "succeeded", TRAIN_S)
    last = [a for a in task.json["attempts"] if a["stage"] == "train"][-1]
    assert last["resumed_from_epoch"] is not None
    assert_proven(servers[-1], task)


def test_ctrl_c_saves_a_checkpoint_and_the_next_start_goes_on(
    birds: Path, tmp_path: Path, servers: list[Server]
) -> None:
    servers.append(Server(tmp_path / "data"))
    task = submitted(servers[-1], birds)
    task = until(servers[-1], task, trains_with_a_checkpoint, TRAIN_S)

    second = subprocess.run(
        [sys.executable, "-m", "perdure", "up", "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 1
    assert str(servers[-1].process.pid) in second.stderr
    assert "Traceback" not in second.stderr

    family = servers[-1].descendants()
    assert servers[-1].stop(signal.SIGINT) < 10
    assert not any(lives(p) for p in family)
    assert not (tmp_path / "data/server.json").exists()

    servers.append(Server(tmp_path / "data"))
    task = servers[-1].client.task(task.id)
    stopped, *_ = [a for a in task.json["attempts"] if a["stage"] == "train"]
    assert stopped["failure"] == "worker_stopped"
    task = until(servers[-1], task, lambda t: t.status == "succeeded", TRAIN_S)
    last = [a for a in task.json["attempts"] if a["stage"] == "train"][-1]
    assert last["resumed_from_epoch"] is not None
    assert_proven(servers[-1], task)
