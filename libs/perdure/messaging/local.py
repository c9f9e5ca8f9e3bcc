"""The bus within one process. It obeys the port's contract; what it holds is gone with the process.

Nothing in Perdure relies on more: what is owed can be told from the log, and is offered again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.errors import BusUnavailable, NotFound
from perdure.messaging.handling import Outcome, end, handle
from perdure.messaging.port import (
    HANDLER_GRACE_S,
    TO_QUEUE,
    Consumer,
    Death,
    Delivery,
    Handler,
    Message,
    Queue,
    QueueView,
)
from perdure.messaging.topology import DEAD_LETTERS

# Beyond this, publishers are refused, as a broker with reject-publish does: a consumer is far
# behind or gone.
MAX_QUEUE_LENGTH = 100_000


@dataclass(frozen=True)
class _Waiting:
    delivery: Delivery
    exchange: str
    since: float  # monotonic time


@dataclass
class _QueueState:
    queue: Queue
    waiting: deque[_Waiting] = field(default_factory=deque)
    in_hand: int = 0
    consumers: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    emptied: asyncio.Event = field(default_factory=asyncio.Event)


class LocalBus:
    """Queues in memory. A handler that raises gets its message again, up to the queue's limit."""

    def __init__(self) -> None:
        self._queues: dict[str, _QueueState] = {}
        self._consumers: list[LocalConsumer] = []
        self._closed = False

    async def declare(self, queue: Queue) -> None:
        """Make the queue exist."""
        self._queues.setdefault(queue.name, _QueueState(queue))

    async def publish(self, exchange: str, routing_key: str, message: Message) -> None:
        """Put the message into each queue that is bound to it, or into none."""
        if self._closed:
            raise BusUnavailable("the bus is closed")
        targets = self._targets(exchange, routing_key)
        for state in targets:
            if len(state.waiting) >= MAX_QUEUE_LENGTH and not _may_lose(state.queue):
                raise BusUnavailable(
                    f"queue {state.queue.name} is full ({MAX_QUEUE_LENGTH} messages): "
                    "its consumer is far behind; try again later"
                )
        for state in targets:
            if len(state.waiting) >= MAX_QUEUE_LENGTH:
                state.waiting.popleft()  # a live page that does not keep up misses the oldest
            delivery = Delivery(message, routing_key, attempt=1)
            state.waiting.append(_Waiting(delivery, exchange, time.monotonic()))
            state.arrived.set()

    def _targets(self, exchange: str, routing_key: str) -> list[_QueueState]:
        if exchange == TO_QUEUE:
            if routing_key not in self._queues:
                raise NotFound(f"there is no queue {routing_key}")
            return [self._queues[routing_key]]
        return [
            state
            for state in self._queues.values()
            if state.queue.exchange == exchange
            and any(matches(pattern, routing_key) for pattern in state.queue.routing_keys)
        ]

    async def publish_all(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        """Publish one after the other."""
        for routing_key, message in messages:
            await self.publish(exchange, routing_key, message)

    async def inspect(self, queue: Queue) -> QueueView:
        """How many messages wait, and how many consumers there are."""
        if queue.name not in self._queues:
            raise NotFound(f"there is no queue {queue.name}")
        state = self._queues[queue.name]
        return QueueView(len(state.waiting), state.consumers)

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

    def _bury(self, delivery: Delivery, death: Death) -> None:
        """Put a message into the queue of dead letters."""
        state = self._queues.setdefault(DEAD_LETTERS.name, _QueueState(DEAD_LETTERS))
        dead = Delivery(delivery.message, death.queue, attempt=1, death=death)
        state.waiting.append(_Waiting(dead, DEAD_LETTERS.exchange, time.monotonic()))
        state.arrived.set()

    def _forget(self, consumer: "LocalConsumer", queue: Queue) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            consumer.state.consumers -= 1
        if queue.transient:
            self._queues.pop(queue.name, None)


class LocalConsumer:
    """Handles one queue's messages one at a time."""

    def __init__(self, bus: LocalBus, state: _QueueState, handler: Handler) -> None:
        self._bus = bus
        self.state = state
        state.consumers += 1
        self._handler = handler
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"consume {state.queue.name}")

    async def settled(self) -> None:
        """Wait until no message waits or is being handled."""
        while self.state.waiting or self.state.in_hand:
            self.state.emptied.clear()
            await self.state.emptied.wait()

    async def cancel(self, grace_s: float = HANDLER_GRACE_S) -> None:
        """Stop, once the handler that runs is through. See the port."""
        self._stopping.set()
        self.state.arrived.set()
        try:
            if self._task is not asyncio.current_task():
                await end(self._task, grace_s)
        finally:
            self._bus._forget(self, self.state.queue)

    async def _run(self) -> None:
        state = self.state
        while not self._stopping.is_set():
            if not state.waiting:
                state.arrived.clear()
                await state.arrived.wait()
                continue
            waiting = state.waiting.popleft()
            state.in_hand += 1
            outcome: Outcome | Death = Outcome.INTERRUPTED
            try:
                outcome = await handle(
                    waiting.delivery,
                    state.queue,
                    waiting.exchange,
                    self._handler,
                    self._stopping,
                    received=waiting.since,
                )
            finally:
                if isinstance(outcome, Death):
                    self._bus._bury(waiting.delivery, outcome)
                elif outcome is Outcome.INTERRUPTED:  # not done with: somebody else's, then
                    state.waiting.appendleft(waiting)
                state.in_hand -= 1
                if not state.waiting and not state.in_hand:
                    state.emptied.set()


def _may_lose(queue: Queue) -> bool:
    return queue.transient or queue.ttl_s is not None


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
