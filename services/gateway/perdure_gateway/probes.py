"""GET /v1/datasets/{version}/probe and /report: what an import found out about a version."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import StreamingResponse

from perdure.errors import NotFound
from perdure_gateway.context import Gateway, GatewayOf, Id
from perdure_gateway.datasets import show_dataset
from perdure_gateway.stored_files import stored_file

router = APIRouter()
# The page itself holds the stricter policy, with its style's hash. It shows what strangers have
# named and drawn: opened here, it has no origin, runs nothing and fetches nothing.
_REPORT_POLICY: Final = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


@router.get("/v1/datasets/{version}/probe")
async def dataset_probe(gateway: GatewayOf, version: Id) -> StreamingResponse:
    """The version's probe, as `perdure dataset probe --json` prints it."""
    probe = await _probe(gateway, version)
    return await stored_file(gateway, probe["probe"], "application/json")


@router.get("/v1/datasets/{version}/report")
async def dataset_report(gateway: GatewayOf, version: Id) -> StreamingResponse:
    """The version's probe as one HTML page."""
    probe = await _probe(gateway, version)
    response = await stored_file(gateway, probe["report"], "text/html")
    response.headers["Content-Disposition"] = "inline"
    response.headers["Content-Security-Policy"] = _REPORT_POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


async def _probe(gateway: Gateway, version: str) -> dict[str, Any]:
    body = await show_dataset(gateway, version)
    probe: dict[str, Any] | None = body.get("probe")
    if probe is None:
        raise NotFound(
            f"data set version {version} was imported before there were probes: push it again",
            dataset_version=version,
        )
    return probe
