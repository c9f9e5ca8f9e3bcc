"""The relay publishes the log in order, and goes on where it was."""

import asyncio

from perdure.errors import BusUnavailable
from perdure.messaging import topology
from perdure.messaging.port import Delivery, Message, Queue
from perdure_relay.relay import CHECKPOINT, Relay
from tests.builders.stack import Stack, _running

DEADLINE_S = 10.0
QUEUE = Queue("all", topology.EVENTS, ("#",))


async def relay_until(stack: Stack, position: int) -> None:
    relay = Relay(eventlog=stack.log, checkpoints=stack.read_models, bus=stack.bus)
    async with _running(relay.run), asyncio.timeout(DEADLINE_S):
        while await stack.read_models.position(CHECKPOINT) < position:
            await asyncio.sleep(0.01)


async def test_every_event_is_published_in_order_and_once() -> None:
    stack = Stack()
    got: list[str] = []

    async def take(delivery: Delivery) -> None:
        got.append(delivery.message.id)

    await stack.bus.consume(QUEUE, take)
    for _ in range(3):
        await stack.submit()
    await relay_until(stack, 3)
    for _ in range(2):
        await stack.submit()
    await relay_until(stack, 5)
    await stack.bus.settled(DEADLINE_S)
    assert got == [event.id for event in await stack.log.read_all(after=0)]


async def test_the_checkpoint_waits_for_the_confirm() -> None:
    stack = Stack()
    positions: list[int] = []
    publish = stack.bus.publish

    async def refuse_twice(exchange: str, key: str, message: Message) -> None:
        positions.append(await stack.read_models.position(CHECKPOINT))
        if len(positions) <= 2:
            raise BusUnavailable("away")
        await publish(exchange, key, message)

    stack.bus.publish = refuse_twice  # type: ignore[method-assign]
    await stack.submit()
    await relay_until(stack, 1)
    assert positions == [0, 0, 0]
