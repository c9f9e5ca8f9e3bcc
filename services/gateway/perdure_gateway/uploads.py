"""POST /v1/uploads: a zip archive, streamed to disk, checked, and stored under its own digest."""

import asyncio
import zipfile
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request

from perdure.artifacts.port import ObjectStore
from perdure.errors import InvalidInput, UnsupportedMediaType
from perdure_gateway.answering import NEEDS_STORE
from perdure_gateway.context import GatewayOf
from perdure_gateway.guard import UPLOAD_PATH
from perdure_gateway.receiving import received

router = APIRouter()
ZIP_MEDIA_TYPES: Final = ("application/zip", "application/octet-stream")


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
    settings = gateway.settings
    async with received(request, settings.spool_dir, max_bytes=settings.max_upload_bytes) as body:
        if perdure_digest not in (None, body.digest):
            raise InvalidInput(
                f"the upload arrived with the digest {body.digest}, not {perdure_digest}: "
                "send it again"
            )
        return await asyncio.to_thread(_keep, gateway.store, body.path, body.digest)


def _keep(store: ObjectStore, path: Path, digest: str) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise InvalidInput("the upload is not a zip archive, or not whole")
    # Also when it is there already: sent again, an upload that the store has damaged is mended.
    stored = store.put_file(f"uploads/{digest}.zip", path)
    return {"key": stored.key, "digest": stored.digest, "size_bytes": stored.size_bytes}
