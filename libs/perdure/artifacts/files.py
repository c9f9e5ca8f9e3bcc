"""Files and folders that appear whole or not at all, also when the machine loses power."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A temporary file to write, which becomes `path` when the block ends without an error.

    It replaces what was there, and is on disk before the name appears. After any error nothing has
    changed. Raises OSError.
    """
    temporary = temporary_beside(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path`, replacing what was there. Raises OSError; then nothing has changed."""
    with new_file(path) as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Put `text` at `path` in UTF-8, as write_bytes does."""
    write_bytes(path, text.encode())


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill, which becomes `path` when the block ends without an error.

    Every file in it is on disk before the name appears. Raises OSError when `path` is a folder
    that is not empty; after any error the temporary folder is gone.
    """
    temporary = temporary_beside(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        publish_folder(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def publish_folder(temporary: Path, path: Path) -> None:
    """Rename a filled folder to `path`, once every file in it is on disk. Raises as new_folder."""
    _sync_tree(temporary)
    temporary.rename(path)
    sync_folder(path.parent)


def temporary_beside(path: Path) -> Path:
    """A fresh hidden name in the folder of `path`, so that a rename stays in one file system."""
    return path.with_name(f".{uuid.uuid4().hex}.tmp")


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, so that they outlive a power loss."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(root: Path) -> None:
    for folder, _folders, names in os.walk(root):
        for name in names:
            sync_file(Path(folder, name))
        sync_folder(Path(folder))
