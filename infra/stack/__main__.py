"""`make stack`: runs the whole of Perdure on this machine until Ctrl-C."""

import argparse
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final

from infra.stack.kept import Kept, Process, say
from infra.stack.proxy import HOST
from infra.stack.stack import Stack
from perdure import __version__
from perdure.errors import PerdureError

DEFAULT_FOLDER: Final = Path("perdure-stack")
POLL_S: Final = 0.5
INTERRUPTED: Final = 130


def main() -> None:
    """Run the stack, and exit."""
    parser = argparse.ArgumentParser(prog="python -m infra.stack", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_FOLDER, help="where everything is kept"
    )
    folder = parser.parse_args().data_dir
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    say(f"Perdure {__version__} starts on {folder}; it takes about 15 s, and longer the first time")
    try:
        with Stack(folder, tell=say) as stack:
            _show(stack, folder)
            _keep(stack)
    except PerdureError as error:
        sys.exit(f"error: {error.message}")
    except KeyboardInterrupt:
        say("stopped; `make stack` goes on where it was")


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Stop in order; at the second time at once: the kernel then ends all that was started."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(INTERRUPTED))
    say("stopping: running trainings write a checkpoint (again: stop at once) ...")
    raise KeyboardInterrupt


def _show(stack: Stack, folder: Path) -> None:
    """What runs, a line each, and how to use it all."""
    rows = [
        (name, f"{HOST}:{server.port}", server.pid, server.output)
        for name, server in stack.servers.items()
    ]
    rows += [
        (label, f"health {service.health_url}", service.pid, service.output)
        for label, service in stack.services.items()
    ]
    print()
    for name, place, pid, output in rows:
        log = folder / output.relative_to(stack.folder)
        print(f"{name:13}  {place:29}  pid {pid:<7}  log {log}")
    postgres = stack.postgres
    print(f"\npostgres is PostgreSQL {postgres.version} from {postgres.source}.")
    print("Health ports have /healthz, /readyz and /metrics, and nothing else.")
    print(f"\nAPI {stack.url}  (the gateway)\n\nIn other terminals:")
    print("    source .venv/bin/activate")
    print(f"    export PERDURE_URL={shlex.quote(stack.url)}")
    print("    perdure train FOLDER --wait")
    print("\nCtrl-C stops it. What dies is started again, and told here:", flush=True)


def _keep(stack: Stack) -> None:
    """Start again whatever dies, for ever."""
    processes: dict[str, Process] = {**stack.servers, **stack.services}
    kept = [Kept(name, process, say) for name, process in processes.items()]
    while True:
        for process in kept:
            process.look(time.monotonic())
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
