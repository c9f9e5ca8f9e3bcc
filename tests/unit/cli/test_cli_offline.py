"""What the command line does before, and without, a server."""

import io
import os
import socket
import subprocess
import sys
import zipfile

import pytest
from rich.console import Console

from perdure.cli.app import exit_code
from perdure.cli.output import duration, text
from perdure.cli.watching import event_line, picture, progress_lines
from perdure.client import Task
from perdure.errors import (
    AlreadyRunning,
    DamagedLog,
    InvalidConfig,
    InvalidDataset,
    InvalidSetting,
    LogUnavailable,
    NotFound,
    ServerUnreachable,
    UnsafeArchive,
)
from tests.builders.command_line import CommandLine, yolo_folder


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
        ("task", "show"),
        ("task", "ls", "--limit", "0"),
        ("model", "pull", "m1"),
        ("audit", "replay", "t1", "--at-version", "0"),
        ("dataset", "push", "."),
        ("dataset", "check", "nowhere"),
        ("train", "--data", "no/such/folder"),
        ("train", "--data", "xyz"),
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
        ("model", "ls", "--json"),
        ("dataset", "ls"),
        ("audit", "verify"),
        ("train", "--data", "abcd", "--wait"),
    ],
)
def test_without_a_server_the_exit_code_is_3_and_the_way_out_is_named(perdure, arguments):
    ran = perdure(*arguments)
    assert (ran.code, ran.out) == (3, "")
    assert "perdure up" in ran.err


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
    assert (unreachable.returncode, unreachable.stdout) == (3, "")
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
    assert event_line(started) == "attempt 3 runs, resumed from epoch 4"
    assert event_line({"type": "CheckpointSaved", "data": {}}) == ""


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
