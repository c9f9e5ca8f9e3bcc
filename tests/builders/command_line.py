"""The command line, run within the test's process."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from perdure.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which has to be one JSON value and nothing else."""
        return json.loads(self.out)


class CommandLine:
    """Runs `perdure ...` and keeps what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self._monkeypatch.setattr("sys.argv", ["perdure", *arguments])
        self._capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ran(code, captured.out, captured.err)


def yolo_folder(folder: Path, *, images: int = 4, label: str = "0 0.5 0.5 0.25 0.25\n") -> Path:
    """A small data set in YOLO format, two classes, each image different."""
    for place in ("images", "labels"):
        (folder / place).mkdir(parents=True)
    (folder / "data.yaml").write_text("names: [wren, robin]\n")
    for number in range(images):
        Image.new("RGB", (64, 48), (number * 20, 90, 120)).save(folder / f"images/{number}.jpg")
        (folder / f"labels/{number}.txt").write_text(label)
    return folder
