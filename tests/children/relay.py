"""A relay as a process, in front of a bus that writes down what it confirms.

python -m tests.children.relay DSN NAME FILE IDLE_S [BATCH_TO_STOP_IN]

Each message is a line of JSON in FILE. In the middle of the batch of that number, the process sends
itself SIGSTOP. What it logs goes to standard output.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perdure.eventlog import leadership
from perdure.eventlog.leadership import RELAY, Leadership, while_leading
from perdure.eventlog.postgres import open_postgres
from perdure.messaging.port import Message
from perdure_relay import relay

BATCH = 10


class FileBus:
    """A bus with one queue: a file that only grows."""

    def __init__(self, name: str, path: Path, stop_in: int) -> None:
        self._name = name
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._batches = 0
        self._stop_in = stop_in

    async def publish_all(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        self._batches += 1
        for number, (key, message) in enumerate(messages):
            if self._batches == self._stop_in and number == len(messages) // 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            line = {"by": self._name, "exchange": exchange, "key": key, "id": message.id}
            os.write(self._fd, json.dumps(line).encode() + b"\n")


async def run(dsn: str, bus: Any) -> None:
    log, read_models = await open_postgres(dsn)
    leader = Leadership()
    mover = relay.Relay(eventlog=log, checkpoints=read_models, bus=bus, leads=leader.held)
    print("stands by", flush=True)
    await while_leading(dsn, RELAY, mover.run, asyncio.Event(), leader)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    relay.BATCH = BATCH  # type: ignore[misc]
    leadership.IDLE_S = float(sys.argv[4])  # type: ignore[misc]
    stop_in = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    asyncio.run(run(sys.argv[1], FileBus(sys.argv[2], Path(sys.argv[3]), stop_in)))
