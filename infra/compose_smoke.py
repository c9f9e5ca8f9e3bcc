"""Try docker-compose.yml for real: build, start, train, and break things meanwhile.

    make compose-smoke            (any machine with Docker, and docker-compose 1.29 or Compose v2)

It runs beside an installed stack: a project, a port, passwords and volumes of its own, all of which
are gone afterwards; only the images stay. While trainings run, the trainer-agent is cut from its
network for a minute, and each container is killed in turn. Exit code 0: every training ended in a
registered model, the log is whole, and no message was lost.
"""

import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from infra.compose_stack import (
    POLL_S,
    RESTART_S,
    SERVERS,
    SERVICES,
    SmokeFailed,
    Stack,
    fresh_stack,
    say,
    until,
)
from perdure.client import Client, Task
from perdure.errors import PerdureError, Unavailable
from perdure_embedded.birds import draw_bird_dataset

TRAINING_S: Final = 1200.0  # each, with all that is done to it
PROGRESS_S: Final = 300.0  # from a fault to the next epoch, with lease, retry and a new process
CUT_S: Final = 60.0

IMAGES: Final = 40
IMAGE_SIZE_PX: Final = 64
EPOCHS: Final = 80
SPARE_EPOCHS: Final = 10  # that a training has before it when something is done to it
CONFIG: Final[dict[str, Any]] = {
    "epochs": EPOCHS,
    "patience": EPOCHS,
    "imgsz": IMAGE_SIZE_PX,
    "batch": 8,
    "lr0": 0.002,
    "mosaic": 0,
}

T = TypeVar("T")


def main() -> int:
    """Run all of it, and give the exit code."""
    # Stopped from outside, it takes the stack down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="perdure-smoke-") as folder:
        try:
            with fresh_stack(Path(folder)) as stack:
                _smoke(stack, Path(folder))
        except (SmokeFailed, PerdureError) as failure:
            say(f"FAILED after {time.monotonic() - began:.0f} s: {failure}")
            return 1
    say(f"passed in {time.monotonic() - began:.0f} s")
    return 0


def _smoke(stack: Stack, folder: Path) -> None:
    stack.check_ports()
    stack.check_no_torch("scheduler")
    stack.check_no_database("trainer-agent")
    birds = draw_bird_dataset(folder / "birds", images=IMAGES, size_px=IMAGE_SIZE_PX)
    with Client(stack.url) as client:
        trainings = Trainings(client, _patiently(lambda: client.upload(birds), RESTART_S))
        _cut(stack, trainings)
        for service in (*SERVICES, *SERVERS):
            _kill(stack, trainings, service)
        _crash(stack, trainings, "scheduler")
        trainings.finish(folder / "model")
    stack.perdure("audit", "verify")
    stack.perdure("audit", "reconcile")
    say(f"everything stopped in order in {stack.stop():.0f} s")


def _cut(stack: Stack, trainings: "Trainings") -> None:
    """Take the trainer-agent from its network for a minute."""
    trainings.wait_until_running()
    with stack.cut("trainer-agent", "data"):
        time.sleep(CUT_S)
    say(f"trainer-agent cut off for {CUT_S:.0f} s: {trainings.goes_on()}")


def _kill(stack: Stack, trainings: "Trainings", service: str) -> None:
    """`docker kill`. Docker takes that for a wish of its user, and starts nothing anew."""
    trainings.wait_until_running()
    healthy_s = stack.kill_and_start(service)
    say(f"{service} killed: healthy {healthy_s:.1f} s after its start, {trainings.goes_on()}")


def _crash(stack: Stack, trainings: "Trainings", service: str) -> None:
    """End the processes of a container from inside: the restart policy brings it back."""
    trainings.wait_until_running()
    healthy_s = stack.crash(service)
    say(f"{service} crashed: back and healthy after {healthy_s:.1f} s, {trainings.goes_on()}")


class Trainings:
    """One training after the other, so that there always is one to disturb."""

    def __init__(self, client: Client, upload: Any) -> None:
        self._client = client
        self._upload = upload
        self._tasks: list[Task] = []

    def wait_until_running(self) -> None:
        """Wait until a training has an epoch behind it, and some more before it."""

        def trains() -> Task | None:
            task = self._last() if self._tasks else None
            if task is None or task.ended or task.stage == "publish":
                task = self._submit()
            return task if 0 < _epoch(task) <= EPOCHS - SPARE_EPOCHS else None

        until(trains, TRAINING_S, "a training has an epoch behind it")

    def goes_on(self) -> str:
        """Wait until the training has one epoch more than now; says what has become of it."""
        began, before = time.monotonic(), self._last()

        def more() -> Task | None:
            task = self._last()
            if task.status in ("failed", "cancelled"):
                raise SmokeFailed(task.why_no_result)
            return task if task.ended or _epoch(task) > _epoch(before) else None

        task = until(more, PROGRESS_S, "the training has completed one more epoch")
        what = "task over" if task.ended else "next epoch"
        return (
            f"{what} after {time.monotonic() - began:.1f} s "
            f"(epoch {_epoch(task)}, attempts {len(task.json['attempts'])})"
        )

    def finish(self, folder: Path) -> None:
        """Wait until each training has ended in a registered model, and fetch the last one."""
        for known in self._tasks:
            model = _patiently(partial(self._client.result, known.id), TRAINING_S)
            task = self._client.task(known.id)
            if model.status != "registered":
                raise SmokeFailed(f"model {model.id} is {model.status}, not registered")
            outcomes = [f"{a['stage']} {a['outcome']}" for a in task.json["attempts"]]
            say(f"task {task.id}: model {model.id} registered; attempts: {', '.join(outcomes)}")
        files = self._client.pull_model(model.id, folder)
        say(f"fetched {', '.join(sorted(path.name for path in files))}")

    def _last(self) -> Task:
        return _patiently(lambda: self._client.task(self._tasks[-1].id), RESTART_S)

    def _submit(self) -> Task:
        number = len(self._tasks)
        config = CONFIG | {"seed": number}  # the same training twice would be one task
        key = secrets.token_hex(8)
        self._tasks.append(
            _patiently(
                lambda: self._client.submit(
                    name=f"smoke-{number}", upload=self._upload, config=config, idempotency_key=key
                ),
                RESTART_S,
            )
        )
        say(f"training {number + 1}: task {self._tasks[-1].id}")
        return self._tasks[-1]


def _epoch(task: Task) -> int:
    """The last epoch that was recorded; 0 before the first."""
    epochs = task.json["epochs"]
    return int(epochs[-1]["epoch"]) if epochs else 0


def _patiently(call: Callable[[], T], timeout_s: float) -> T:
    """`call`, again and again while the gateway, or what it needs itself, does not answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except Unavailable as error:
            if time.monotonic() > deadline:
                raise SmokeFailed(f"no answer for {timeout_s:.0f} s: {error}") from error
        time.sleep(POLL_S)


if __name__ == "__main__":
    sys.exit(main())
