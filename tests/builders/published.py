"""A queue of the test's own, for all that the relay publishes, held against the log."""

import asyncio
from typing import Final

from perdure.eventlog.postgres import open_postgres
from perdure.messaging import open_bus, topology
from perdure.messaging.port import Delivery, Queue

DEADLINE_S: Final = 60.0
MAX_EVENTS: Final = 10_000
_QUEUE: Final = Queue("test.published", topology.EVENTS, ("#",))


def keep_what_is_published(bus_url: str) -> None:
    """From now on."""

    async def declare() -> None:
        bus = await open_bus(bus_url)
        await bus.declare(_QUEUE)
        await bus.close()

    asyncio.run(declare())


def assert_published_in_order(bus_url: str, log_url: str) -> None:
    """Whoever reads what was published since the last time, and passes over ids that he knows, sees
    the log: nothing is missing, and nothing comes before what it follows on.
    """
    firsts, recorded = asyncio.run(_read(bus_url, log_url))
    assert firsts == recorded[recorded.index(firsts[0]) :]


async def _read(bus_url: str, log_url: str) -> tuple[list[str], list[str]]:
    """The ids of what was published, each where it came first, and those of the log."""
    log, _ = await open_postgres(log_url)
    recorded = [event.id for event in await log.read_all(after=0, limit=MAX_EVENTS)]
    await log.close()
    published: dict[str, None] = {}
    last_came = asyncio.Event()

    async def note(delivery: Delivery) -> None:
        published[delivery.message.id] = None
        if delivery.message.id == recorded[-1]:
            last_came.set()

    bus = await open_bus(bus_url)
    await bus.consume(_QUEUE, note)
    async with asyncio.timeout(DEADLINE_S):
        await last_came.wait()
    await bus.close()
    return list(published), recorded
