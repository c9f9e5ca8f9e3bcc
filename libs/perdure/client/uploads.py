"""Sending a data set to the server, as a zip archive under its own digest."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from perdure.artifacts.archive import pack_folder
from perdure.artifacts.hashing import digest_file
from perdure.client.connection import LONG_REPLY_TIMEOUT_S, Connection
from perdure.client.problems import form_of
from perdure.client.records import Json
from perdure.errors import InvalidInput

READ_BYTES: Final = 1024 * 1024

# Called with the bytes sent or received so far, and the bytes there are.
OnProgress = Callable[[int, int], None]


def send(connection: Connection, path: Path, on_progress: OnProgress | None) -> Json:
    """Send a folder (packed on the way) or a zip archive; gives `key`, `digest`, `size_bytes`."""
    if path.suffix.lower() in (".yaml", ".yml"):
        path = path.parent  # a data set's data.yaml stands for its folder
    if path.is_dir():
        with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
            archive = Path(folder) / "upload.zip"
            pack_folder(path, archive)
            return _send(connection, archive, on_progress)
    if path.is_file():
        return _send(connection, path, on_progress)
    raise InvalidInput(f"there is no folder and no zip archive at {path}")


def _send(connection: Connection, archive: Path, on_progress: OnProgress | None) -> Json:
    size_bytes = archive.stat().st_size
    digest = digest_file(archive)

    def content() -> Iterator[bytes]:
        sent = 0
        with archive.open("rb") as stream:
            while chunk := stream.read(READ_BYTES):
                yield chunk
                sent += len(chunk)
                if on_progress is not None:
                    on_progress(sent, size_bytes)

    headers = {
        "Content-Type": "application/zip",
        "Content-Length": str(size_bytes),
        "Perdure-Digest": digest,
        # The archive's digest is its name in the store: sent twice, it is there once.
        "Idempotency-Key": digest,
    }
    response = connection.request(
        "POST",
        "/v1/uploads",
        content=content,
        headers=headers,
        reply_timeout_s=LONG_REPLY_TIMEOUT_S,
    )
    return form_of(response)
