"""The demo: draw birds, train on them, kill the training in the middle, see the task finish all
the same.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from perdure.cli.events import event_line, watched_line
from perdure.client import Client, Model, Task
from perdure.errors import PerdureError
from perdure_embedded.birds import draw_bird_dataset
from perdure_embedded.folder import SERVER_FILE

DEFAULT_FOLDER: Final = Path("perdure-demo")
NAME: Final = "demo-birds"
CONFIG: Final[dict[str, Any]] = {
    "model": "yolo11n.yaml",
    "epochs": 20,
    "imgsz": 128,
    "batch": 16,
    "seed": 0,
    "lr0": 0.002,
    "warmup_epochs": 1,
    "mosaic": 0,
}
# The training is killed in the middle of the epoch after this many are complete.
KILL_AFTER_EPOCHS: Final = 8
PERDURE: Final = (sys.executable, "-P", "-m", "perdure")
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 20.0
POLL_S: Final = 0.1

console = Console(highlight=False, soft_wrap=True)


def run_demo(folder: Path) -> None:
    """Run the demo in `folder`. Raises PerdureError when it does not end in a published model."""
    # Stopped from outside, it stops its server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder.mkdir(parents=True, exist_ok=True)
    _title("1. A data set of drawn birds")
    birds = draw_bird_dataset(folder / "birds")
    console.print(f"   {birds}")
    _title("2. The server: every service in one process")
    with _server(folder / "server") as url, Client(url) as client:
        console.print(f"   {url}")
        _title("3. A training, which is killed with SIGKILL in the middle")
        console.print("   (from random weights: mAP stays at 0 for the first few epochs)")
        upload = client.upload(birds)
        task = client.submit(name=NAME, upload=upload, config=CONFIG)
        task, trail = _follow(client, task)
        if task.status != "succeeded":
            failure = task.failure or {}
            raise PerdureError(
                f"the demo's task ended as {task.status}: {failure.get('detail', '')}. "
                f"The server's log is {folder / 'server' / 'server.log'}"
            )
        _show(client, task, trail, folder / "model")


def _follow(client: Client, task: Task) -> tuple[Task, list[Mapping[str, Any]]]:
    """Watch the task to its end, and kill its training once."""
    trail: list[Mapping[str, Any]] = []
    killed = False
    for update in client.watch(task):
        task = update.task
        if update.event is not None:
            trail.append(update.event)
            if line := watched_line(update.event):
                console.print(f"   {line}")
        if not killed and update.progress is not None:
            killed = _kill_in_the_middle(client, task.id, update.progress)
    return task, trail


def _kill_in_the_middle(client: Client, task_id: str, progress: Mapping[str, Any]) -> bool:
    """Kill the training process if it is in the middle of an epoch, late enough to have
    checkpoints.
    """
    if progress["phase"] != "training" or progress["epoch"] <= KILL_AFTER_EPOCHS:
        return False
    attempt = client.task(task_id).json["attempts"][-1]
    if attempt["stage"] != "train" or attempt["outcome"] != "running":
        return False
    os.kill(attempt["pid"], signal.SIGKILL)
    console.print(
        f"   [bold red]kill -9 {attempt['pid']}[/]: the training process is gone in epoch "
        f"{progress['epoch']}, step {progress['step']} of {progress['steps']}"
    )
    return True


def _show(client: Client, task: Task, trail: list[Mapping[str, Any]], out: Path) -> None:
    """Print what came out, and what the log says of how it came about."""
    model = client.model(task.model_id)
    card = client.model_card(model.id)
    files = {path.name: path for path in client.pull_model(model.id, out / model.id)}
    _title("4. The model card, in short")
    for line in _card_lines(card):
        console.print(f"   {line}")
    _title("5. The audit trail: what the log says of this task")
    for event in trail:
        if event["type"] not in ("EpochCompleted", "CheckpointSaved"):
            words = event_line(event)
            when = event["time"][11:23]
            console.print(f"   {event['position']:>4}  {when}  {event['type']:<18} {words}")
    verification = client.verify()
    console.print(
        f"   (and epochs, checkpoints, workers, data set and model, each event hashed with the one "
        f"before: complete {verification.first}..{verification.last})"
    )
    _title("6. What you can take away")
    console.print(f"   ONNX file:          {files['model.onnx']}")
    console.print(f"   whole model card:   {files['card.json']}")
    console.print(f"   predictions, drawn: {files['preview.jpg']}")
    console.print(
        "\nNow your own:  perdure up, and in another terminal  perdure train --data FOLDER"
    )
    summary = _summary(task, model, files)
    summary["log_head"] = {"position": verification.last, "hash": verification.head}
    console.print(json.dumps(summary), markup=False)


def _card_lines(card: Mapping[str, Any]) -> Iterator[str]:
    metrics, parity, data = card["metrics"], card["parity"], card["dataset"]
    yield (
        f"model     {card['model_id']}, {card['config']['model']}, epoch of the best weights "
        f"{card['checkpoint']['epoch']} of {card['config']['epochs']}"
    )
    yield (
        f"data      {data['train_images']} images to train on, {data['val_images']} to validate, "
        f"version {data['version'][:16]}"
    )
    yield (
        f"quality   mAP50 {metrics['map50']:.3f}, mAP50-95 {metrics['map50_95']:.3f}, measured "
        f"on the ONNX file"
    )
    yield (
        f"parity    ONNX Runtime and PyTorch differ by at most "
        f"{parity['max_confidence_difference']:.1e} in confidence, "
        f"{parity['max_box_difference_px']:.1e} px"
    )
    yield f"config    {card['config_hash']}"


def _summary(task: Task, model: Model, files: Mapping[str, Path]) -> dict[str, Any]:
    trainings = [a for a in task.json["attempts"] if a["stage"] == "train"]
    return {
        "task": task.id,
        "model": model.id,
        "map50": model.map50,
        "attempts": len(trainings),
        "resumed_from_epoch": trainings[-1]["resumed_from_epoch"],
        "onnx": str(files["model.onnx"]),
    }


@contextmanager
def _server(data_dir: Path) -> Iterator[str]:
    """`perdure up` as a process of its own, on a free port; stopped at the end."""
    data_dir.mkdir(parents=True, exist_ok=True)
    output = data_dir / "up.txt"
    with output.open("wb") as out:
        server = subprocess.Popen(
            [*PERDURE, "up", "--data-dir", str(data_dir), "--port", "0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield _url(server, data_dir / SERVER_FILE, output)
    finally:
        server.terminate()
        try:
            server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _url(server: "subprocess.Popen[bytes]", server_file: Path, output: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        if server_file.exists():
            announced = json.loads(server_file.read_text(encoding="utf-8"))
            if announced["pid"] == server.pid:
                return str(announced["url"])
        time.sleep(POLL_S)
    said = output.read_text(encoding="utf-8", errors="replace").strip()
    raise PerdureError(f"the demo's server did not start: {said or 'it said nothing'}")


def _title(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")
