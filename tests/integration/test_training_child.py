"""A training attempt as its supervisor runs it: a process with a job folder and a channel."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from perdure.attempts.channel import CHANNEL_VARIABLE, JOB_FILE, STOPPED
from perdure.training.checkpoint import (
    load_detector,
    local_checkpoints,
    read_checkpoint,
    weights_digest,
)
from perdure.training.config import TrainConfig
from perdure_trainer_agent.child import failure_of
from tests.builders.training import local_birds

pytestmark = [pytest.mark.slow, pytest.mark.crash]

CONFIG = TrainConfig(imgsz=64, batch=4, nbs=4, epochs=3, seed=5)
END_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return local_birds(tmp_path_factory.mktemp("birds"), images=15, size_px=64)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where programs like to leave things: empty folders."""
    root = tmp_path_factory.mktemp("places")
    found = {name: root / name for name in ("HOME", "TMPDIR", "PWD", "XDG_CONFIG_HOME")}
    for place in found.values():
        place.mkdir()
    return found


@pytest.fixture(scope="module")
def undisturbed(birds, places, tmp_path_factory):
    """An attempt that has run to its end, and that found the data set as it left it."""
    before = contents(birds.root)
    finished = attempt(birds, tmp_path_factory.mktemp("undisturbed") / "job", **places)
    finished.touched_data = contents(birds.root) != before
    return finished


