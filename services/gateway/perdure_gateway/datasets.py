"""GET /v1/datasets: the data set versions that were imported."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import StreamingResponse

from perdure.datasets.snapshot import blob_key
from perdure.errors import NotFound
from perdure_gateway.context import DATASETS, GatewayOf, Id
from perdure_gateway.listing import Before, Limit, Prefix, page
from perdure_gateway.stored_files import stored_file, stored_image

router = APIRouter()
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


@router.get("/v1/datasets")
async def list_datasets(
    gateway: GatewayOf, limit: Limit = 100, before: Before = None, prefix: Prefix = ""
) -> dict[str, Any]:
    """Data set versions, newest first."""
    documents, next_before = await page(
        gateway, DATASETS, limit=limit, before=before, prefix=prefix
    )
    return {"datasets": [document.body for document in documents], "next_before": next_before}


@router.get("/v1/datasets/{version}")
async def show_dataset(gateway: GatewayOf, version: Id) -> dict[str, Any]:
    """One data set version."""
    document = await gateway.document(DATASETS, version)
    if document is None:
        raise NotFound(f"there is no data set version {version}", dataset_version=version)
    return document.body


@router.get("/v1/datasets/{version}/manifest")
async def dataset_manifest(gateway: GatewayOf, version: Id) -> StreamingResponse:
    """The version's manifest: the canonical text that the version is the BLAKE3 of."""
    body = await show_dataset(gateway, version)
    return await stored_file(gateway, body["manifest"], "application/json")


@router.get("/v1/datasets/{version}/findings")
async def dataset_findings(gateway: GatewayOf, version: Id) -> StreamingResponse:
    """All findings of the version's import, as `perdure dataset check --json` prints them."""
    body = await show_dataset(gateway, version)
    return await stored_file(gateway, body["findings"], "application/json")


@router.get("/v1/datasets/{version}/images/{digest}")
async def dataset_image(gateway: GatewayOf, version: Id, digest: Digest) -> StreamingResponse:
    """The original bytes of an image, by their BLAKE3 as the manifest has it."""
    await show_dataset(gateway, version)
    if not await gateway.images.hold(version, digest):
        raise NotFound(f"data set version {version} has no image {digest}")
    return await stored_image(gateway, blob_key(digest), digest)
