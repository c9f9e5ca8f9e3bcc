"""The body of an upload on its way to the store: bounded, hashed, and on a disk, not in memory."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from blake3 import blake3
from fastapi import Request
from starlette.requests import ClientDisconnect

from perdure.errors import InvalidInput, StoreUnavailable
from perdure_gateway.guard import too_large

# Body chunks of some 64 KiB are gathered before they go to the disk, to spare a thread switch for
# each.
WRITE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class Received:
    """A body that arrived whole, and the BLAKE3 digest of its bytes."""

    path: Path
    digest: str


@asynccontextmanager
async def received(
    request: Request, spool_dir: Path | None, *, max_bytes: int
) -> AsyncIterator[Received]:
    """The request's body in a file, which is gone when the block ends.

    Raises InputTooLarge, InvalidInput when it ends too soon, and StoreUnavailable when it cannot
    be written.
    """
    with tempfile.NamedTemporaryFile(dir=spool_dir, suffix=".upload") as spool:
        try:
            digest = await _spool(request.stream(), spool, max_bytes)
        except ClientDisconnect as error:
            raise InvalidInput("the upload ended before it was whole") from error
        except OSError as error:
            raise StoreUnavailable(
                f"the upload cannot be written to {Path(spool.name).parent}: {error.strerror}. "
                "Free some space there, then send it again"
            ) from error
        yield Received(Path(spool.name), digest)


async def _spool(chunks: AsyncIterator[bytes], spool: IO[bytes], max_bytes: int) -> str:
    """Write the body to `spool` and return its BLAKE3 digest."""
    digest = blake3()
    gathered = bytearray()
    size_bytes = 0

    def write() -> None:
        digest.update(gathered)
        spool.write(gathered)

    async for chunk in chunks:
        gathered += chunk
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            raise too_large(max_bytes)
        if len(gathered) >= WRITE_BYTES:
            await asyncio.to_thread(write)
            gathered.clear()
    await asyncio.to_thread(write)
    spool.flush()
    return digest.hexdigest()