class Attempt:
    """A child process and what it has said so far."""

    def __init__(self, job_dir: Path, process: subprocess.Popen, channel: Any) -> None:
        self.job_dir = job_dir
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.touched_data = False
        self._channel = channel

    def read_until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Read what the child says until a line is enough, or the end."""
        for text in self._channel:
            self.lines.append(json.loads(text))
            if enough(self.lines[-1]):
                return

    def end(self) -> int:
        self.read_until(lambda _line: False)
        return self.process.wait(END_TIMEOUT_S)

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


@contextmanager
def started(birds, job_dir: Path, config=CONFIG, checkpoint=None, **places) -> Iterator[Attempt]:
    """A running attempt; it is killed at the end if it is still there."""
    job_dir.mkdir(parents=True)
    job = {
        "task_id": "task-1",
        "fence": 1,
        "stage": "train",
        "dataset_dir": str(birds.root),
        "config_json": config if isinstance(config, str) else config.canonical(),
        "checkpoint_path": str(checkpoint) if checkpoint else None,
        "checkpoint_dir": str(job_dir / "checkpoints"),
        "samples_dir": str(job_dir / "samples"),
        "threads": 1,
    }
    (job_dir / JOB_FILE).write_text(json.dumps(job))
    read_end, write_end = os.pipe()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("YOLO")}
    environment |= {
        "PYTHONPATH": os.pathsep.join(sys.path),
        CHANNEL_VARIABLE: str(write_end),
        **{name: str(place) for name, place in places.items()},
    }
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "perdure_trainer_agent.child", str(job_dir)],
        stdin=subprocess.PIPE,
        stdout=(job_dir / "log").open("wb"),
        stderr=subprocess.STDOUT,
        pass_fds=(write_end,),
        start_new_session=True,
        env=environment,
        cwd=places.get("PWD", job_dir),
    )
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as channel:
        try:
            yield Attempt(job_dir, process, channel)
        finally:
            process.kill()
            process.wait(END_TIMEOUT_S)
            process.stdin.close()


def attempt(birds, job_dir: Path, **options) -> Attempt:
    """An attempt that has run to its end."""
    with started(birds, job_dir, **options) as running:
        running.end()
    return running


def final_weights(finished: Attempt) -> str:
    assert finished.process.returncode == 0, (finished.job_dir / "log").read_text()
    return weights_digest(
        read_checkpoint(local_checkpoints(finished.job_dir / "checkpoints")[-1]).model
    )


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.name != "in-use"  # says when, and by whom
    }


def test_an_attempt_reports_its_start_its_epochs_its_checkpoints_and_its_result(undisturbed):
    assert undisturbed.process.returncode == 0
    assert undisturbed.said("started") == [{"kind": "started", "resumed_from_epoch": None}]
    assert [line["epoch"] for line in undisturbed.said("epoch")] == [1, 2, 3]
    assert [line["epoch"] for line in undisturbed.said("checkpoint")] == [1, 2, 3]
    assert [line["step"] for line in undisturbed.said("checkpoint")] == [3, 6, 9]
    phases = [line["phase"] for line in undisturbed.said("progress")]
    assert phases[0] == "starting"
    assert {"training", "validating", "saving"} <= set(phases)
    result = undisturbed.lines[-1]["result"]
    assert result["epochs"] == 3
    assert Path(result["best_path"]).stat().st_size == result["best_size_bytes"]
    detector = load_detector(Path(result["best_path"]))
    assert list(detector.names.values()) == ["heron", "kingfisher"]
    assert result["weights_digest"] == weights_digest(detector.state_dict())


def log_of(finished: Attempt) -> list[str]:
    """The lines of the log without the time that each begins with."""
    lines = (finished.job_dir / "log").read_text().splitlines()
    assert all(re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines), lines
    return [line.split(" ", 1)[1] for line in lines]


def test_the_log_tells_what_is_trained_and_how_it_goes(birds, undisturbed):
    lines = log_of(undisturbed)
    assert lines[0] == (
        f"data set {birds.version[:12]}, split {birds.split_id[:12]}: 12 images to train, "
        "3 to validate; 2 classes: heron, kingfisher"
    )
    assert re.fullmatch(
        r"model yolo11n.yaml with 2,\d\d\d,\d\d\d parameters, random weights at first", lines[1]
    )
    assert lines[2].startswith("device cpu (no GPU is used), 1 CPU threads, 0 processes")
    assert lines[3] == f"configuration {CONFIG.hash[:12]} {CONFIG.canonical()}"
    number = r"\d+\.\d{4}"
    for epoch, line in enumerate(lines[4:10:2], start=1):
        assert re.fullmatch(
            rf"epoch {epoch}/3: box_loss {number}, cls_loss {number}, dfl_loss {number}, "
            rf"mAP50 {number}, mAP50-95 {number}( \((best so far|nothing found)\))?, "
            r"lr \S+, 12 images in \S+ s",
            line,
        ), line
    assert re.fullmatch(r"checkpoint saved after epoch 1, step 0 of 3: \S+ MB", lines[5])
    best = undisturbed.lines[-1]["result"]
    assert lines[10] == (
        f"trained for 3 epochs; the best is epoch {best['best_epoch']} with mAP50 "
        f"{best['map50']:.4f}, mAP50-95 {best['map50_95']:.4f}"
    )


def test_nothing_is_written_outside_the_job_folder(undisturbed, places):
    assert [path for place in places.values() for path in place.rglob("*")] == []
    assert not undisturbed.touched_data


def test_an_attempt_killed_between_checkpoints_resumes_to_the_same_bits(
    birds, undisturbed, tmp_path
):
    with started(birds, tmp_path / "killed") as running:
        running.read_until(lambda line: line["kind"] == "checkpoint")
        running.read_until(lambda line: line.get("phase") == "training")  # a step of epoch 2
        running.process.kill()
        assert running.process.wait(END_TIMEOUT_S) == -signal.SIGKILL
    newest = local_checkpoints(tmp_path / "killed" / "checkpoints")[-1]
    resumed = attempt(birds, tmp_path / "resumed", checkpoint=newest)
    assert resumed.said("started")[0]["resumed_from_epoch"] >= 1
    assert final_weights(resumed) == final_weights(undisturbed)


def test_an_attempt_asked_to_stop_saves_where_it_is(birds, undisturbed, tmp_path):
    """The whole group gets the signal, loader processes too, which keep samples meanwhile."""
    config = CONFIG.model_copy(update={"workers": 2, "cache_samples": True})
    with started(birds, tmp_path / "stopped", config=config) as running:
        running.read_until(lambda line: line.get("phase") == "training")
        os.killpg(running.process.pid, signal.SIGTERM)
        assert running.end() == STOPPED, (tmp_path / "stopped" / "log").read_text()
    saved = running.said("checkpoint")[-1]
    assert running.lines[-1] == saved
    stop, save = log_of(running)[-2:]
    place = re.fullmatch(r"stop asked for (after epoch \d, step \d of 3)", stop).group(1)
    assert save.startswith(f"checkpoint saved {place}: ")
    resumed = attempt(birds, tmp_path / "resumed", config=config, checkpoint=saved["path"])
    assert f"resumed {place}" in "\n".join(log_of(resumed))
    assert final_weights(resumed) == final_weights(undisturbed)
    assert list((tmp_path / "resumed" / "samples").glob("*/00002-plain/*.samples"))


def test_a_damaged_checkpoint_is_never_passed_over_in_silence(birds, undisturbed, tmp_path):
    whole = local_checkpoints(undisturbed.job_dir / "checkpoints")[-1].read_bytes()
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(whole[: len(whole) // 2])
    failed = attempt(birds, tmp_path / "job", checkpoint=damaged)
    assert failed.process.returncode == 1
    assert failed.lines[-1]["failure"] == "checkpoint_damaged"
    assert "damaged.pt: damaged or cut short" in failed.lines[-1]["detail"]
    assert not failed.said("epoch")


def test_a_configuration_that_does_not_read_is_named(birds, tmp_path):
    failed = attempt(birds, tmp_path / "job", config='{"epochs": "many"}')
    assert failed.lines[-1]["failure"] == "config_invalid"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_a_wrong_configuration(birds, tmp_path):
    config = CONFIG.model_copy(update={"device": "cuda:0"})
    failed = attempt(birds, tmp_path / "job", config=config)
    assert failed.lines[-1] == {
        "kind": "failed",
        "failure": "config_invalid",
        "detail": "this machine has no CUDA device; use device=auto",
    }


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "device_oom"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"), "host_oom"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), "killed"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "device_ecc"),
        (RuntimeError("CUDA driver version is insufficient"), "driver_mismatch"),
        (RuntimeError("The NVIDIA driver on your system is too old"), "driver_mismatch"),
        (RuntimeError("shapes do not match"), None),
    ],
)
def test_errors_of_torch_and_the_system_have_their_class(error, failure):
    assert failure_of(error) == failure
