"""A queue of the test's own, for all that the relay publishes, held against the log."""

import asyncio
import contextlib
from typing import Final

from perdure.eventlog.postgres import open_postgres
from perdure.messaging import open_bus, topology
from perdure.messaging.port import Delivery, Queue

DEADLINE_S: Final = 30.0
MAX_EVENTS: Final = 10_000
_QUEUE: Final = Queue("test.published", topology.EVENTS, ("#",))


class Published:
    """What is published from now on."""

    def __init__(self, bus_url: str, log_url: str) -> None:
        self._bus_url = bus_url
        self._log_url = log_url
        self._after = asyncio.run(self._begin())

    def assert_complete_and_in_order(self) -> None:
        """Whoever reads what was published since the last time, and passes over ids that he knows,
        sees the log: nothing is missing, and nothing comes before what it follows on.
        """
        published, recorded = asyncio.run(self._read())
        new = recorded[self._after :]
        assert published[len(published) - len(new) :] == new
        # What was on its way, or came again.
        assert set(published[: len(published) - len(new)]) <= set(recorded[: self._after])
        self._after = len(recorded)

    async def _begin(self) -> int:
        """Make the queue, and give the position of the log's head after that."""
        bus = await open_bus(self._bus_url)
        await bus.declare(_QUEUE)
        await bus.close()
        log, _ = await open_postgres(self._log_url)
        head = await log.head()
        await log.close()
        return head.position

    async def _read(self) -> tuple[list[str], list[str]]:
        """The ids of what was published, each where it came first, and those of the log."""
        log, _ = await open_postgres(self._log_url)
        recorded = [event.id for event in await log.read_all(after=0, limit=MAX_EVENTS)]
        await log.close()
        published: dict[str, None] = {}
        last_came = asyncio.Event()

        async def note(delivery: Delivery) -> None:
            published[delivery.message.id] = None
            if delivery.message.id == recorded[-1]:
                last_came.set()

        bus = await open_bus(self._bus_url)
        await bus.consume(_QUEUE, note)
        with contextlib.suppress(TimeoutError):  # the comparison shows what is missing
            await asyncio.wait_for(last_came.wait(), DEADLINE_S)
        await bus.close()
        return list(published), recorded
