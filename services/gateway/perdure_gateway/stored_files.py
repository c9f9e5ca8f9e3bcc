"""Objects of the store as bodies of answers, streamed, with their digests."""

import asyncio
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from starlette.responses import StreamingResponse

from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.errors import DamagedObject, NotFound
from perdure_gateway.context import Gateway

DIGEST_HEADER: Final = "Perdure-Digest"
CHUNK_BYTES: Final = 256 * 1024
PUSH_AGAIN: Final = "push the data set again"


async def stored_file(
    gateway: Gateway,
    blob: dict[str, Any],
    media_type: str = "application/octet-stream",
    *,
    again: str = PUSH_AGAIN,
) -> StreamingResponse:
    """The object that `blob` (key, digest, size_bytes) names. `Perdure-Digest` is its BLAKE3.

    Raises NotFound, StoreUnavailable, and DamagedObject when another object lies there now; `again`
    says how to make it anew.
    """
    named = StoredObject(blob["key"], blob["digest"], int(blob["size_bytes"]))
    opened = await asyncio.to_thread(_opened, gateway.store, named, again)
    return _answer(opened, named, media_type)


async def stored_image(gateway: Gateway, key: str, digest: str) -> StreamingResponse:
    """The object at `key`, whose size nobody has written down. Raises as `stored_file` does."""

    def found() -> tuple[BinaryIO, StoredObject]:
        stored = gateway.store.stat(key)
        if stored is None:
            raise NotFound(f"the object store has no object {key}: {PUSH_AGAIN}")
        _check(stored, StoredObject(key, digest, stored.size_bytes), PUSH_AGAIN)
        return gateway.store.open(key), stored

    opened, stored = await asyncio.to_thread(found)
    return _answer(opened, stored, "application/octet-stream")


def _opened(store: ObjectStore, named: StoredObject, again: str) -> BinaryIO:
    stored = store.stat(named.key)
    if stored is not None:
        _check(stored, named, again)
    return store.open(named.key)


def _check(stored: StoredObject, named: StoredObject, again: str) -> None:
    """Before the answer begins: whoever gets fewer bytes than were announced would take it for a
    connection that broke.
    """
    if stored != named:
        raise DamagedObject(
            f"object {named.key} has {stored.size_bytes} bytes and the digest {stored.digest}, "
            f"where {named.size_bytes} bytes with {named.digest} were stored: restore the object "
            f"store from a backup, or {again}"
        )


def _answer(opened: BinaryIO, stored: StoredObject, media_type: str) -> StreamingResponse:
    headers = {
        DIGEST_HEADER: stored.digest,
        "Content-Length": str(stored.size_bytes),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_chunks(opened), media_type=media_type, headers=headers)


def _chunks(opened: BinaryIO) -> Iterator[bytes]:
    with opened:
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk
