"""The bus within one process. It obeys the port's contract; what it holds is gone with the process.

Nothing in Perdure relies on more: what is owed can be told from the log, and is offered again.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field

from perdure.errors import BusUnavailable
from perdure.messaging.port import Consumer, Delivery, Handler, Message, Queue

log = logging.getLogger(__name__)

# Beyond this, publishers are refused, as a broker with reject-publish does: a consumer is far
# behind or gone.
MAX_QUEUE_LENGTH = 100_000
# A message that failed is tried again after this pause, so that a failing handler does not spin.
REDELIVERY_PAUSE_S = 0.2
MAX_DEAD_LETTERS = 1000


@dataclass(frozen=True)
class DeadLetter:
    """A message that failed as often as its queue allows, and the last error."""

    queue: str
    delivery: Delivery
    error: str


@dataclass
class _QueueState:
    queue: Queue
    waiting: deque[Delivery] = field(default_factory=deque)
    in_hand: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    emptied: asyncio.Event = field(default_factory=asyncio.Event)


class LocalBus:
    """Queues in memory. A handler that raises gets its message again, up to the queue's limit."""

    def __init__(self) -> None:
        self._queues: dict[str, _QueueState] = {}
        self._consumers: list[LocalConsumer] = []
        self.dead_letters: deque[DeadLetter] = deque(maxlen=MAX_DEAD_LETTERS)
        self._closed = False

    async def declare(self, queue: Queue) -> None:
        """Make the queue exist."""
        self._queues.setdefault(queue.name, _QueueState(queue))

    async def publish(self, exchange: str, routing_key: str, message: Message) -> None:
        """Put the message into each queue that is bound to it, or into none."""
        if self._closed:
            raise BusUnavailable("the bus is closed")
        targets = [
            state
            for state in self._queues.values()
            if state.queue.exchange == exchange
            and any(matches(pattern, routing_key) for pattern in state.queue.routing_keys)
        ]
        for state in targets:
            if len(state.waiting) >= MAX_QUEUE_LENGTH and not state.queue.transient:
                raise BusUnavailable(
                    f"queue {state.queue.name} is full ({MAX_QUEUE_LENGTH} messages): "
                    "its consumer is far behind; try again later"
                )
        for state in targets:
            if len(state.waiting) >= MAX_QUEUE_LENGTH:
                state.waiting.popleft()  # a live page that does not keep up misses the oldest
            state.waiting.append(Delivery(message, routing_key, attempt=1))
            state.arrived.set()

    async def consume(self, queue: Queue, handler: Handler) -> Consumer:
        """Start a consumer of the queue."""
        await self.declare(queue)
        consumer = LocalConsumer(self, self._queues[queue.name], handler)
        self._consumers.append(consumer)
        return consumer

    async def settled(self, timeout_s: float) -> bool:
        """Wait until every queue that has a consumer is empty; False when that takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                for consumer in list(self._consumers):
                    await consumer.settled()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stop all consumers."""
        self._closed = True
        for consumer in list(self._consumers):
            await consumer.cancel()

    def _forget(self, consumer: "LocalConsumer", queue: Queue) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        if queue.transient:
            self._queues.pop(queue.name, None)


class LocalConsumer:
    """Handles one queue's messages one at a time."""

    def __init__(self, bus: LocalBus, state: _QueueState, handler: Handler) -> None:
        self._bus = bus
        self._state = state
        self._handler = handler
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name=f"consume {state.queue.name}")

    async def settled(self) -> None:
        """Wait until no message waits or is being handled."""
        while self._state.waiting or self._state.in_hand:
            self._state.emptied.clear()
            await self._state.emptied.wait()

    async def cancel(self) -> None:
        """Stop, once the handler that runs is through."""
        self._stopping = True
        self._state.arrived.set()
        if self._task is not asyncio.current_task():
            await asyncio.wait({self._task})
        self._bus._forget(self, self._state.queue)

    async def _run(self) -> None:
        state = self._state
        while not self._stopping:
            if not state.waiting:
                state.arrived.clear()
                await state.arrived.wait()
                continue
            delivery = state.waiting.popleft()
            state.in_hand += 1
            try:
                await self._handle(delivery)
            except asyncio.CancelledError:
                state.waiting.appendleft(delivery)  # not done with: somebody else's, then
                raise
            finally:
                state.in_hand -= 1
                if not state.waiting and not state.in_hand:
                    state.emptied.set()

    async def _handle(self, delivery: Delivery) -> None:
        queue = self._state.queue
        try:
            await self._handler(delivery)
        except Exception as error:
            log.exception(
                "handler failed",
                extra={"queue": queue.name, "message_type": delivery.message.type},
            )
            await self._failed(delivery, error)

    async def _failed(self, delivery: Delivery, error: Exception) -> None:
        if delivery.attempt >= self._state.queue.delivery_limit:
            self._bus.dead_letters.append(
                DeadLetter(self._state.queue.name, delivery, f"{type(error).__name__}: {error}")
            )
            return
        await asyncio.sleep(REDELIVERY_PAUSE_S)
        again = Delivery(delivery.message, delivery.routing_key, delivery.attempt + 1)
        self._state.waiting.appendleft(again)


def matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic pattern takes a routing key: `*` stands for one word, `#` for any number."""
    return _matches(pattern.split("."), routing_key.split("."))


def _matches(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_matches(pattern[1:], words[i:]) for i in range(len(words) + 1))
    if not words:
        return False
    return pattern[0] in ("*", words[0]) and _matches(pattern[1:], words[1:])
