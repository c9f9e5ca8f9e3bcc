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

from perdure.errors import InvalidInput, StoreUnavailable, Unavailable
from perdure_gateway.guard import too_large

# Body chunks of some 64 KiB are gathered before they go to the disk, to spare a thread switch for
# each.
WRITE_BYTES: Final = 1024 * 1024
# Who sends nothing for so long has gone to sleep, or wants to hold a file and a connection.
SILENCE_S: Final = 60.0
# So does who sends a byte a minute. One of six images at once through a slow modem is faster.
SLOWEST_BYTES_PER_S: Final = 1024


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

    Raises InputTooLarge, InvalidInput when it ends too soon, Unavailable when it comes too slowly,
    and StoreUnavailable when it cannot be written.
    """
    where = spool_dir or Path(tempfile.gettempdir())
    try:
        spool = await asyncio.to_thread(_new_file, where)
    except OSError as error:
        raise _not_written(where, error) from error
    try:
        try:
            digest = await _spool(request.stream(), spool, max_bytes)
        except ClientDisconnect as error:
            raise InvalidInput("the upload ended before it was whole") from error
        except TimeoutError as error:
            raise Unavailable(
                "the upload stood still, or came too slowly, and was given up: send it again"
            ) from error
        except OSError as error:
            raise _not_written(where, error) from error
        yield Received(Path(spool.name), digest)
    finally:
        await asyncio.to_thread(spool.close)  # a large file takes its time to go


def _new_file(folder: Path) -> IO[bytes]:
    # Without a buffer: closing it would write what a full disk has refused, and fail again.
    return tempfile.NamedTemporaryFile(dir=folder, suffix=".upload", buffering=0)


def _not_written(folder: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the upload cannot be written to {folder}: {error.strerror}. "
        "Free some space there, then send it again"
    )


async def _spool(chunks: AsyncIterator[bytes], spool: IO[bytes], max_bytes: int) -> str:
    """Write the body to `spool` and return its BLAKE3 digest. Raises TimeoutError."""
    digest = blake3()
    gathered = bytearray()
    size_bytes = 0

    def write() -> None:
        digest.update(gathered)
        with memoryview(gathered) as left:
            written = 0
            while written < len(left):
                written += spool.write(left[written:])

    async for chunk in _in_time(chunks):
        gathered += chunk
        size_bytes += len(chunk)
        if size_bytes > max_bytes:
            raise too_large(max_bytes)
        if len(gathered) >= WRITE_BYTES:
            await asyncio.to_thread(write)
            gathered.clear()
    await asyncio.to_thread(write)
    return digest.hexdigest()


async def _in_time(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """`chunks`, as long as each comes within SILENCE_S, and all not too slowly.

    Raises TimeoutError. How long the taker of a chunk needs does not count.
    """
    clock = asyncio.get_running_loop()
    waited_s, size_bytes = 0.0, 0
    while True:
        ahead_s = size_bytes / SLOWEST_BYTES_PER_S - waited_s
        began_s = clock.time()
        async with asyncio.timeout(SILENCE_S + min(0.0, ahead_s)):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        waited_s += clock.time() - began_s
        size_bytes += len(chunk)
        yield chunk
