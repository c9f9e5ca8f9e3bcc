"""The leash: what was started ends with the process that started it, and not before."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from infra.stack import leash

# Starts two children from a thread that ends at once: one plain, one that is told with SIGTERM.
OWNER = """
import subprocess, sys, threading, time
from pathlib import Path
from infra.stack import leash
import signal
folder, children = Path(sys.argv[1]), []
def start():
    children.append(leash.start(
        ["sleep", "600"], environment={}, folder=folder, output=folder / "output"))
    told = leash.leashed(["sh", "-c", "trap 'echo told >told; exit' TERM; echo >armed; "
                          "while :; do sleep 0.05; done"], signal.SIGTERM)
    children.append(leash.in_starter(lambda: subprocess.Popen(told, cwd=folder)))
    while not (folder / "armed").exists():
        time.sleep(0.01)
thread = threading.Thread(target=start)
thread.start()
while Path(f"/proc/self/task/{thread.native_id}").exists():
    time.sleep(0.01)
print(*(child.pid for child in children), flush=True)
time.sleep(600)
"""
DEADLINE_S = 10.0


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.crash
def test_children_outlive_the_thread_that_asked_for_them_and_end_with_their_killed_process(
    tmp_path: Path,
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    with owner.stdout:
        plain, told = map(int, owner.stdout.readline().split())
    try:
        assert not gone(plain)
        assert not gone(told)
        assert psutil.Process(plain).cmdline() == ["sleep", "600"]  # no shell stays in between
        assert os.getsid(plain) == plain
    finally:
        owner.kill()
        owner.wait()

    deadline = time.monotonic() + DEADLINE_S
    while not (gone(plain) and gone(told)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (tmp_path / "told").exists()


def test_nothing_is_begun_for_a_process_that_is_gone() -> None:
    command = leash.leashed(["echo", "begun"], signal.SIGKILL)
    command[command.index(str(os.getpid()))] = "1"  # as if our place had been taken by init

    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode != 0
    assert done.stdout == ""
