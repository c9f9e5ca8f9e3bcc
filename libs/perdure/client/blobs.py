"""Sending images by their digests, and only those that the server does not have.

A request costs the server some 4 ms, whatever it carries. So small images that are missing go along
in the archive, all in one request, and larger ones each by itself: a push that broke off goes on
where it was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from blake3 import blake3

from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.client.connection import LONG_REPLY_TIMEOUT_S, Connection
from perdure.client.problems import form_of
from perdure.datasets.thin_archive import NamedImage
from perdure.errors import ForeignServer, InvalidInput

# The server takes at most 10,000. It looks up some hundred a second in a slow store, and the bar is
# to move now and then.
ASK_AT_ONCE: Final = 1_000
# Below this, an image takes less time to send than a request of its own costs.
SMALL_BYTES: Final = 256 << 10
# So much goes along in the archive, and no more: it is sent anew when a push breaks off, and the
# server takes no archive of any size.
ALONG_MAX_BYTES: Final = 4 << 30
# One image is sent while others are written to the server's disk. More gain nothing, and each
# holds a connection.
THREADS: Final = 6


def send_missing(
    connection: Connection, images: Sequence[tuple[str, Path]], on_done: Callable[[int], None]
) -> dict[str, NamedImage]:
    """Send the larger ones of the images (names and files) that the server does not have.

    Gives the images that it has now, by name: the others have to be in the archive. `on_done` is
    called, in the caller's thread, with bytes that are known to be there. Raises InvalidInput when
    a file changes meanwhile, OSError when it cannot be read, and what Connection.request does.
    """
    named: dict[str, NamedImage] = {}
    along_bytes = 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="send") as pool:
        try:
            for start in range(0, len(images), ASK_AT_ONCE):
                batch = images[start : start + ASK_AT_ONCE]
                found = list(pool.map(_named, (path for _, path in batch)))
                contents = {
                    image.digest: (image, path)
                    for (_, path), image in zip(batch, found, strict=True)
                }
                along: set[str] = set()
                to_send: list[tuple[NamedImage, Path]] = []
                for digest in _missing(connection, contents):
                    size_bytes = contents[digest][0].size_bytes
                    if size_bytes < SMALL_BYTES and along_bytes + size_bytes <= ALONG_MAX_BYTES:
                        along.add(digest)
                        along_bytes += size_bytes
                    else:
                        to_send.append(contents[digest])
                there = {
                    name: image
                    for (name, _), image in zip(batch, found, strict=True)
                    if image.digest not in along
                }
                named.update(there)
                to_send_bytes = sum(image.size_bytes for image, _ in to_send)
                on_done(sum(image.size_bytes for image in there.values()) - to_send_bytes)
                for sent_bytes in pool.map(lambda item: _send(connection, *item), to_send):
                    on_done(sent_bytes)
        finally:
            pool.shutdown(cancel_futures=True)
    return named


def _named(path: Path) -> NamedImage:
    """The digest and the size of the same bytes, whatever happens to the file afterwards."""
    hasher = blake3()
    size_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return NamedImage(hasher.hexdigest(), size_bytes)


def _missing(connection: Connection, digests: Mapping[str, object]) -> list[str]:
    """Those of the digests that the server wants to have sent."""
    response = connection.request(
        "POST",
        "/v1/blobs/missing",
        json={"digests": list(digests)},
        # It only asks: a second time does no harm.
        headers={"Idempotency-Key": blake3("".join(digests).encode()).hexdigest()},
        reply_timeout_s=LONG_REPLY_TIMEOUT_S,
    )
    missing = form_of(response).get("missing")
    if not isinstance(missing, list) or not all(
        isinstance(digest, str) and digest in digests for digest in missing
    ):
        raise ForeignServer("the server names other images than it was asked for")
    return list(dict.fromkeys(missing))


def _send(connection: Connection, image: NamedImage, path: Path) -> int:
    connection.request(
        "PUT",
        f"/v1/blobs/{image.digest}",
        content=lambda: _content(path, image.size_bytes),
        headers={
            "Content-Type": "application/octet-stream",
            "Content-Length": str(image.size_bytes),
        },
        reply_timeout_s=LONG_REPLY_TIMEOUT_S,
    )
    return image.size_bytes


def _content(path: Path, size_bytes: int) -> Iterator[bytes]:
    """The file's bytes, as many as were announced. Whether they are the same, the server sees."""
    left = size_bytes
    with path.open("rb") as file:
        while left > 0:
            chunk = file.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise InvalidInput(
                    f"{path} became shorter while it was sent: push again when nothing writes to "
                    "the folder"
                )
            yield chunk
            left -= len(chunk)
