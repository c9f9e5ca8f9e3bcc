"""Objects of the store as bodies of answers, streamed, with their digests."""

import asyncio
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from starlette.responses import StreamingResponse

from perdure_gateway.context import Gateway

DIGEST_HEADER: Final = "Perdure-Digest"
CHUNK_BYTES: Final = 256 * 1024


async def stored_file(
    gateway: Gateway, blob: dict[str, Any], media_type: str = "application/octet-stream"
) -> StreamingResponse:
    """The object that `blob` (key, digest, size_bytes) names. `Perdure-Digest` is its BLAKE3.

    Raises NotFound and StoreUnavailable.
    """
    opened = await asyncio.to_thread(gateway.store.open, blob["key"])
    headers = {
        DIGEST_HEADER: blob["digest"],
        "Content-Length": str(blob["size_bytes"]),
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_chunks(opened), media_type=media_type, headers=headers)


def _chunks(opened: BinaryIO) -> Iterator[bytes]:
    with opened:
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk
