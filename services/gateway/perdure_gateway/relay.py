"""GET /v1/audit/relay: how far the relay is behind the log, and whether there is one."""

from typing import Any

from fastapi import APIRouter

from perdure.eventlog.lag import lag
from perdure.eventlog.leadership import RELAY
from perdure_gateway.context import GatewayOf

router = APIRouter()


@router.get("/v1/audit/relay")
async def relay(gateway: GatewayOf) -> dict[str, Any]:
    """The end of the log, the relay's checkpoint, and what lies between.

    `lag_s` is the age of the oldest event that is not published, 0 when all are. `active`: whether
    a relay leads; null for a log that elects none.
    """
    now = gateway.clock.now()
    behind = await lag(gateway.log, gateway.read_models, RELAY, now)
    return {
        "time": now,
        "head": behind.head,
        "position": behind.position,
        "lag_events": behind.events,
        "lag_s": behind.seconds,
        "active": await gateway.log.has_leader(RELAY),
    }
