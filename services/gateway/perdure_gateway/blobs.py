"""/v1/blobs: the bytes of images by their digests, so that a push sends only what is not there."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from perdure.artifacts.port import ObjectStore
from perdure.datasets.snapshot import TRANSFER_THREADS, blob_key
from perdure.errors import DamagedObject, InvalidInput
from perdure_gateway.answering import NEEDS_STORE
from perdure_gateway.context import GatewayOf
from perdure_gateway.guard import BLOBS_PATH, MISSING_PATH
from perdure_gateway.receiving import received

router = APIRouter()
# With some 70 bytes for each digest they fit into the largest body.
MAX_DIGESTS: Final = 10_000
_DIGEST: Final = r"^[0-9a-f]{64}$"


class Asked(BaseModel):
    """The digests that somebody asks for."""

    model_config = ConfigDict(extra="forbid")

    digests: Annotated[list[Annotated[str, Field(pattern=_DIGEST)]], Field(max_length=MAX_DIGESTS)]


@router.post(MISSING_PATH, dependencies=[NEEDS_STORE])
async def missing(asked: Asked, gateway: GatewayOf) -> dict[str, Any]:
    """Those of the digests whose bytes are not stored, each once, in the order they came in."""
    digests = dict.fromkeys(asked.digests)
    return {"missing": await asyncio.to_thread(_missing, gateway.store, digests)}


@router.put(BLOBS_PATH + "{digest}", status_code=201, dependencies=[NEEDS_STORE])
async def keep(
    digest: Annotated[str, Path(pattern=_DIGEST)], request: Request, gateway: GatewayOf
) -> dict[str, Any]:
    """Take the bytes of one image as the raw body. Sent again, what the store has damaged is
    mended.
    """
    settings = gateway.settings
    async with received(request, settings.spool_dir, max_bytes=settings.max_blob_bytes) as body:
        if body.digest != digest:
            raise InvalidInput(
                f"the image arrived with the digest {body.digest}, not {digest}: it was changed "
                "while it was sent, or on the way. Push the data set again"
            )
        stored = await asyncio.to_thread(gateway.store.put_file, blob_key(digest), body.path)
    return {"digest": stored.digest, "size_bytes": stored.size_bytes}


def _missing(store: ObjectStore, digests: Iterable[str]) -> list[str]:
    def is_missing(digest: str) -> bool:
        try:
            stored = store.stat(blob_key(digest))
        except DamagedObject:
            return True  # it is sent again, which mends it
        return stored is None or stored.digest != digest

    with ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="look-up") as pool:
        try:
            looked_up = zip(digests, pool.map(is_missing, digests), strict=True)
            return [digest for digest, is_not_there in looked_up if is_not_there]
        finally:
            pool.shutdown(cancel_futures=True)
