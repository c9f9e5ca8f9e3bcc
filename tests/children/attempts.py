"""Child processes that do what the job says: good ones and bad ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.attempts.channel import Channel, Stopped, run_child
from perdure.errors import AttemptError


def work(job: dict[str, Any], job_dir: Path, channel: Channel) -> Mapping[str, Any]:
    channel.started()
    match job["act"]:
        case "succeed":
            print("a line of log")
            channel.progress("working", step=1, steps=2)
            channel.facts({"a": 1})
            channel.facts({"b": 2})
            return {"answer": 42}
        case "fail":
            raise AttemptError("disk_full", "no room left")
        case "crash":
            raise ZeroDivisionError("by zero")
        case "exit":
            os._exit(job["code"])
        case "kill":
            os.kill(os.getpid(), job["signal"])
        case "flood":
            for number in range(job["lines"]):
                print("x" * 200)
                channel.progress("working", step=number)
            return {}
        case "babble":
            os.write(channel._out.fileno(), b"not json\n\xff\xfe\n[1]\n" + b"y" * (2 << 20) + b"\n")
            return {"answer": 1}
        case "wait":
            while not channel.stop_requested:
                time.sleep(0.01)
            print("stopping")
            raise Stopped
        case "ignore":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            channel.progress("ignoring")
            time.sleep(600)
        case "leave":
            left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return {"left": left.pid}
        case "hold":
            channel.progress("holding")
            time.sleep(600)
    raise AssertionError(job)


if __name__ == "__main__":
    run_child(work)
