"""What a person at `make stack` is told when a process dies, and when it is started again."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from infra.stack.kept import Kept, ending
from perdure.errors import Unavailable


@dataclass
class Process:
    output: Path
    pid: int | None = 100
    exit_code: int | None = None
    fails: list[str] = field(default_factory=list)

    def die(self, exit_code: int) -> None:
        self.pid, self.exit_code = None, exit_code

    def start(self) -> None:
        if self.fails:
            raise Unavailable(self.fails.pop())
        self.pid, self.exit_code = 101, None


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path / "relay.log")


def test_a_death_is_told_with_its_cause_its_log_and_what_comes_next(process: Process) -> None:
    process.output.write_text("first\n" + "x" * 1000 + "\n\n")
    told: list[str] = []
    kept = Kept("relay", process, told.append)

    kept.look(0.0)
    process.die(-9)
    kept.look(10.0)
    kept.look(10.5)

    assert told == [
        "relay was killed by SIGKILL: it is started again in 1 s\n"
        f"    its log: {process.output}\n"
        f"    which ends: {'x' * 300}"
    ]
    kept.look(11.0)
    assert told[1:] == ["relay is started again, pid 101"]


def test_what_dies_at_once_waits_longer_each_time_and_30_s_at_most(process: Process) -> None:
    told: list[str] = []
    kept = Kept("relay", process, told.append)
    now = 0.0
    for pause_s in (1, 2, 4, 8, 16, 30, 30):
        process.die(2)
        kept.look(now)
        assert f"relay has ended with exit code 2: it is started again in {pause_s} s" in told[-1]
        assert told[-1].endswith("which ends: (nothing)")
        now += pause_s
        kept.look(now)
        assert told[-1] == "relay is started again, pid 101"

    process.die(2)
    kept.look(now + 61)
    assert "again in 1 s" in told[-1]


def test_a_start_that_fails_is_told_and_made_again(process: Process) -> None:
    process.fails = ["the port is taken"]
    process.die(1)
    told: list[str] = []
    kept = Kept("relay", process, told.append)

    for now in (0.0, 1.0, 1.5, 3.5):
        kept.look(now)

    assert told[1] == "relay could not be started: the port is taken"
    assert "again in 2 s" in told[2]
    assert told[3:] == ["relay is started again, pid 101"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "has ended with exit code 0"),
        (-15, "was killed by SIGTERM"),
        (-40, "was killed by signal 40"),
        (None, "does not run"),
    ],
)
def test_the_end_of_a_process_in_words(code: int | None, words: str) -> None:
    assert ending(code) == words
