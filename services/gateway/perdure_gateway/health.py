"""GET /healthz, /readyz and /v1/version."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

import perdure
from perdure.runtime.health import (
    Check,
    Checks,
    answered,
    consumers,
    database,
    store,
    verdict,
)
from perdure_gateway.context import Gateway, GatewayOf

router = APIRouter()


def readiness(gateway: Gateway) -> Mapping[str, Check]:
    """What has to be well for the gateway to do all it can."""

    async def projections() -> str:
        gateway.check_projections()
        return "up"

    return {
        "database": database(gateway.log),
        "broker": consumers(gateway.bus, *gateway.live.queues),
        "store": store(gateway.store),
        "projections": projections,
    }


@router.get("/healthz")
async def healthz(gateway: GatewayOf) -> dict[str, str]:
    """Whether all is well: 503 when the log does not answer, 500 when a read model stands still."""
    await gateway.log.head()
    gateway.check_projections()
    return {"status": "ok"}


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Whether all that the gateway needs answers: 503, with what does not, when it does not."""
    checks: Checks = request.app.state.checks
    return answered(*verdict(await checks.results()))


@router.get("/v1/version")
async def version() -> dict[str, str]:
    """The server's version."""
    return {"version": perdure.__version__}
