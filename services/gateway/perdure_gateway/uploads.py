"""POST /v1/uploads: a zip archive, streamed to disk, checked, and stored under its own digest."""

import asyncio
import tempfile
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Annotated, Any, Final

from blake3 import blake3
from fastapi import APIRouter, Header, Request
from starlette.requests import ClientDisconnect

from perdure.artifacts.port import ObjectStore
from perdure.errors import InvalidInput, StoreUnavailable, UnsupportedMediaType
from perdure_gateway.answering import NEEDS_STORE
from perdure_gateway.context import GatewayOf
from perdure_gateway.guard import UPLOAD_PATH, too_large

router = APIRouter()
ZIP_MEDIA_TYPES: Final = ("application/zip", "application/octet-stream")
# Body chunks of some 64 KiB are gathered before they go to the disk, to spare a thread switch for
# each.
WRITE_BYTES: Final = 1024 * 1024


@router.post(UPLOAD_PATH, status_code=201, dependencies=[NEEDS_STORE])
async def upload(
    request: Request,
    gateway: GatewayOf,
    content_type: Annotated[str, Header()] = "",
    perdure_digest: Annotated[str | None, Header(pattern=r"^[0-9a-f]{64}$")] = None,
) -> dict[str, Any]:
    """Take a zip archive as the raw body; `Perdure-Digest` (BLAKE3) is checked when it is given."""
    if content_type.partition(";")[0].strip().lower() not in ZIP_MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"an upload is a zip archive: send it with the content type {ZIP_MEDIA_TYPES[0]}"
        )
    limit = gateway.settings.max_upload_bytes
    with tempfile.NamedTemporaryFile(dir=gateway.settings.spool_dir, suffix=".upload") as spool:
        try:
            digest = await _spool(request.stream(), spool, limit)
        except ClientDisconnect as error:
            raise InvalidInput("the upload ended before it was whole") from error
        except OSError as error:
            raise StoreUnavailable(
                f"the upload cannot be written to {Path(spool.name).parent}: {error.strerror}. "
                "Free some space there, then send it again"
            ) from error
        if perdure_digest not in (None, digest):
            raise InvalidInput(
                f"the upload arrived with the digest {digest}, not {perdure_digest}: send it again"
            )
        return await asyncio.to_thread(_keep, gateway.store, Path(spool.name), digest)


async def _spool(chunks: AsyncIterator[bytes], spool: IO[bytes], limit: int) -> str:
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
        if size_bytes > limit:
            raise too_large(limit)
        if len(gathered) >= WRITE_BYTES:
            await asyncio.to_thread(write)
            gathered.clear()
    await asyncio.to_thread(write)
    spool.flush()
    return digest.hexdigest()


def _keep(store: ObjectStore, path: Path, digest: str) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise InvalidInput("the upload is not a zip archive, or not whole")
    # Also when it is there already: sent again, an upload that the store has damaged is mended.
    stored = store.put_file(f"uploads/{digest}.zip", path)
    return {"key": stored.key, "digest": stored.digest, "size_bytes": stored.size_bytes}
