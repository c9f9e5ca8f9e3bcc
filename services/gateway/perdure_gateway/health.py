"""GET /healthz and /v1/version."""

from fastapi import APIRouter

import perdure
from perdure_gateway.context import GatewayOf

router = APIRouter()


@router.get("/healthz")
async def healthz(gateway: GatewayOf) -> dict[str, str]:
    """Whether all is well: 503 when the log does not answer, 500 when a read model stands still."""
    await gateway.log.head()
    gateway.check_projections()
    return {"status": "ok"}


@router.get("/v1/version")
async def version() -> dict[str, str]:
    """The server's version."""
    return {"version": perdure.__version__}
