"""The scheduler, put together from its ports."""

import asyncio

from perdure.eventlog.leadership import SCHEDULER, Leadership, while_leading
from perdure.messaging import topology
from perdure.messaging.port import Bus
from perdure.runtime import health
from perdure.runtime.clock import SystemClock, new_id
from perdure.runtime.health import Check
from perdure.runtime.host import Host, Service
from perdure_scheduler.dead_letters import DeadLetterKeeper
from perdure_scheduler.leaders_log import leaders_log
from perdure_scheduler.measures import Measures
from perdure_scheduler.scheduler import Scheduler
from perdure_scheduler.settings import SchedulerSettings

CONSUMED = (topology.SCHEDULER_REPORTS, topology.SCHEDULER_HEARTBEATS, topology.DEAD_LETTERS)


async def assemble(settings: SchedulerSettings, host: Host) -> Service:
    """A scheduler, and the keeper of dead letters, that work while this process leads."""
    log, _read_models = await host.log(settings.log_url)
    bus = await host.bus(settings.bus_url)
    clock = SystemClock()
    leadership = Leadership()
    measures = Measures(bus, clock)

    async def lead(ending: asyncio.Event) -> None:
        ours = leaders_log(log, lambda: leadership.leads)
        scheduler = Scheduler(eventlog=host.pulse.of(ours), bus=bus, clock=clock, new_id=new_id)
        keeper = DeadLetterKeeper(log, bus, clock)
        with host.pulse.expected():
            async with asyncio.TaskGroup() as parts:
                parts.create_task(scheduler.run(ending), name="scheduler")
                parts.create_task(keeper.run(ending), name="keeper of dead letters")
                parts.create_task(measures.watch(scheduler, ending), name="measures")

    async def run(stopping: asyncio.Event) -> None:
        dsn = settings.log_url.get_secret_value()
        await while_leading(
            dsn, SCHEDULER, lead, stopping, leadership, drain_s=settings.work_drain_s
        )

    checks = {
        "database": health.database(log),
        "broker": _broker(bus, leadership),
        "leadership": leadership.check,
    }
    return Service(run, checks, lambda: "leading" if leadership.leads else "standby")


def _broker(bus: Bus, leadership: Leadership) -> Check:
    """Who leads consumes; a standby only has to reach the broker."""
    leading = health.consumers(bus, *CONSUMED)
    standby = health.broker(bus, topology.SCHEDULER_REPORTS)

    async def check() -> str:
        return await (leading() if leadership.leads else standby())

    return check
