"""How exchanges and queues are declared at a RabbitMQ server; versions 3.10 to 4 take it alike.

Durable queues are quorum queues with a dead-letter exchange, queues whose messages age are classic
ones that drop the oldest, and transient ones belong to one connection.
"""

import asyncio
from typing import Any, Final

from aio_pika.abc import AbstractConnection, AbstractQueue, ExchangeType
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from perdure.errors import BusUnavailable, NotFound
from perdure.messaging.port import Queue, QueueView
from perdure.messaging.rabbitmq_connection import said, translated
from perdure.messaging.topology import DEAD

# Beyond this, publishers are refused (of a live or ageing queue the oldest message is dropped): its
# consumer is far behind or gone.
MAX_QUEUE_LENGTH: Final = 100_000
# Handlers that raise are counted by our consumers; the broker counts deliveries that came back
# because a consumer died or lost its connection. The second happens to innocent messages too, so
# its limit is higher: it is for a message that kills each process that takes it.
BROKER_DELIVERY_LIMIT: Final = 20
# 3.10 knows no value for "without limit", and 4 takes 20 where none is given.
NEVER_GIVEN_UP: Final = 1_000_000_000
ASK_TIMEOUT_S: Final = 5.0  # one question, which the broker answers from memory

Arguments = dict[str, Any]


def arguments(queue: Queue) -> Arguments:
    """The optional arguments under which `queue` is declared."""
    if queue.transient or queue.ttl_s is not None:
        kept = {} if queue.ttl_s is None else {"x-message-ttl": round(queue.ttl_s * 1000)}
        return {
            "x-queue-type": "classic",
            "x-max-length": MAX_QUEUE_LENGTH,
            "x-overflow": "drop-head",
            **kept,
        }
    if queue.delivery_limit is None:
        return {"x-queue-type": "quorum", "x-delivery-limit": NEVER_GIVEN_UP}
    unused = {} if queue.unused_s is None else {"x-expires": round(queue.unused_s * 1000)}
    return {
        **unused,
        "x-queue-type": "quorum",
        "x-delivery-limit": BROKER_DELIVERY_LIMIT,
        "x-dead-letter-exchange": DEAD,
        "x-dead-letter-routing-key": queue.name,
        # A dead letter leaves the queue when the queue of dead letters has it, not before; the
        # broker does this only for queues that refuse what is too much.
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-max-length": MAX_QUEUE_LENGTH,
    }


async def declare_exchange(connection: AbstractConnection, name: str) -> None:
    """Make the exchange exist. Raises BusUnavailable when there is one that is not like ours."""
    async with connection.channel() as channel:
        try:
            await channel.declare_exchange(name, ExchangeType.TOPIC, durable=True)
        except ChannelPreconditionFailed as error:
            raise BusUnavailable(
                f"exchange {name} exists at the broker, and is not the durable topic exchange that "
                f"it must be ({said(error)}): delete it, and it is made anew"
            ) from error


async def declare(connection: AbstractConnection, queue: Queue) -> str:
    """Make the queue and its exchange exist, and bind it.

    Gives what is wrong with a queue that exists with other arguments: it is used as it is, as to
    stop would be worse while work flows through it.
    """
    await declare_exchange(connection, queue.exchange)
    try:
        async with connection.channel() as channel:
            declared = await channel.declare_queue(
                queue.name,
                durable=not queue.transient,
                exclusive=queue.transient,
                arguments=arguments(queue),
            )
            await _bind(declared, queue)
    except ChannelPreconditionFailed as error:
        async with connection.channel() as channel:
            await _bind(await channel.get_queue(queue.name), queue)
        return said(error)
    return ""


async def _bind(declared: AbstractQueue, queue: Queue) -> None:
    for key in queue.routing_keys:
        await declared.bind(queue.exchange, key)


async def inspect(connection: AbstractConnection, queue: Queue) -> QueueView:
    """What the broker counts. Raises NotFound for no such queue, BusUnavailable."""
    with translated():
        async with asyncio.timeout(ASK_TIMEOUT_S), connection.channel() as channel:
            try:
                found = (await channel.get_queue(queue.name)).declaration_result
            except ChannelNotFoundEntity as error:
                raise NotFound(f"there is no queue {queue.name}") from error
    return QueueView(found.message_count or 0, found.consumer_count or 0)
