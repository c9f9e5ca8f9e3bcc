"""A process that consumes a queue, and dies of one message: it says the id of each other one.

python -m tests.children.consumer URL BROKER_DELIVERY_LIMIT
"""

import asyncio
import os
import signal
import sys

from perdure.messaging import open_bus, rabbitmq_queues
from perdure.messaging.port import Delivery, Queue

QUEUE = Queue("fragile", "x", ("#",))
POISON = b"poison"


async def consume(url: str) -> None:
    bus = await open_bus(url)

    async def handle(delivery: Delivery) -> None:
        if delivery.message.body == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        print(delivery.message.id, flush=True)

    await bus.consume(QUEUE, handle)
    await asyncio.Event().wait()


if __name__ == "__main__":
    rabbitmq_queues.BROKER_DELIVERY_LIMIT = int(sys.argv[2])  # type: ignore[misc]
    asyncio.run(consume(sys.argv[1]))
