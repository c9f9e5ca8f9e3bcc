"""The command line against a gateway on a real port; the tests play the scheduler's part."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from perdure.contracts.v1 import events_pb2
from perdure.datasets.check import check
from tests.builders.command_line import yolo_folder
from tests.builders.gateway import (
    VERSION,
    WEIGHTS,
    ServerThread,
    assigned,
    dataset_imported,
    epoch,
    prepared,
    published,
    trained,
)

PERDURE = (sys.executable, "-c", "from perdure.cli import main; main()")
FILES = {"model.onnx": b"onnx" * 1000, "card.json": b'{"name": "birds"}'}


def until(condition, timeout_s=20.0):
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return value


class Scheduler(threading.Thread):
    """Waits for the first task, and lets happen to it what the test says."""

    def __init__(self, server: ServerThread, *steps) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._steps = steps
        self.start()

    def run(self) -> None:
        world = self._server.world
        find = world.read_models.find
        task = until(lambda: self._server.run(find("tasks")))[0]
        for step in self._steps:
            self._server.run(world.append(f"task-{task.key}", *step))


def succeed() -> list:
    ended = events_pb2.TaskSucceeded(dataset_version=VERSION, model_id="m1")
    return [
        (assigned(), prepared()),
        (assigned(2, "train"), events_pb2.AttemptStarted(fence=2, pid=7), epoch(2, 1), epoch(2, 2)),
        (trained(2), assigned(3, "publish")),
        (published(3, "m1"), ended),
    ]


def fail() -> list:
    failure = {"failure": "non_finite_loss", "detail": "the loss was NaN at step 3"}
    return [
        (assigned(), prepared(), assigned(2, "train")),
        (
            events_pb2.AttemptFailed(fence=2, **failure),
            events_pb2.TaskFailed(**failure, advice="Lower lr0."),
        ),
    ]


def submit(perdure, server) -> dict:
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    return perdure("train", "--data", "abab", "--json").json


def test_training_on_a_folder_sends_it_and_names_the_task(perdure, tmp_path, world):
    folder = yolo_folder(tmp_path / "birds")
    ran = perdure("train", "--data", str(folder), "--epochs", "3", "--set", "lr0=0.01", "--json")
    assert (ran.code, ran.err) == (0, "")
    task = ran.json
    assert (task["name"], task["status"], task["config"]["epochs"]) == ("birds", "queued", 3)
    assert task["config"]["lr0"] == 0.01
    assert world.store.stat(task["upload"]["key"]).size_bytes == task["upload"]["size_bytes"]
    in_words = perdure("train", "--data", str(folder), "--name", "crows")
    assert (in_words.code, "perdure task logs" in in_words.out) == (0, True)


def test_a_path_wins_over_a_version(perdure, server, tmp_path, monkeypatch):
    server.run(server.world.import_dataset())
    monkeypatch.chdir(tmp_path)
    yolo_folder(tmp_path / "abab")
    task = perdure("train", "--data", "abab", "--json").json
    assert (task["dataset_version"], task["data_name"]) == ("", "abab")


def test_waiting_for_a_published_model_tells_the_way_in_lines_and_ends_with_0(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    Scheduler(server, *succeed())
    ran = perdure("train", "--data", VERSION, "--wait")
    assert ran.code == 0, ran.err
    for line in (
        "prepare: attempt 1 on worker-1",
        "epoch 2/2: box 1.500 cls 0.500 dfl 0.250 mAP50 0.250",
        "attempt 3 succeeded",
        "model m1: mAP50 0.750",
        "perdure model pull m1",
    ):
        assert line in ran.out


def test_waiting_for_programs_prints_one_json_object(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    Scheduler(server, *succeed())
    ran = perdure("train", "--data", VERSION, "--wait", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["status"], ran.json["model_id"]) == ("succeeded", "m1")


def test_a_failed_task_ends_with_1_and_says_why_and_what_to_do(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    Scheduler(server, *fail())
    ran = perdure("train", "--data", VERSION, "--wait", "--json")
    assert (ran.code, ran.json["status"]) == (1, "failed")
    for words in ("non_finite_loss", "NaN at step 3", "Lower lr0."):
        assert words in ran.err


def test_a_cancelled_task_ends_with_1(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    requested = events_pb2.TaskCancelRequested(requested_by="somebody")
    Scheduler(server, (requested, events_pb2.TaskCancelled(detail="before it ran")))
    ran = perdure("train", "--data", VERSION, "--wait")
    assert ran.code == 1
    assert "cancelled" in ran.err


def heed_ctrl_c() -> None:
    """Without job control, a shell starts its background with SIGINT ignored: not so our child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_the_task_running_and_says_how_to_look_again(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    process = subprocess.Popen(
        [*PERDURE, "train", "--data", VERSION, "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PERDURE_URL": server.url},
        preexec_fn=heed_ctrl_c,
    )
    task_id = process.stdout.readline().split()[1]
    # The first event that it prints shows that it is following.
    server.run(server.world.append(f"task-{task_id}", assigned()))
    assert "attempt 1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert f"perdure task show {task_id}" in err
    assert f"perdure task watch {task_id}" in err
    assert "Traceback" not in err
    assert perdure("task", "show", task_id, "--json").json["status"] == "running"


def test_on_a_terminal_the_way_is_a_live_picture(server, perdure):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    Scheduler(server, *succeed())
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PERDURE, "train", "--data", VERSION, "--wait"],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PERDURE_URL": server.url, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # how the end of a pseudo-terminal reads
        while piece := os.read(ours, 65_536):
            seen += piece
    os.close(ours)
    assert process.wait(20) == 0
    for words in (b"mAP50-95", b"succeeded", b"model m1: mAP50 0.750"):
        assert words in seen


