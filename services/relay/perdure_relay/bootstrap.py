"""The relay, put together from its ports."""

import asyncio

from perdure.eventlog.leadership import RELAY, Leadership, while_leading
from perdure.messaging import topology
from perdure.runtime import health
from perdure.runtime.clock import SystemClock
from perdure.runtime.host import Host, Service
from perdure_relay.measures import Measures
from perdure_relay.relay import Relay
from perdure_relay.settings import RelaySettings


async def assemble(settings: RelaySettings, host: Host) -> Service:
    """A relay that works while it leads."""
    log, checkpoints = await host.log(settings.log_url)
    bus = await host.bus(settings.bus_url)
    leadership = Leadership()
    measures = Measures(log, checkpoints, SystemClock())

    async def lead(ending: asyncio.Event) -> None:
        relay = Relay(
            eventlog=host.pulse.of(log),
            checkpoints=host.pulse.of(checkpoints),
            bus=bus,
            leads=leadership.held,
        )
        with host.pulse.expected():
            async with asyncio.TaskGroup() as parts:
                parts.create_task(relay.run(ending), name="relay")
                parts.create_task(measures.watch(ending), name="measures")

    async def run(stopping: asyncio.Event) -> None:
        dsn = settings.log_url.get_secret_value()
        await while_leading(dsn, RELAY, lead, stopping, leadership, drain_s=settings.work_drain_s)

    checks = {
        "database": health.database(log),
        "broker": health.broker(bus, topology.SCHEDULER_REPORTS),
        "leadership": leadership.check,
    }
    return Service(run, checks, lambda: "leading" if leadership.leads else "standby")
