"""The log of a service: JSON lines, whoever writes them."""

import json
import logging
import subprocess
import sys

from perdure.runtime.logs import JsonFormatter

SCRIPT = """
import logging, sys, threading, warnings
from perdure.runtime.logs import log_to_stderr
from perdure.telemetry.logging_context import about
log_to_stderr("relay", sys.argv[1])
log = logging.getLogger("perdure.test")
log.debug("hidden")
log.info("two\\nlines", extra={"position": 7, "service": "other", "odd": object})
with about(task="t1", attempt=2):
    log.warning("about")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
logging.getLogger("somebody.else").warning("theirs")
logging.getLogger("uvicorn.error").info("talkative")
warnings.warn("old", stacklevel=1)
thread = threading.Thread(target=lambda: [][0], name="worker")
thread.start()
thread.join()
"""


def lines(level: str) -> list[dict]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, level], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    return [json.loads(line) for line in ran.stderr.splitlines()]


def test_every_line_is_json_and_names_the_service() -> None:
    told = lines("info")
    assert {line["service"] for line in told} == {"relay"}
    assert [(line["level"], line["message"].partition(":")[0]) for line in told] == [
        ("info", "two\nlines"),
        ("warning", "about"),
        ("error", "failed"),
        ("warning", "theirs"),
        ("warning", "<string>"),
        ("critical", "thread worker failed"),
    ]
    assert (told[0]["position"], told[0]["odd"]) == (7, "<class 'object'>")
    assert (told[1]["task"], told[1]["attempt"]) == ("t1", 2)
    assert "task" not in told[0]
    assert "ZeroDivisionError" in told[2]["exception"]
    assert "IndexError" in told[-1]["exception"]


def test_the_level_decides_what_is_told() -> None:
    messages = [line["message"] for line in lines("debug")]
    assert "hidden" in messages
    assert "talkative" in messages
    assert {line["level"] for line in lines("error")} == {"error", "critical"}


def test_without_a_service_no_line_names_one() -> None:
    record = logging.makeLogRecord({"msg": "x", "levelname": "INFO"})
    assert "service" not in json.loads(JsonFormatter().format(record))
