"""Other things where a folder or a file belongs."""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest


def outside_folder(parent: Path) -> Path:
    """What links lead to: it must stay as it is."""
    folder = parent / "outside"
    (folder / "train").mkdir(parents=True)
    (folder / "file").write_text("precious")
    (folder / ".x.tmp").write_text("precious")
    return folder


def listed(folder: Path) -> list[tuple[str, str]]:
    return sorted(
        (path.relative_to(folder).as_posix(), path.read_text() if path.is_file() else "")
        for path in folder.rglob("*")
    )


def a_socket(path: Path, _outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))  # a path of 108 bytes at most


WRONG: dict[str, Callable[[Path, Path], object]] = {
    "dangling link": lambda path, outside: path.symlink_to(outside / "nothing"),
    "link to a folder": lambda path, outside: path.symlink_to(outside),
    "link to a file": lambda path, outside: path.symlink_to(outside / "file"),
    "fifo": lambda path, _outside: os.mkfifo(path),
    "socket": a_socket,
    "folder": lambda path, _outside: (path / "x/y").mkdir(parents=True),
    "file": lambda path, _outside: path.write_text("x"),
}
# A regular file may be there already: what is in it is another matter.
WRONG_FOR_FILES = [kind for kind in WRONG if kind != "file"]
WRONG_FOR_FOLDERS = [kind for kind in WRONG if kind != "folder"]


def put(kind: str, path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put something else at a path."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(path.parent)
    WRONG[kind](path, outside)
