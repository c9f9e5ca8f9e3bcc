"""Perdure as separate processes on real servers, and what a test does to them."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.stack.stack import Stack
from perdure.client import Client, Task
from perdure.errors import Unavailable
from perdure.eventlog.postgres import open_postgres

# Four epochs of some seconds on two cores, with a checkpoint after each.
CONFIG = {"epochs": 4, "imgsz": 64, "batch": 8, "seed": 3, "workers": 0, "mosaic": 0.0}
CRASH_S = 60.0
POLL_S = 0.05


class Services(Stack):
    """A stack with a client, and with ways to hurt it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = Client(self.url)
        return self._client

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        super().stop()

    def submit(self, data: Path, **config: Any) -> Task:
        """A small training."""
        upload = self.client.upload(data)
        return self.client.submit(name="birds", upload=upload, config=CONFIG | config)

    def until(self, task: Task, condition: Callable[[Task], bool], timeout_s: float) -> Task:
        """Wait until the task meets `condition`; the gateway may be away meanwhile."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                task = self.client.task(task.id)
            except Unavailable:
                continue
            if condition(task):
                return task
            assert not task.ended, task.json["failure"]
            time.sleep(POLL_S)
        raise AssertionError(f"not in {timeout_s} s: {task.json}")

    def succeeded(self, task: Task, timeout_s: float) -> Task:
        """Wait until the task has succeeded."""
        return self.until(task, lambda t: t.status == "succeeded", timeout_s)

    def event_types(self) -> set[str]:
        """The types of all events in the log, those of workers included."""

        async def read() -> set[str]:
            log, _ = await open_postgres(self.postgres.url)
            try:
                head = await log.head()
                return {event.type for event in await log.read_all(after=0, limit=head.position)}
            finally:
                await log.close()

        return asyncio.run(read())

    def arm(self, label: str, point: str) -> None:
        """Start a service anew, which will kill itself at `point` (`point:n`: the n-th time)."""
        service = self.services[label]
        service.kill()
        service.start({"PERDURE_CRASH_AT": point})

    def await_crash(self, label: str, timeout_s: float = CRASH_S) -> None:
        """Wait until an armed service has killed itself."""
        assert self.services[label].await_end(timeout_s) == -signal.SIGKILL

    def restart(self, label: str) -> None:
        """Start a service that has died, and wait until it is ready."""
        self.services[label].start()
        self.services[label].await_ready()


def until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait until the condition holds, and give the seconds that it took."""
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() - began_at < timeout_s, f"not within {timeout_s} s"
        time.sleep(POLL_S)
    return time.monotonic() - began_at


def trains_with_a_checkpoint(task: Task) -> bool:
    """Whether a training runs that has saved a checkpoint of its own."""
    attempt, saved = task.json["attempts"][-1:], task.json["checkpoints"][-1:]
    return bool(attempt and saved) and attempt[0]["fence"] == saved[0]["fence"]
