"""Wall time of a training, and of a whole task, against `yolo train`: same set, same settings.

All run as processes of their own, in turns, start-up included. A whole task runs through a server:
upload, import, training with its checkpoints, export, parity, evaluation, registration. Prints one
JSON line for each measure; run it with `python -m tests.bench.bench_training`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perdure.attempts.channel import JOB_FILE
from perdure.datasets.cache import LocalDataset
from perdure.training.config import TrainConfig
from tests.builders.server import Server
from tests.builders.training import local_birds

ROUNDS: Final = 2
IMAGES: Final = 240
SIZE_PX: Final = 128
TIMEOUT_S: Final = 600
CONFIG: Final = TrainConfig(
    model="yolo11n.yaml",
    imgsz=SIZE_PX,
    batch=16,
    nbs=16,
    epochs=4,
    warmup_epochs=3,
    optimizer="AdamW",
    lr0=0.002,
    momentum=0.9,
    mosaic=0.0,
    close_mosaic=0,
    workers=0,
    device="cpu",
    patience=0,
)
# Upstream's rule for the number of threads (ultralytics.utils.NUM_THREADS): one core is left free.
THREADS: Final = min(8, max(1, (os.cpu_count() or 1) - 1))
NOT_UPSTREAMS: Final = frozenset({"val_ratio", "patience", "cache_samples"})


def ours(data: LocalDataset, folder: Path, threads: int | None) -> float:
    """Seconds of one attempt in the trainer-agent's child process, checkpoints included."""
    folder.mkdir(parents=True)
    job = {
        "task_id": "bench",
        "fence": 1,
        "stage": "train",
        "dataset_dir": str(data.root),
        "config_json": CONFIG.canonical(),
        "checkpoint_path": None,
        "checkpoint_dir": str(folder / "checkpoints"),
        "samples_dir": str(folder / "samples"),
        "threads": threads,
    }
    (folder / JOB_FILE).write_text(json.dumps(job))
    return timed([sys.executable, "-m", "perdure_trainer_agent.child", str(folder)], folder, {})


def task(source: Path, server: Server) -> float:
    """Seconds of one task on a server that runs, from the upload to the registered model."""
    started = time.monotonic()
    upload = server.client.upload(source)
    submitted = server.client.submit(name="bench", upload=upload, config=CONFIG.model_dump())
    server.client.result(submitted.id)
    return time.monotonic() - started


def theirs(source: Path, folder: Path) -> float:
    """Seconds of `yolo train`, without the plots that we do not draw either."""
    folder.mkdir(parents=True)
    settings = {
        name: value for name, value in CONFIG.model_dump().items() if name not in NOT_UPSTREAMS
    }
    settings |= {"data": str(source / "data.yaml"), "plots": False, "amp": False, "val": True}
    settings |= {"pretrained": False, "project": str(folder), "name": "run"}
    arguments = [f"{name}={value}" for name, value in settings.items()]
    yolo = str(Path(sys.executable).with_name("yolo"))
    environment = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
    environment |= {"YOLO_CONFIG_DIR": str(folder), "MPLCONFIGDIR": str(folder)}
    return timed([yolo, "detect", "train", *arguments], folder, environment)


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Run a command with its output in a file, and give its wall time in seconds."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    with (folder / "log").open("wb") as log:
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables, cwd=folder
        )
        code = process.wait(TIMEOUT_S)
        took_s = time.monotonic() - started
    if code:
        sys.exit(f"{command[:4]} ended with {code}:\n{(folder / 'log').read_text()[-2000:]}")
    return took_s


def say(name: str, value: float, peer_value: float) -> None:
    line = {
        "name": name,
        "value": round(value, 2),
        "unit": "s",
        "peer": "yolo train",
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3),
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        root = Path(name)
        data = local_birds(root, images=IMAGES, size_px=SIZE_PX)
        source = root / "source"
        server = Server(root / "server")
        runs: dict[str, Callable[[Path], float]] = {
            "same": lambda folder: ours(data, folder, THREADS),
            "peer": lambda folder: theirs(source, folder),
            "all": lambda folder: ours(data, folder, None),
            "task": lambda _folder: task(source, server),
        }
        took: dict[str, list[float]] = {kind: [] for kind in runs}
        try:
            for turn in range(ROUNDS):
                for kind, run in runs.items():
                    took[kind].append(run(root / f"{kind}-{turn}"))
        finally:
            server.end()
        # The least of a few runs: what other processes add to one is no property of the program.
        best = {kind: min(values) for kind, values in took.items()}
        say(f"training.wall.{THREADS}-threads", best["same"], best["peer"])
        say("training.wall.default-threads", best["all"], best["peer"])
        say("task.wall", best["task"], best["peer"])
        spread = {kind: round(statistics.median(values), 2) for kind, values in took.items()}
        print(json.dumps({"name": "training.wall.medians", "unit": "s", **spread}), flush=True)


if __name__ == "__main__":
    main()
