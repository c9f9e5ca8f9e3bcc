"""Sending a data set to the server, as an archive under its own digest, without what is there."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from perdure.artifacts.hashing import digest_file
from perdure.artifacts.packing import IMAGE_SUFFIXES, dataset_files, pack_files
from perdure.client.blobs import send_missing
from perdure.client.connection import LONG_REPLY_TIMEOUT_S, Connection
from perdure.client.problems import form_of
from perdure.client.records import Json
from perdure.datasets.thin_archive import IMAGES_FILE, images_text
from perdure.errors import InvalidInput

READ_BYTES: Final = 1024 * 1024

# Called with the bytes sent or received so far, and the bytes there are.
OnProgress = Callable[[int, int], None]


def send(connection: Connection, path: Path, on_progress: OnProgress | None) -> Json:
    """Send a folder or a zip archive; gives `key`, `digest`, `size_bytes`.

    Of a folder's images only those travel that the server does not have; in place of the others
    the archive names them by their digests. A zip is sent as it is.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        path = path.parent  # a data set's data.yaml stands for its folder
    report = on_progress or _silent
    if path.is_dir():
        return _send_folder(connection, path, report)
    if path.is_file():
        return _send_archive(connection, path, report)
    raise InvalidInput(f"there is no folder and no zip archive at {path}")


def _send_folder(connection: Connection, folder: Path, report: OnProgress) -> Json:
    files = dataset_files(folder)
    if any(name == IMAGES_FILE for name, _ in files):
        raise InvalidInput(
            f"{folder} holds a file called {IMAGES_FILE}, a name that uploads use themselves: "
            "rename it"
        )
    sizes = _image_sizes(files)
    images = [(name, path) for name, path in files if name in sizes]
    images_bytes = sum(sizes.values())
    done_bytes = 0

    def on_done(size_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += size_bytes
        report(done_bytes, images_bytes)

    named = send_missing(connection, images, on_done)
    with tempfile.TemporaryDirectory(prefix="perdure-") as temporary:
        rest = [entry for entry in files if entry[0] not in named]
        if named:
            listing = Path(temporary, IMAGES_FILE)
            listing.write_text(images_text(named), encoding="utf-8")
            rest.append((IMAGES_FILE, listing))
        archive = pack_files(rest, Path(temporary, "upload.zip"))
        return _send_archive(
            connection,
            archive,
            lambda sent, total: report(done_bytes + sent, done_bytes + total),
        )


def _image_sizes(files: Sequence[tuple[str, Path]]) -> dict[str, int]:
    """The images among the files, by name, with their sizes in bytes. One that is too large for an
    image stays in the archive, and the import says so.
    """
    from perdure.datasets.imaging import MAX_FILE_BYTES  # with the decoders, a tenth of a second

    sizes = {
        name: path.stat().st_size for name, path in files if path.suffix.lower() in IMAGE_SUFFIXES
    }
    return {name: size_bytes for name, size_bytes in sizes.items() if size_bytes <= MAX_FILE_BYTES}


def _send_archive(connection: Connection, archive: Path, report: OnProgress) -> Json:
    size_bytes = archive.stat().st_size
    digest = digest_file(archive)

    def content() -> Iterator[bytes]:
        sent = 0
        with archive.open("rb") as stream:
            while chunk := stream.read(READ_BYTES):
                yield chunk
                sent += len(chunk)
                report(sent, size_bytes)

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


def _silent(_done: int, _total: int) -> None:
    """Report nothing."""
