"""Real child processes, supervised: each way to end is seen for what it is."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure.attempts.supervisor import Child, ChildCommand, Line, Outcome
from perdure.domain.failures import Failure

DEADLINE_S = 20.0
MODULE = "tests.children.attempts"
ROOT = str(Path(__file__).resolve().parents[2])


class Ear:
    """Hears what a child says."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.text = b""
        self.heard = asyncio.Event()

    async def line(self, line: Line) -> None:
        self.lines.append(line)
        self.heard.set()

    def hear(self, text: bytes) -> None:
        self.text += text


async def start(folder: Path, **job: Any) -> Child:
    return await Child.start(ChildCommand(MODULE, job, folder / "job", {"PYTHONPATH": ROOT}))


async def outcome_of(folder: Path, ear: Ear | None = None, **job: Any) -> Outcome:
    ear = ear or Ear()
    child = await start(folder, **job)
    return await asyncio.wait_for(child.run(ear.line, ear.hear), DEADLINE_S)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not gone(pid):
            await asyncio.sleep(0.02)


async def test_a_result_comes_with_its_facts_and_its_log(tmp_path: Path) -> None:
    ear = Ear()
    outcome = await outcome_of(tmp_path, ear, act="succeed")
    assert outcome == Outcome({"answer": 42}, None, "", 0, {"a": 1, "b": 2})
    assert ear.text == b"a line of log\n"
    assert [line["kind"] for line in ear.lines] == ["started", "progress"]


KEYS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN_FILE"}


@pytest.mark.parametrize("uses_store", [False, True])
async def test_only_a_child_that_uses_the_store_sees_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uses_store: bool
) -> None:
    for name in (*KEYS, "AWS_PROFILE", "PERDURE_LOG_URL", "PERDURE_STORE_URL", "OTHER"):
        monkeypatch.setenv(name, "secret")
    command = ChildCommand(
        "tests.children.environment", {}, tmp_path / "job", {"PYTHONPATH": ROOT}, uses_store
    )

    child = await Child.start(command)
    ear = Ear()
    outcome = await asyncio.wait_for(child.run(ear.line, ear.hear), DEADLINE_S)

    assert outcome.result is not None
    names = set(outcome.result["names"])
    assert "OTHER" in names
    assert {name for name in names if name.startswith("AWS_")} == (KEYS if uses_store else set())
    assert {name for name in names if name.startswith("PERDURE_")} == set()


async def test_a_failure_says_its_class(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, act="fail")
    assert (outcome.failure, outcome.detail) == (Failure.DISK_FULL, "no room left")


async def test_a_crash_is_reported_and_its_traceback_is_in_the_log(tmp_path: Path) -> None:
    ear = Ear()
    outcome = await outcome_of(tmp_path, ear, act="crash")
    assert outcome.failure is Failure.UNKNOWN
    assert outcome.detail == "ZeroDivisionError: by zero"
    assert b"Traceback" in ear.text


async def test_exit_code_0_without_a_result_is_a_failure(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, act="exit", code=0)
    assert outcome.failure is Failure.UNKNOWN
    assert "gave no result" in outcome.detail


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
async def test_a_signal_is_named(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    outcome = await outcome_of(tmp_path, act="kill", signal=number)
    assert (outcome.failure, outcome.exit_code) == (Failure.KILLED, -number)
    assert name in outcome.detail


async def test_a_flood_of_output_does_not_block_the_child(tmp_path: Path) -> None:
    ear = Ear()
    outcome = await outcome_of(tmp_path, ear, act="flood", lines=20_000)
    assert outcome.result == {}
    assert len(ear.text) == 20_000 * 201
    assert len(ear.lines) == 20_001


async def test_garbage_on_the_channel_is_passed_over(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, act="babble")
    assert outcome.result == {"answer": 1}


async def test_a_child_stops_when_asked(tmp_path: Path) -> None:
    ear = Ear()
    child = await start(tmp_path, act="wait")
    running = asyncio.create_task(child.run(ear.line, ear.hear))
    await asyncio.wait_for(ear.heard.wait(), DEADLINE_S)
    await child.stop(Failure.WORKER_STOPPED, "the worker stops")
    outcome = await asyncio.wait_for(running, DEADLINE_S)
    assert (outcome.failure, outcome.exit_code) == (Failure.WORKER_STOPPED, 75)
    assert ear.text == b"stopping\n"


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ear = Ear()
    child = await start(tmp_path, act="ignore")
    running = asyncio.create_task(child.run(ear.line, ear.hear))
    async with asyncio.timeout(DEADLINE_S):
        while len(ear.lines) < 2:
            await asyncio.sleep(0.01)
    await child.stop(Failure.HANG, "no step", grace_s=0.2)
    outcome = await asyncio.wait_for(running, DEADLINE_S)
    assert (outcome.failure, outcome.exit_code) == (Failure.HANG, -signal.SIGKILL)


async def test_a_child_whose_words_cannot_be_taken_is_ended(tmp_path: Path) -> None:
    async def refuse(line: Line) -> None:
        raise ValueError("cannot take this")

    child = await start(tmp_path, act="hold")
    with pytest.raises(ValueError, match="cannot take this"):
        await asyncio.wait_for(child.run(refuse, lambda _text: None), DEADLINE_S)
    await until_gone(child.pid)


async def test_a_file_in_the_folder_where_the_server_was_started_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    outcome = await outcome_of(tmp_path, act="succeed")
    assert outcome.result == {"answer": 42}


async def test_what_a_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    outcome = await outcome_of(tmp_path, act="leave")
    assert outcome.result is not None
    await until_gone(outcome.result["left"])


@pytest.mark.crash
async def test_a_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.children.parent", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert parent.stdout is not None
    child_pid = int(await asyncio.to_thread(parent.stdout.readline))
    assert not gone(child_pid)
    parent.kill()
    await asyncio.to_thread(parent.wait)
    started = time.monotonic()
    await until_gone(child_pid)
    assert time.monotonic() - started < DEADLINE_S
