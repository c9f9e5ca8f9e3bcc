"""What the command line does before, and without, a server."""

import errno
import io
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console

from perdure import cli
from perdure.cli.events import event_line, watched_line
from perdure.cli.exit_codes import MEANINGS, ExitCode, exit_code
from perdure.cli.output import duration, text
from perdure.cli.task import _attempts
from perdure.cli.watching import QUEUED, conclude, follow, picture, progress_lines
from perdure.client import Task, Update
from perdure.contracts.v1 import events_pb2
from perdure.errors import (
    AlreadyRunning,
    AttemptError,
    DamagedLog,
    InvalidConfig,
    InvalidDataset,
    InvalidSetting,
    LogUnavailable,
    NotFound,
    PerdureError,
    ServerUnreachable,
    UnsafeArchive,
)
from perdure_gateway.wire import to_plain
from tests.builders.command_line import CommandLine, yolo_folder

# Messages of events.proto that stand within events, and are none.
PARTS = frozenset({"Blob", "DataSource", "Gate", "PreparedData", "TrainedModel", "PublishedModel"})


@pytest.fixture
def perdure(monkeypatch, capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("PERDURE_URL", f"http://127.0.0.1:{port}")  # where nobody listens
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def test_the_version_is_printed(perdure):
    ran = perdure("--version")
    assert (ran.code, ran.out.split()[0]) == (0, "perdure")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("train",),
        ("train", "--data"),
        ("train", "--data", "x", "--epochs", "many"),
        ("train", "--data", "x", "--min-map50", "2"),
        ("train", "--data", ""),
        ("task", "show"),
        ("task", "ls", "--limit", "0"),
        ("model", "pull", "m1"),
        ("audit", "replay", "t1", "--at-version", "0"),
        ("dataset", "push", "."),
        ("dataset", "check", "nowhere"),
        ("train", "--data", "no/such/folder"),
        ("train", "--data", "xyz"),
        ("train", "birds", "--data", "birds"),
        ("train", "abcd", "--name", ""),
        ("train", "abcd", "--name", " "),
        ("dataset", "push", ".", "--name", ""),
        ("task", "watch"),
        ("task", "logs", "abcd", "-f", "--offset", "3"),
        ("audit", "events"),
        ("audit", "dead-letters", "show"),
        ("audit", "dead-letters", "replay"),
        ("audit", "dead-letters", "replay", "abcd", "--all"),
        ("audit", "dead-letters", "replay", "abcd", "--queue", "q"),
        ("audit", "dead-letters", "ls", "--status", "lost"),
    ],
)
def test_misuse_ends_with_2_and_a_message(perdure, arguments):
    ran = perdure(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("task", "ls"),
        ("task", "show", "0123"),
        ("task", "logs", "0123", "-f"),
        ("task", "cancel", "0123"),
        ("task", "watch", "0123"),
        ("model", "ls"),
        ("dataset", "ls"),
        ("audit", "verify"),
        ("audit", "reconcile"),
        ("audit", "dead-letters", "ls"),
        ("audit", "dead-letters", "replay", "--all"),
        ("train", "--data", "abcd", "--wait"),
    ],
)
def test_without_a_server_the_exit_code_is_3_and_the_way_out_is_named(perdure, arguments):
    ran = perdure(*arguments)
    assert (ran.code, ran.out) == (3, "")
    assert "PERDURE_URL names it" in ran.err
    assert "perdure up" not in ran.err  # it would be asked there all the same


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("epoch=3", "did you mean epochs?"),
        ("lr=0.1", "did you mean lr0?"),
        ("batch=many", "batch=many"),
        ("model=yolo11m.yml", "did you mean yolo11m.yaml?"),
        ("epochs", "--set key=value"),
        ("=3", "--set key=value"),
        ("imgsz=320", "given twice"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_looked_at(perdure, setting, expected):
    # Neither is there a data set, nor a server: the configuration comes first.
    ran = perdure("train", "--data", "nowhere", "--imgsz", "160", "--set", setting)
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err


def test_all_wrong_settings_are_named_at_once(perdure):
    ran = perdure(
        "train", "--data", "x", "--epochs", "0", "--set", "epoch=3", "--set", "optimiser=SGD"
    )
    assert ran.code == 2
    for name in ("epochs=0", "did you mean epochs?", "did you mean optimizer?"):
        assert name in ran.err


def test_a_good_data_set_passes_its_check(perdure, tmp_path):
    folder = yolo_folder(tmp_path / "birds")
    ran = perdure("dataset", "check", str(folder))
    assert ran.code == 0, ran.out + ran.err
    assert "4 images, 4 boxes, 2 classes: wren, robin" in ran.out
    as_json = perdure("dataset", "check", str(folder), "--json")
    assert as_json.json["counts"]["boxes"] == 4
    assert len(as_json.json["version"]) == 64


def test_findings_are_grouped_and_counted(perdure, tmp_path):
    folder = yolo_folder(tmp_path / "birds", images=15, label="7 0.5 0.5 0.25 0.25\n")
    ran = perdure("dataset", "check", str(folder))
    assert ran.code == 1
    assert "(15)" in ran.out
    assert "labels/0.txt:1" in ran.out
    assert ran.out.count("labels/") == 10
    assert "and 5 more" in ran.out
    assert "15 errors" in ran.out
    assert len(perdure("dataset", "check", str(folder), "--json").json["findings"]) == 15


@pytest.mark.parametrize("command", [("train", "--data"), ("dataset", "push", "--name", "birds")])
def test_a_broken_data_set_is_refused_before_the_server_is_asked(perdure, tmp_path, command):
    folder = yolo_folder(tmp_path / "birds", label="0 0.5 0.5 2 0.25\n")
    ran = perdure(*command, str(folder))
    assert (ran.code, ran.out) == (1, "")  # 3 would mean that the server was asked first
    assert "nothing was sent" in ran.err
    assert "labels/0.txt:1" in ran.err


@pytest.mark.parametrize("command", [("train",), ("dataset", "push", "--name", "birds")])
def test_programs_get_the_findings_of_a_refused_data_set_as_json(perdure, tmp_path, command):
    folder = str(yolo_folder(tmp_path / "birds", label="0 0.5 0.5 2 0.25\n"))
    ran = perdure(*command, folder, "--json")
    assert ran.code == 1
    assert ran.json == perdure("dataset", "check", folder, "--json").json
    assert len(ran.json["findings"]) >= 4  # each label file is wrong
    assert "nothing was sent" in ran.err


def test_programs_get_every_error_as_one_json_object(perdure):
    wrong = perdure("train", "abcd", "--set", "epoch=3", "--json")
    assert (wrong.code, list(wrong.json)) == (2, ["error"])
    assert wrong.json["error"]["code"] == "config.invalid"
    assert wrong.json["error"]["details"]["problems"][0]["nearest"] == "epochs"
    assert "did you mean epochs?" in wrong.err
    unreachable = perdure("model", "ls", "--json")
    assert (unreachable.code, unreachable.json["error"]["code"]) == (3, "server.unreachable")
    assert "PERDURE_URL" in unreachable.json["error"]["message"]
    misused = perdure("task", "logs", "abcd", "-f", "--json")
    assert (misused.code, misused.json["error"]["code"]) == (2, "input.invalid")


def test_a_wrong_status_is_answered_with_the_right_ones(perdure):
    ran = perdure("task", "ls", "--status", "bogus")
    assert (ran.code, ran.out) == (2, "")
    for status in ("queued", "running", "waiting", "cancelling", "succeeded", "failed"):
        assert status in ran.err


def test_the_data_of_a_training_are_named_by_option_or_argument(perdure, tmp_path):
    folder = yolo_folder(tmp_path / "birds", label="0 0.5 0.5 2 0.25\n")
    for arguments in ((str(folder),), ("--data", str(folder))):
        assert "nothing was sent" in perdure("train", *arguments).err
    both = perdure("train", str(folder), "--data", str(folder))
    assert "name the data once" in both.err


def test_all_settings_are_listed_with_their_defaults_and_ranges(perdure):
    ran = perdure("train", "--list-settings", "--json")
    assert ran.code == 0
    settings = {setting["name"]: setting for setting in ran.json}
    assert len(settings) == len(ran.json) >= 30
    epochs = settings["epochs"]
    assert (epochs["type"], epochs["default"], epochs["range"], epochs["derived"]) == (
        "whole number",
        50,
        "from 1 to 10000",
        False,
    )
    assert settings["optimizer"]["choices"] == ["AdamW", "SGD"]
    assert "yolo11n.yaml" in settings["model"]["choices"]
    assert (settings["lr0"]["default"], settings["lr0"]["derived"]) == (0.002, True)
    assert settings["lr0"]["range"] == "above 0 to 1"
    assert settings["workers"]["type"] == "auto or whole number"
    assert all(setting["meaning"] for setting in ran.json)
    lines = {line.split()[0]: line for line in perdure("train", "--list-settings").out.splitlines()}
    assert "AdamW or SGD" in lines["optimizer"]
    assert "0.002*" in lines["lr0"]
    assert "false" in lines["cos_lr"]


def test_help_names_the_defaults_and_the_environment(perdure):
    shown = " ".join(perdure("train", "--help").out.split())
    for words in ("default yolo11n.yaml", "default 50", "default 320", "default 16"):
        assert words in shown
    for name in ("PERDURE_URL", "PERDURE_DATA_DIR", "http://127.0.0.1:7412"):
        assert name in perdure("--help").out


def test_the_help_of_added_commands_looks_like_that_of_the_others(perdure):
    shown = perdure("up", "--help").out
    assert shown.startswith("Usage: perdure up [OPTIONS]\n")
    assert "\u256d" not in shown  # no frames


@pytest.mark.parametrize(
    "command",
    [
        ("dataset", "check", ""),
        ("dataset", "push", " ", "--name", "birds"),
        ("dataset", "probe", ""),
        ("dataset", "diff", "", "."),
        ("dataset", "diff", ".", ""),
        ("dataset", "export", "", "--format", "coco", "--out", "x"),
        ("train", ""),
    ],
)
def test_an_empty_source_is_not_the_folder_at_hand(perdure, tmp_path, monkeypatch, command):
    monkeypatch.chdir(yolo_folder(tmp_path / "birds"))
    ran = perdure(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "the name of the data is empty" in ran.err


def test_a_path_that_cannot_be_used_is_told_in_one_line(perdure):
    name = "a" * 300
    ran = perdure("dataset", "check", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [f"error: {name}: File name too long"]
    as_json = perdure("train", name, "--json")
    assert (as_json.code, "File name too long" in as_json.json["error"]["message"]) == (2, True)


def raising(error: Exception):
    def stand_in(*_arguments, **_named):
        raise error

    return stand_in


def test_a_full_disk_is_told_in_one_line(perdure, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("perdure.cli.dataset.checked", raising(full))
    ran = perdure("dataset", "check", "x")
    assert (ran.code, ran.err) == (2, "error: No space left on device\n")


@pytest.mark.parametrize(
    "error",
    [
        KeyError("an\nunforeseen one"),
        FileNotFoundError(errno.ENOENT, "No such file", str(Path(cli.__file__).parent / "gone")),
        OSError(errno.EBADF, "Bad file descriptor"),
    ],
)
def test_a_bug_is_told_in_one_line_and_its_traceback_kept(perdure, monkeypatch, tmp_path, error):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("perdure.cli.dataset.checked", raising(error))
    ran = perdure("dataset", "check", "x", "--json")
    assert ran.code == 70
    (line,) = ran.err.splitlines()
    assert line.startswith(f"error: unexpected: {type(error).__name__}: ")
    assert "this is a bug in Perdure" in line
    (file,) = tmp_path.glob("perdure-error-*")
    assert str(file) in line
    assert "in stand_in" in file.read_text()
    assert ran.json["error"]["details"]["traceback"] == str(file)


def test_a_broken_archive_is_a_finding(perdure, tmp_path):
    (tmp_path / "birds.zip").write_bytes(b"no zip at all")
    ran = perdure("dataset", "check", str(tmp_path / "birds.zip"))
    assert ran.code == 1
    assert "archive.broken" in ran.out


def test_an_archive_that_climbs_out_is_refused(perdure, tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../evil.txt", "0 0 0 0 0")
    ran = perdure("dataset", "check", str(tmp_path / "evil.zip"))
    assert ran.code == 1
    assert not (tmp_path.parent / "evil.txt").exists()


def test_help_names_the_commands_of_installed_services_without_loading_them(perdure):
    loaded = {name for name in sys.modules if name.startswith("perdure_")}
    ran = perdure("--help")
    assert ran.code == 0
    for name in ("up", "demo", "train", "dataset", "task", "model", "audit"):
        assert name in ran.out
    assert {name for name in sys.modules if name.startswith("perdure_")} == loaded


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachable, 3),
        (LogUnavailable, 3),
        (InvalidDataset, 1),
        (NotFound, 1),
        (AlreadyRunning, 1),
        (DamagedLog, 1),
        (InvalidConfig, 2),
        (UnsafeArchive, 2),
        (InvalidSetting, 2),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert exit_code(error()) == code


def all_errors(root: type[PerdureError] = PerdureError) -> Iterator[type[PerdureError]]:
    yield root
    for child in root.__subclasses__():
        yield from all_errors(child)


def test_the_help_lists_the_exit_code_of_every_error(perdure):
    shown = perdure("--help").out.partition("Exit codes:")[2]
    listed = {int(line.split()[0]): line for line in shown.splitlines() if line.strip()}
    assert set(listed) == {0, 1, 2, 3, 70, 130} == set(MEANINGS) == set(ExitCode)
    assert all(len(line.split()) > 1 for line in listed.values())
    errors = [cls("m", "m") if cls is AttemptError else cls("m") for cls in all_errors()]
    assert len(errors) >= 28
    assert {exit_code(error) for error in errors} == {1, 2, 3}
    for error in errors:  # what the HTTP status says, the exit code says too
        assert (exit_code(error) == 3) is (error.status == 503)


def test_every_event_of_the_catalogue_is_told_in_words(perdure):
    facts = [
        descriptor.name
        for descriptor in events_pb2.DESCRIPTOR.message_types_by_name.values()
        if descriptor.name not in PARTS
    ]
    assert len(facts) == 26
    unknown = event_line({"type": "TaskPainted", "data": {}})
    for name in facts:
        data = to_plain(getattr(events_pb2, name)())
        told = event_line({"type": name, "data": data})
        assert told.strip(), name
        assert told != unknown, name


def run_process(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", "from perdure.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_the_process_ends_as_documented(tmp_path):
    environment = {**os.environ, "PERDURE_URL": "http://127.0.0.1:1"}
    unreachable = run_process("task", "ls", "--json", env=environment)
    assert unreachable.returncode == 3
    assert json.loads(unreachable.stdout)["error"]["code"] == "server.unreachable"
    misuse = run_process("train", "--data", "x", "--set", "epoch=3", env=environment)
    assert (misuse.returncode, misuse.stdout) == (2, "")
    for ran in (unreachable, misuse):
        assert "Traceback" not in ran.stderr


def test_the_command_line_loads_neither_torch_nor_a_service():
    code = (
        "import sys; import perdure.cli; import perdure.client;"
        "heavy = ('torch', 'ultralytics', 'fastapi', 'asyncpg');"
        "print([m for m in sys.modules if m.split('.')[0] in heavy or m.startswith('perdure_')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_what_comes_from_elsewhere_does_not_steer_the_terminal():
    assert text("a\x1b[31m\x07b\rc\x9b1m").plain == "a\ufffd[31m\ufffdb\ufffdc\ufffd1m"


def test_lengths_of_time_are_for_people():
    assert [duration(s) for s in (0.4, 59, 61, 3599, 3600, 7325)] == [
        "0 s",
        "59 s",
        "1 min 01 s",
        "59 min 59 s",
        "1 h 00 min",
        "2 h 02 min",
    ]


PROGRESS = {
    "fence": 2,
    "phase": "training",
    "epoch": 2,
    "epochs": 3,
    "step": 5,
    "steps": 10,
    "box_loss": 1.25,
    "cls_loss": 0.5,
    "dfl_loss": 0.25,
    "map50": 0.5,
    "samples_per_s": 31.26,
    "eta_s": 75.0,
}


def test_telemetry_and_events_become_lines():
    assert progress_lines(PROGRESS) == [
        "training  epoch 2/3  step 5/10  31.3 images/s  1 min 15 s left",
        "box 1.250  cls 0.500  dfl 0.250  mAP50 0.500",
    ]
    started = {"type": "AttemptStarted", "data": {"fence": 3, "resumed_from_epoch": 4}}
    assert watched_line(started) == "attempt 3 runs, resumed from epoch 4"
    assert watched_line({"type": "CheckpointSaved", "data": {}}) == ""
    assert watched_line({"type": "AttemptStarted", "data": {"fence": 1}}) == ""


def task(status: str = "running", **json) -> Task:
    form = {"attempts": [], "epochs": [], "failure": None, "map50": None, "map50_95": None, **json}
    return Task("ab12", "birds", "model", status, "train", 7, "", json.get("model_id", ""), form)


class Updates:
    """Stands in for a client whose server tells this."""

    def __init__(self, *updates: Update) -> None:
        self._updates = updates

    def watch(self, _task: Task) -> Iterator[Update]:
        yield from self._updates


def followed(capsys, *updates: Update) -> list[str]:
    capsys.readouterr()
    follow(Updates(*updates), updates[0].task)
    return capsys.readouterr().out.splitlines()


def test_an_outage_and_its_end_are_said_once(capsys):
    away = Update(task(), connected=False)
    lines = followed(capsys, Update(task()), away, away, Update(task()), Update(task()))
    assert lines == [
        "the server does not answer: waiting for it to come back",
        "the server is back",
    ]


def test_each_phase_of_a_publication_is_said_once(capsys):
    phases = [
        Update(task(), progress={**PROGRESS, "stage": stage, "phase": phase, "step": step})
        for stage, phase in (
            ("train", "training"),
            ("publish", "exporting"),
            ("publish", "drawing"),
        )
        for step in (1, 2)
    ]
    assert followed(capsys, *phases) == ["publish: exporting", "publish: drawing"]


def event(name: str, **data) -> dict:
    return {"type": name, "data": {"fence": 2, **data}}


def test_a_failure_that_ends_the_task_is_said_once(capsys):
    told = {"failure": "below_gate", "detail": "0.1 < 0.5"}
    ended = task("failed", failure={**told, "advice": "Train longer."})
    lines = followed(
        capsys,
        Update(task(), event=event("AttemptFailed", **told)),
        Update(ended, event=event("TaskFailed", **told)),
    )
    assert lines == []
    with pytest.raises(typer.Exit) as caught:
        conclude(ended, as_json=False)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err.splitlines() == [
        "task ab12 failed: below_gate: 0.1 < 0.5",
        "Train longer.",
        "its log: perdure task logs ab12",
    ]


def test_a_failure_that_is_retried_is_said_at_once(capsys):
    told = {"failure": "killed", "detail": "signal 9"}
    retry = {"stage": "train", "retry": 1, "not_before": "2026-01-02T03:04:05.000000+00:00"}
    assert followed(
        capsys,
        Update(task(), event=event("AttemptFailed", **told)),
        Update(task(), event=event("RetryScheduled", **retry)),
    ) == ["attempt 2 failed: killed: signal 9", "train: retry 1 from 2026-01-02T03:04:05 on"]


def test_who_waits_long_for_a_worker_is_told_so(capsys, monkeypatch):
    said = threading.Event()
    monkeypatch.setattr("perdure.cli.watching.QUEUE_PATIENCE_S", 0.01)
    monkeypatch.setattr(
        "perdure.cli.watching.say", lambda line: said.set() if line == QUEUED else 0
    )

    class Patient(Updates):
        def watch(self, first: Task) -> Iterator[Update]:
            yield Update(first)
            assert said.wait(10)

    follow(Patient(), task("queued"))
    said.clear()
    monkeypatch.setattr("perdure.cli.watching.QUEUE_PATIENCE_S", 0.2)
    follow(Updates(Update(task("queued")), Update(task("running"))), task("queued"))
    assert not said.wait(0.5)  # a timer that runs on would say so within that time


@pytest.mark.parametrize(("map50", "warned"), [(0.0, True), (0.049, True), (0.05, False)])
def test_a_model_that_finds_nothing_is_warned_of(capsys, map50, warned):
    conclude(task("succeeded", model_id="m1", map50=map50, map50_95=0.0), as_json=False)
    printed = capsys.readouterr()
    assert printed.out.startswith("model m1: mAP50")
    assert ("finds (almost) nothing" in printed.err) is warned


def test_an_attempt_whose_worker_was_stopped_is_not_called_failed(capsys):
    attempt = {"stage": "train", "worker_id": "w", "resumed_from_epoch": None, "detail": ""}
    shown = [
        {**attempt, "fence": 1, "outcome": "failed", "failure": "worker_stopped"},
        {**attempt, "fence": 2, "outcome": "failed", "failure": "killed"},
    ]
    assert [row[2] for row in _attempts(task(attempts=shown))] == ["stopped", "failed"]


def drawn(fence: int) -> list[str]:
    names = ("epoch", "box_loss", "cls_loss", "dfl_loss", "map50", "map50_95")
    epochs = [
        dict(zip(names, (number, 1.5, 0.5, 0.25, 0.2, 0.1), strict=True)) for number in (1, 2)
    ]
    json = {"attempts": [{"fence": fence}], "epochs": epochs}
    task = Task("ab12", "birds", "model", "running", "train", 7, "", "", json)
    console = Console(width=100, file=io.StringIO())
    console.print(picture(task, PROGRESS, "attempt 2 runs"))
    return console.file.getvalue().splitlines()


def test_the_picture_of_a_task_has_a_line_for_each_thing():
    lines = [line.strip() for line in drawn(fence=2)]
    assert lines[0] == "task ab12  birds  running  train"
    assert lines[1].startswith("training  epoch 2/3")
    assert lines[2].startswith("box 1.250")
    assert set(lines[3]) <= set("━╸╺ ")
    assert lines[4].split() == ["epoch", "box", "cls", "dfl", "mAP50", "mAP50-95"]
    assert lines[5].split() == ["1", "1.500", "0.500", "0.250", "0.200", "0.100"]
    assert lines[-1] == "attempt 2 runs"


def test_telemetry_of_an_earlier_attempt_is_not_shown():
    assert not any("step 5/10" in line for line in drawn(fence=3))
