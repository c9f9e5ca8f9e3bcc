"""Messages, and somebody who takes them in."""

import asyncio
from collections.abc import Awaitable, Callable

from perdure.messaging.port import Delivery, Message

DEADLINE_S = 30.0  # how long a consumer may take to come back, whatever happened
POLL_S = 0.02


def message(number: int) -> Message:
    return Message(id=f"m{number}", type="Thing", body=str(number).encode())


class Inbox:
    """Takes deliveries in, and fails those it is told to."""

    def __init__(self, fail: dict[str, int] | None = None) -> None:
        self.deliveries: list[Delivery] = []
        self._fail = fail or {}
        self._arrived = asyncio.Condition()

    async def __call__(self, delivery: Delivery) -> None:
        async with self._arrived:
            self.deliveries.append(delivery)
            self._arrived.notify_all()
        if delivery.attempt <= self._fail.get(delivery.message.id, 0):
            raise RuntimeError("not this time")

    async def has(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(lambda: len(self.deliveries) >= number)

    @property
    def ids(self) -> list[str]:
        return [d.message.id for d in self.deliveries]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():
            await asyncio.sleep(POLL_S)
