"""The stack's SeaweedFS: what it leaves behind, and who can read it."""

import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from infra.stack.ports import free_port
from infra.stack.seaweedfs import Weed

KEY = "an-access-key"


def sockets(weed: Weed) -> set[Path]:
    ports = json.loads((weed.folder / "ports.json").read_text()).values()
    return {left for port in ports for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock")}


def test_what_it_writes_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    log = tmp_path / "weed.log"
    log.touch(mode=0o644)
    log.chmod(0o644)  # of a version that did not care
    tmp_path.chmod(0o755)

    with Weed(tmp_path, free_port(), KEY, "a-secret-key"):
        assert KEY in log.read_text()

    assert stat.filemode(log.stat().st_mode) == "-rw-------"
    assert stat.filemode(tmp_path.stat().st_mode) == "drwx------"  # data are in it, and more


@pytest.mark.crash
def test_sockets_of_a_killed_server_are_removed_at_the_next_start(tmp_path: Path) -> None:
    port = free_port()
    killed = Weed(tmp_path, port, KEY, "a-secret-key")
    killed.start()
    assert killed.pid is not None
    left = sockets(killed)
    assert left
    os.kill(killed.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while killed.pid is not None:
        assert time.monotonic() < deadline
    assert killed.exit_code == -signal.SIGKILL
    assert sockets(killed) == left

    with Weed(tmp_path, port, KEY, "a-secret-key") as weed:
        assert left - sockets(weed) != set()  # most have other ports now
        assert {path for path in left if path.exists()} <= sockets(weed)
    assert sockets(weed) == set()