@pytest.mark.parametrize(("steps", "code", "ends"), [(succeed, 0, "out"), (fail, 1, "err")])
def test_a_task_that_exists_is_watched_as_with_wait(perdure, server, steps, code, ends):
    task = submit(perdure, server)
    server.run(server.world.append(f"task-{task['id']}", *steps()[0]))
    Scheduler(server, *steps()[1:])
    ran = perdure("task", "watch", task["id"][:8])
    assert ran.code == code
    assert "prepare: attempt 1 on worker-1" in ran.out  # what was before is said too
    ending = {"out": "model m1: mAP50 0.750", "err": "non_finite_loss: the loss was NaN at step 3"}
    assert ending[ends] in getattr(ran, ends)
    assert (ran.out + ran.err).count("NaN at step 3") == (code == 1)
    again = perdure("task", "watch", task["id"], "--json")
    assert (again.code, again.json) == (code, perdure("task", "show", task["id"], "--json").json)


def test_events_are_listed_as_they_stand_in_the_log(perdure, server):
    task = submit(perdure, server)
    server.run(server.world.append(f"task-{task['id']}", assigned(), prepared()))
    rows = perdure("audit", "events", task["id"][:8]).out.splitlines()
    assert rows[0].split() == ["POSITION", "VERSION", "TIME", "TYPE", "WHAT"]
    assert [row.split()[:2] for row in rows[1:]] == [["2", "1"], ["3", "2"], ["4", "3"]]
    assert [row.split()[3] for row in rows[1:]] == [
        "TaskSubmitted",
        "AttemptAssigned",
        "AttemptSucceeded",
    ]
    assert rows[2].endswith("prepare: attempt 1 on worker-1")
    events = perdure("audit", "events", task["id"], "--json").json
    assert [(e["version"], e["type"]) for e in events][1:] == [
        (2, "AttemptAssigned"),
        (3, "AttemptSucceeded"),
    ]
    assert len(events[0]["hash"]) == 64
    assert perdure("audit", "events", "fedcba").code == 1


def test_a_data_set_under_another_name_keeps_its_first_and_says_so(perdure, server, tmp_path):
    folder = yolo_folder(tmp_path / "birds")
    server.run(server.world.append(f"dataset-{VERSION}", dataset_imported()))
    Scheduler(server, (assigned(), prepared(), events_pb2.TaskSucceeded(dataset_version=VERSION)))
    ran = perdure("dataset", "push", str(folder), "--name", "crows")
    assert ran.code == 0
    assert ["name", "birds"] in [line.split() for line in ran.out.splitlines()]
    assert "this version is called 'birds', and keeps that name" in ran.err


def test_an_import_that_fails_is_told_to_programs(perdure, server, tmp_path):
    folder = yolo_folder(tmp_path / "birds")
    told = {"failure": "dataset_invalid", "detail": "2 errors"}
    failed = events_pb2.AttemptFailed(fence=1, **told)
    Scheduler(server, (assigned(), failed, events_pb2.TaskFailed(**told, advice="Correct them.")))
    ran = perdure("dataset", "push", str(folder), "--name", "birds", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "task.failed")
    for words in ("dataset_invalid", "2 errors", "Correct them."):
        assert words in ran.json["error"]["message"]
        assert words in ran.err


