"""Fetching a model's files: checked, whole or not at all, and never outside the folder they were
meant for.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from blake3 import blake3

from perdure.artifacts.files import write_bytes
from perdure.artifacts.hashing import digest_bytes, digest_file
from perdure.client.connection import Connection
from perdure.client.records import Dataset, Json, Model, ModelFile
from perdure.datasets.findings_document import parse_lines
from perdure.datasets.manifest import Manifest, parse_manifest
from perdure.errors import Conflict, DamagedObject, InvalidInput

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
READ_BYTES: Final = 1024 * 1024
# The server reads from a store that may have to be asked again.
SILENCE_S: Final = 60.0
DIGEST_HEADER: Final = "Perdure-Digest"  # of every stored file that the server sends

# Called with the bytes that arrived so far, and the bytes of all files.
OnProgress = Callable[[int, int], None]


def pull(
    connection: Connection, model: Model, folder: Path, on_progress: OnProgress | None = None
) -> list[Path]:
    """Put the files of `model` into `folder`, which is made when there is none.

    All files are fetched and checked before the first one appears. Raises InvalidInput for a file
    name that is not plain or a `folder` that is a file, Conflict for a model that is not registered
    or for a different file of that name in the folder, and DamagedObject for wrong bytes.
    """
    _check_registered(model)
    for file in model.files:
        _check_name(model, file)
        _check_free(file, folder)
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is a file: name a folder for the model's files")
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(file.size_bytes for file in model.files)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".pull-") as name:
        arriving = Path(name)
        done = 0
        for file in model.files:
            _fetch(
                connection,
                model,
                file,
                arriving / file.name,
                lambda bytes_of_file, before=done: (  # type: ignore[misc]
                    on_progress(before + bytes_of_file, total) if on_progress else None
                ),
            )
            done += file.size_bytes
        for file in model.files:
            (arriving / file.name).replace(folder / file.name)
    return [folder / file.name for file in model.files]


def manifest(connection: Connection, version: str) -> Manifest:
    """The manifest of a data set version, compared with its digest, which is the version."""
    path = f"/v1/datasets/{quote(version, safe='')}/manifest"
    with connection.stream(path, silence_s=SILENCE_S) as response:
        data = b"".join(response.iter_bytes(READ_BYTES))
    return parse_manifest(data.decode(errors="replace"), version)


def findings(
    connection: Connection, task_id: str, on_head: Callable[[Json], object] | None = None
) -> Iterator[Json]:
    """The findings of a task's data set, as they arrive; `on_head` is given what stands before
    them: format, counts, classes.

    Raises DamagedObject: after the last of them, when they are others than were stored.
    """
    path = f"/v1/tasks/{quote(task_id, safe='')}/findings"
    with connection.stream(path, silence_s=SILENCE_S) as response:
        digest = blake3()
        chunks = _hashed(response.iter_bytes(READ_BYTES), digest.update)
        head, found = parse_lines(_lines(chunks))
        if on_head is not None:
            on_head(head)
        yield from found
        announced = response.headers.get(DIGEST_HEADER)
    if digest.hexdigest() != announced:
        raise DamagedObject(
            f"the findings of task {task_id} arrived with the digest {digest.hexdigest()}, not "
            f"{announced}: try again, or push the data set again"
        )


def _hashed(chunks: Iterator[bytes], update: Callable[[bytes], object]) -> Iterator[bytes]:
    for chunk in chunks:
        update(chunk)
        yield chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a body. httpx's own reader breaks them at other marks too."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def image(connection: Connection, version: str, digest: str, size_bytes: int, target: Path) -> None:
    """Put an image of a version at `target`, which must not exist. Raises DamagedObject."""
    path = f"/v1/datasets/{quote(version, safe='')}/images/{quote(digest, safe='')}"
    mended_by = "push the data set again"
    _receive(connection, path, f"image {digest}", mended_by, digest, size_bytes, target)


def report(connection: Connection, dataset: Dataset, target: Path) -> None:
    """Put the page of a version's probe at `target`, in place of what was there.

    Raises NotFound for a version that has none, DamagedObject, and OSError.
    """
    path = f"/v1/datasets/{quote(dataset.version, safe='')}/report"
    with connection.stream(path, silence_s=SILENCE_S) as response:
        page = b"".join(response.iter_bytes(READ_BYTES))
    if digest_bytes(page) != dataset.json["probe"]["report"]["digest"]:
        raise DamagedObject(
            f"the report of data set version {dataset.version} arrived with other bytes than it "
            "was stored with: push the data set again"
        )
    write_bytes(target, page)


def _check_registered(model: Model) -> None:
    match model.status:
        case "registered":
            return
        case "rejected":
            reason = model.json.get("detail") or model.json.get("failure", "")
            raise Conflict(
                f"model {model.id} was rejected: {reason}; there is nothing to fetch",
                model_id=model.id,
                failure=model.json.get("failure", ""),
            )
        case status:
            raise Conflict(
                f"model {model.id} is {status}: it is still being checked, and there is nothing to "
                f"fetch yet. See: perdure task watch {model.task_id}",
                model_id=model.id,
            )


def _check_name(model: Model, file: ModelFile) -> None:
    if not _SAFE_NAME.fullmatch(file.name):
        raise InvalidInput(f"model {model.id} has a file with an unsafe name: {file.name!r}")


def _check_free(file: ModelFile, folder: Path) -> None:
    target = folder / file.name
    if target.is_symlink() or (target.exists() and not _holds(target, file)):
        raise Conflict(f"{target} exists and is another file: choose another folder")


def _holds(path: Path, file: ModelFile) -> bool:
    return path.is_file() and digest_file(path) == file.digest


def _fetch(
    connection: Connection,
    model: Model,
    file: ModelFile,
    target: Path,
    on_bytes: Callable[[int], None],
) -> None:
    path = f"/v1/models/{quote(model.id, safe='')}/files/{quote(file.name, safe='')}"
    what, mended_by = f"{file.name} of model {model.id}", "train again"
    _receive(connection, path, what, mended_by, file.digest, file.size_bytes, target, on_bytes)


def _receive(
    connection: Connection,
    path: str,
    what: str,
    mended_by: str,
    expected: str,
    expected_bytes: int,
    target: Path,
    on_bytes: Callable[[int], None] = lambda _size_bytes: None,
) -> None:
    """Write the body of an answer to `target` and to the disk. Raises DamagedObject."""
    digest = blake3()
    size_bytes = 0
    with (
        connection.stream(path, silence_s=SILENCE_S) as response,
        target.open("xb") as out,
    ):
        for chunk in response.iter_bytes(READ_BYTES):
            digest.update(chunk)
            out.write(chunk)
            size_bytes += len(chunk)
            on_bytes(size_bytes)
            if size_bytes > expected_bytes:
                break
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != expected:
        raise DamagedObject(
            f"{what} arrived with the digest {digest.hexdigest()}, not {expected}: "
            f"nothing was kept; try again, or {mended_by} if that does not help"
        )
