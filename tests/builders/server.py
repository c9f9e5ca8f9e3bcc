"""A real `perdure up` as a process of its own, and ways to end it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from perdure.client import Client, Task

START_S = 60.0
STOP_S = 10.0
POLL_S = 0.05


class Server:
    """One start of the server on a data folder."""

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self._output = (data_dir / "up.txt").open("ab")
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perdure", "up", "--data-dir", str(data_dir), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.url = self._announced()
        self.client = Client(self.url)

    def _announced(self) -> str:
        deadline = time.monotonic() + START_S
        path = self.data_dir / "server.json"
        while time.monotonic() < deadline and self.process.poll() is None:
            if path.exists() and (said := json.loads(path.read_text()))["pid"] == self.process.pid:
                return str(said["url"])
            time.sleep(POLL_S)
        raise AssertionError((self.data_dir / "up.txt").read_text())

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill_with_all_children(self) -> None:
        """SIGKILL to the server and everything that it has started, PostgreSQL included."""
        family = self.descendants()
        self.process.kill()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.process.wait(STOP_S)
        psutil.wait_procs(family, timeout=STOP_S)
        self._close()

    def stop(self, number: int = signal.SIGINT) -> float:
        """Stop as Ctrl-C does, and give the seconds that it took."""
        started = time.monotonic()
        os.kill(self.process.pid, number)
        assert self.process.wait(STOP_S) == 0, (self.data_dir / "up.txt").read_text()
        self._close()
        return time.monotonic() - started

    def end(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        if self.process.poll() is None:
            self.kill_with_all_children()

    def _close(self) -> None:
        self.client.close()
        self._output.close()


def until(server: Server, task: Task, condition: Callable[[Task], bool], timeout_s: float) -> Task:
    """Wait until the task meets `condition`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        task = server.client.task(task.id)
        if condition(task):
            return task
        assert not task.ended, task.json["failure"]
        time.sleep(POLL_S)
    raise AssertionError(f"not in {timeout_s} s: {task.json}")
