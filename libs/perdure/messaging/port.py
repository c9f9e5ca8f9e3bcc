"""The message bus as the rest of Perdure sees it. Backends: `local.py` (in process)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """A message. `body` is binary protobuf of the message called `type`."""

    id: str
    type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """A message as a consumer gets it. `attempt` is 1 the first time."""

    message: Message
    routing_key: str
    attempt: int


@dataclass(frozen=True)
class Queue:
    """A queue and the routing keys that lead to it (topic patterns: `*` one word, `#` any number).

    A transient queue lives as long as its consumer: for live pages, which lose nothing by missing
    a message.
    """

    name: str
    exchange: str
    routing_keys: tuple[str, ...]
    delivery_limit: int = 5
    transient: bool = False


Handler = Callable[[Delivery], Awaitable[None]]


class Consumer(Protocol):
    """A running consumer."""

    async def cancel(self) -> None:
        """Stop taking deliveries, and wait for the handler that runs."""


class Bus(Protocol):
    """At-least-once delivery.

    Messages of one queue are handled one at a time, in order, redeliveries aside.
    """

    async def declare(self, queue: Queue) -> None:
        """Make the queue exist and bind it, so that messages wait in it before there is a
        consumer.
        """

    async def publish(self, exchange: str, routing_key: str, message: Message) -> None:
        """Return when the broker has confirmed the message.

        Raises BusUnavailable when it did not in time.
        """

    async def consume(self, queue: Queue, handler: Handler) -> Consumer:
        """Hand each message of `queue` to `handler`.

        When the handler returns, the message is done. When it raises, it is delivered again, up to
        the queue's delivery limit, and then goes to the dead letters.
        """

    async def close(self) -> None:
        """Stop all consumers and release the connection."""