def test_pushing_a_data_set_waits_for_the_version(perdure, server, tmp_path):
    folder = yolo_folder(tmp_path / "birds")
    server.run(server.world.append(f"dataset-{VERSION}", dataset_imported()))
    Scheduler(server, (assigned(), prepared(), events_pb2.TaskSucceeded(dataset_version=VERSION)))
    ran = perdure("dataset", "push", str(folder), "--name", "birds", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["version"] == VERSION


@pytest.mark.parametrize("changed", [False, True])
def test_who_pushes_is_told_when_something_else_was_imported(perdure, server, tmp_path, changed):
    folder = yolo_folder(tmp_path / "birds")
    checked = check(folder).manifest
    assert checked is not None
    version = VERSION if changed else checked.version
    server.run(server.world.append(f"dataset-{version}", dataset_imported(version)))
    succeeded = events_pb2.TaskSucceeded(dataset_version=version)
    Scheduler(server, (assigned(), prepared(version=version), succeeded))
    ran = perdure("dataset", "push", str(folder), "--name", "birds", "--json")
    assert (ran.code, ran.json["version"]) == (0, version)
    told = f"not the version {checked.version[:12]} that was checked here" in ran.err
    assert told is changed


def test_a_task_shows_the_digest_of_the_weights_that_it_came_to(perdure, server):
    task = submit(perdure, server)
    assert perdure("task", "show", task["id"], "--json").json["trained"] is None
    for events in succeed():
        server.run(server.world.append(f"task-{task['id']}", *events))
    until(lambda: perdure("task", "show", task["id"], "--json").json["status"] == "succeeded")
    shown = [line.split() for line in perdure("task", "show", task["id"]).out.splitlines()]
    assert ["weights", WEIGHTS] in shown


def test_data_sets_are_shown_by_the_beginning_of_their_version(perdure, server):
    assert perdure("dataset", "ls", "--json").json == []
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    assert "birds" in perdure("dataset", "ls").out
    shown = perdure("dataset", "show", "abab")
    assert "wren, robin" in shown.out
    assert perdure("dataset", "show", "abab", "--json").json["version"] == VERSION
    missing = perdure("dataset", "show", "dddd")
    assert (missing.code, missing.out) == (1, "")


def test_a_replay_prints_exactly_what_show_prints(perdure, server):
    task = submit(perdure, server)
    server.run(server.world.append(f"task-{task['id']}", assigned(), prepared()))
    show = ("task", "show", task["id"][:8], "--json")
    until(lambda: perdure(*show).json["version"] == 3)
    assert perdure("audit", "replay", task["id"][:8], "--json").out == perdure(*show).out
    past = perdure("audit", "replay", task["id"], "--at-version", "1", "--json").json
    assert past == task
    assert perdure("audit", "replay", task["id"], "--at-version", "9").code == 1
    in_words = perdure("audit", "replay", task["id"]).out
    assert in_words.startswith("task")
    assert "worker-1" in in_words  # the attempts, too
    assert in_words == perdure("task", "show", task["id"]).out


def test_verify_prints_how_far_the_log_is_complete_and_its_head(perdure, server):
    submit(perdure, server)
    head = server.run(server.world.log.head())
    assert perdure("audit", "verify").out == f"complete 1..2\nhead {head.hash}\n"
    assert perdure("audit", "verify", "--json").json == {
        "complete": True,
        "from": 1,
        "to": 2,
        "head": head.hash,
    }


def test_a_damaged_log_is_a_negative_answer(perdure, server, world, monkeypatch):
    submit(perdure, server)
    first = world.log.rows[0]
    world.log.rows[0] = first._replace(data=first.data.replace("birds", "crows"))
    ran = perdure("audit", "verify")
    assert (ran.code, ran.out) == (1, "")
    assert "position 1" in ran.err


def test_tasks_are_listed_shown_and_cancelled(perdure, server):
    assert perdure("task", "ls", "--json").json == []
    task = submit(perdure, server)
    assert task["id"] in perdure("task", "ls").out
    assert perdure("task", "ls", "--status", "failed", "--json").json == []
    assert "queued" in perdure("task", "show", task["id"]).out
    assert perdure("task", "cancel", task["id"][:6], "--json").json["status"] == "cancelled"
    running = submit(perdure, server)
    server.run(server.world.append(f"task-{running['id']}", assigned()))
    asked = perdure("task", "cancel", running["id"]).out
    assert "cancel requested" in asked
    assert "is cancelled" not in asked
    again = perdure("task", "cancel", task["id"])
    assert again.code == 1
    assert "has ended" in again.err
    assert perdure("task", "show", "fedcba").code == 1


def test_logs_are_printed_as_they_are(perdure, server, world):
    task = submit(perdure, server)
    world.store.put_bytes(
        f"logs/{task['id']}/0001-prepare/{0:012d}.log", "[bold]Zaunkönig\n".encode()
    )
    expected = "==> attempt 1: prepare <==\n[bold]Zaunkönig\n"
    assert perdure("task", "logs", task["id"]).out == expected
    size_bytes = len(expected.encode())
    as_json = perdure("task", "logs", task["id"], "--json").json
    assert as_json == {"text": expected, "next_offset": size_bytes}
    rest = perdure("task", "logs", task["id"], "--json", "--offset", str(size_bytes)).json
    assert rest == {"text": "", "next_offset": size_bytes}
    perdure("task", "cancel", task["id"])
    assert perdure("task", "logs", task["id"], "-f").out == expected


def test_models_are_listed_shown_and_pulled(perdure, server, world, tmp_path):
    assert perdure("model", "ls", "--json").json == []
    server.run(world.register_model("m1abc", FILES))
    until(lambda: perdure("model", "ls", "--json").json)
    assert "registered" in perdure("model", "ls").out
    shown = perdure("model", "show", "m1")
    for words in ("wren 0.800", "opset 17", "model.onnx", "2 images"):
        assert words in shown.out
    as_json = perdure("model", "show", "m1", "--json").json
    assert (as_json["map50"], as_json["card_content"]) == (0.75, {"name": "birds"})
    out = tmp_path / "out"
    pulled = perdure("model", "pull", "m1", "--out", str(out), "--json")
    assert pulled.json == {"model": "m1abc", "files": [str(out / name) for name in FILES]}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == FILES


def reject(world, task_id: str):
    return world.append(
        "model-m2",
        events_pb2.ModelExported(model_id="m2", task_id=task_id, opset=17),
        events_pb2.ModelEvaluated(images=2, map50=0.125),
        events_pb2.ModelRejected(
            model_id="m2", task_id=task_id, failure="below_gate", detail="mAP50 0.125 < 0.5"
        ),
    )


def test_a_rejected_model_is_shown_with_its_reason_and_cannot_be_pulled(perdure, server, tmp_path):
    task = submit(perdure, server)
    server.run(reject(server.world, task["id"]))
    for arguments in (("ls",), ("show", "m2")):
        shown = perdure("model", *arguments).out
        for words in ("m2", "birds", "rejected", "0.125", VERSION[:12], "mAP50 0.125 < 0.5"):
            assert words in shown
    out = tmp_path / "out"
    ran = perdure("model", "pull", "m2", "--out", str(out))
    assert (ran.code, ran.out) == (1, "")
    assert "m2 was rejected: mAP50 0.125 < 0.5; there is nothing to fetch" in ran.err
    assert not out.exists()


def test_a_model_without_a_verdict_cannot_be_pulled(perdure, server, tmp_path):
    task = submit(perdure, server)
    exported = events_pb2.ModelExported(model_id="m3", task_id=task["id"], opset=17)
    server.run(server.world.append("model-m3", exported))
    ran = perdure("model", "pull", "m3", "--out", str(tmp_path / "out"))
    assert (ran.code, ran.out) == (1, "")
    assert f"perdure task watch {task['id']}" in ran.err


def test_a_place_that_takes_no_files_is_told_in_one_line(perdure, server, world, tmp_path):
    server.run(world.register_model("m1", FILES))
    until(lambda: perdure("model", "ls", "--json").json)
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "within", "/proc/perdure"):
        ran = perdure("model", "pull", "m1", "--out", str(out))
        assert (ran.code, ran.out) == (2, ""), ran.err
        (line,) = ran.err.splitlines()
        assert str(out) in line
    assert file.read_text() == "mine"


def test_a_task_that_never_failed_has_no_retries(perdure, server):
    task = submit(perdure, server)
    stream = f"task-{task['id']}"
    server.run(server.world.append(stream, assigned(), prepared(), assigned(2, "train")))

    def retries() -> str:
        head, *rows = perdure("task", "ls").out.splitlines()
        column = head.split().index("RETRIES")
        return rows[0].split()[column]

    assert retries() == "0"
    failed = events_pb2.AttemptFailed(fence=2, failure="killed", detail="signal 9")
    retry = events_pb2.RetryScheduled(
        stage="train", retry=1, failure="killed", not_before="2026-01-02T03:04:05+00:00"
    )
    server.run(server.world.append(stream, failed, retry, assigned(3, "train")))
    assert retries() == "1"


def test_names_from_elsewhere_do_not_steer_the_terminal(perdure, server):
    server.run(server.world.import_dataset())
    until(lambda: perdure("dataset", "ls", "--json").json)
    perdure("train", "--data", VERSION, "--name", "[red]birds[/red]")
    assert "[red]birds[/red]" in perdure("task", "ls").out
    listed = json.dumps(perdure("task", "ls", "--json").json)
    assert "[red]birds[/red]" in listed
