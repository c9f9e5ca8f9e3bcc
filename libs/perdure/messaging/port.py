"""The message bus as the rest of Perdure sees it.

Backends: `local.py` (in process), `rabbitmq.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

# The exchange that leads straight to the queue whose name is the routing key.
TO_QUEUE: Final = ""
# A handler that runs when its consumer is cancelled has this long to come to its end.
HANDLER_GRACE_S: Final = 30.0


@dataclass(frozen=True)
class Message:
    """A message. `body` is binary protobuf of the message called `type`.

    `id`, `type`, `source`, `subject` and `time` travel as CloudEvents attributes, `headers` (text,
    e.g. `traceparent`) beside them.
    """

    id: str
    type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    source: str = "perdure"  # the service that sent it
    subject: str = ""  # what it is about: a stream, or a task's id
    time: str = ""  # RFC 3339, UTC


@dataclass(frozen=True)
class Death:
    """Why a message is a dead letter, and where it was until then.

    `reason` is "failed" when its handler raised as often as its queue allows (`error` is what it
    raised last), "delivery_limit" when the broker gave it up because consumers died on it.
    """

    queue: str
    exchange: str
    routing_key: str
    reason: str
    error: str
    deliveries: int


@dataclass(frozen=True)
class Delivery:
    """A message as a consumer gets it.

    `attempt` is 1 the first time. `death` is set in the queue of dead letters, and only there.
    """

    message: Message
    routing_key: str
    attempt: int
    death: Death | None = None


@dataclass(frozen=True)
class Queue:
    """A queue and the routing keys that lead to it (topic patterns: `*` one word, `#` any number).

    A transient queue lives as long as its consumer: for live pages, which lose nothing by missing
    a message. Messages of a queue with `ttl_s` that are older say nothing any more, and are
    dropped. `delivery_limit` None: its messages are never given up. `unused_s`: after so long
    without a consumer the queue itself goes.
    """

    name: str
    exchange: str
    routing_keys: tuple[str, ...]
    delivery_limit: int | None = 5
    transient: bool = False
    ttl_s: float | None = None
    unused_s: float | None = None


@dataclass(frozen=True)
class QueueView:
    """A queue as the broker sees it: messages that wait for a consumer, and its consumers."""

    messages: int
    consumers: int


Handler = Callable[[Delivery], Awaitable[None]]


class Consumer(Protocol):
    """A running consumer. It comes back by itself whatever happens to the broker or its queue."""

    async def cancel(self, grace_s: float = HANDLER_GRACE_S) -> None:
        """Stop taking deliveries, and wait for the handler that runs, for `grace_s`; then, or when
        this is cancelled itself, cancel the handler.
        """


class Bus(Protocol):
    """At-least-once delivery.

    Messages of one queue are handled one at a time, in order, redeliveries aside.
    """

    async def declare(self, queue: Queue) -> None:
        """Make the queue exist and bind it, so that messages wait in it before there is a
        consumer. Raises BusUnavailable.
        """

    async def publish(self, exchange: str, routing_key: str, message: Message) -> None:
        """Return when the broker has confirmed the message.

        Raises BusUnavailable when it did not in time. A message that no queue is bound for is
        gone; only one that is sent TO_QUEUE, and finds no queue of that name, raises NotFound.
        """

    async def publish_all(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        """Publish (routing key, message) pairs in order, and return when all are confirmed.

        Raises BusUnavailable when one was not; those before and after it may have been.
        """

    async def consume(self, queue: Queue, handler: Handler) -> Consumer:
        """Hand each message of `queue` to `handler`.

        When the handler returns, the message is done. When it raises, it gets the message again
        after a pause, up to the queue's delivery limit; then it goes to the queue of dead letters
        (topology.DEAD_LETTERS). Unavailable is not held against the message: it is tried again
        until what it needs is back.
        """

    async def inspect(self, queue: Queue) -> QueueView:
        """What the broker knows of the queue. Raises BusUnavailable, and NotFound for no queue."""

    async def close(self) -> None:
        """Stop all consumers and release the connection."""
