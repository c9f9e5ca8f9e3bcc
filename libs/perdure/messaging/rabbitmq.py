"""The bus on a RabbitMQ server, version 3.10 or later.

One connection, which comes back by itself; everything this bus needs is declared anew on each one,
so that also a broker that lost all it had works again.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError, PublishError

from perdure.errors import BusUnavailable, NotFound
from perdure.messaging import cloudevents, rabbitmq_decoding, rabbitmq_queues
from perdure.messaging.port import TO_QUEUE, Consumer, Death, Handler, Message, Queue, QueueView
from perdure.messaging.rabbitmq_connection import PREPARE_TIMEOUT_S, Link, translated
from perdure.messaging.rabbitmq_consumer import RabbitConsumer
from perdure.messaging.topology import CONTROL_QUEUES, DEAD, DEAD_LETTERS, EXCHANGES
from perdure.telemetry.metrics import MESSAGES_PUBLISHED

log = logging.getLogger(__name__)

rabbitmq_decoding.install()  # before the first connection

# A broker confirms when a message is on disk: milliseconds, seconds when its disk or a leader of a
# queue is slow. Longer, and whoever publishes had better know.
CONFIRM_TIMEOUT_S: Final = 10.0
PIPELINE: Final = 500  # messages that wait for their confirm together


class RabbitBus:
    """Messages between processes, through a broker that may go away and come back at any time."""

    def __init__(self, url: str, *, name: str) -> None:
        """`name` is what the broker's operator sees the connection under."""
        self._queues = {queue.name: queue for queue in CONTROL_QUEUES}
        self._wrong: dict[str, str] = {}  # what is wrong with a queue's arguments
        self._link = Link(url, name, self._declare_all)
        self._consumers: set[RabbitConsumer] = set()
        self._publisher: AbstractChannel | None = None
        self._opening = asyncio.Lock()

    async def start(self) -> None:
        """Connect. Returns after the first try: when it fails, others follow without end."""
        await self._link.start()

    async def declare(self, queue: Queue) -> None:
        """Make the queue exist, now and on each later connection."""
        self._remember(queue)
        with translated():
            async with asyncio.timeout(PREPARE_TIMEOUT_S):
                await self._declare(self._link.connection(), queue)

    async def publish(self, exchange: str, routing_key: str, message: Message) -> None:
        """Publish, and wait for the broker's confirm for CONFIRM_TIMEOUT_S."""
        if exchange == TO_QUEUE:
            await self._deliver(exchange, routing_key, message)
        else:
            await self._publish(exchange, [(routing_key, message)])

    async def publish_all(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        """Publish in order on one channel; the confirms of PIPELINE messages are awaited together,
        for CONFIRM_TIMEOUT_S.
        """
        for first in range(0, len(messages), PIPELINE):
            await self._publish(exchange, messages[first : first + PIPELINE])

    async def consume(self, queue: Queue, handler: Handler) -> Consumer:
        """Start a consumer. Without a broker it starts as soon as there is one."""
        self._remember(queue)
        consumer = RabbitConsumer(
            self._link,
            queue,
            handler,
            declare=self._declare,
            bury=self._bury,
            forget=self._consumers.discard,
        )
        self._consumers.add(consumer)
        await consumer.started()
        return consumer

    async def inspect(self, queue: Queue) -> QueueView:
        """Ask the broker."""
        return await rabbitmq_queues.inspect(self._link.connection(), queue)

    async def close(self) -> None:
        """Stop all consumers and release the connection."""
        await asyncio.gather(*(consumer.cancel() for consumer in list(self._consumers)))
        await self._link.close()

    def _remember(self, queue: Queue) -> None:
        """Declare the queue on each new connection; a transient one is its consumer's to declare.

        The consumer has the patience for it: the broker keeps the queue locked until it has noticed
        that the connection before is dead.
        """
        if not queue.transient:
            self._queues[queue.name] = queue

    async def _declare_all(self, connection: AbstractConnection) -> None:
        for exchange in EXCHANGES:
            await rabbitmq_queues.declare_exchange(connection, exchange)
        for queue in list(self._queues.values()):
            await self._declare(connection, queue)

    async def _declare(self, connection: AbstractConnection, queue: Queue) -> bool:
        """Declare the queue. False when there is one with other arguments, which is said once."""
        wrong = await rabbitmq_queues.declare(connection, queue)
        if wrong and wrong != self._wrong.get(queue.name):
            log.error(
                "queue %s exists at the broker with other arguments than Perdure's, and is used as "
                "it is: messages may be lost or pile up in it (%s). When it is empty, delete it "
                "(rabbitmqctl delete_queue %s): it is then made anew, as it should be",
                queue.name,
                wrong,
                queue.name,
                extra={"queue": queue.name},
            )
        self._wrong[queue.name] = wrong
        return not wrong

    async def _publish(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        with translated():
            try:
                await self._publish_once(exchange, messages)
            except ChannelNotFoundEntity:
                log.warning("exchange %s is gone, and is made anew", exchange)
                connection = self._link.connection()
                async with asyncio.timeout(PREPARE_TIMEOUT_S):
                    await rabbitmq_queues.declare_exchange(connection, exchange)
                    await self._declare_all(connection)
                await self._publish_once(exchange, messages)

    async def _publish_once(self, exchange: str, messages: Sequence[tuple[str, Message]]) -> None:
        async with asyncio.timeout(CONFIRM_TIMEOUT_S):
            channel = await (await self._publishing_channel()).get_underlay_channel()
            outcomes = await asyncio.gather(
                *(
                    channel.basic_publish(
                        message.body,
                        exchange=exchange,
                        routing_key=routing_key,
                        properties=cloudevents.properties(message),
                    )
                    for routing_key, message in messages
                ),
                return_exceptions=True,
            )
        _count(exchange, sum(not isinstance(outcome, BaseException) for outcome in outcomes))
        for outcome in outcomes:
            if isinstance(outcome, DeliveryError):
                raise _refused(f"exchange {exchange}") from outcome
            if isinstance(outcome, BaseException):
                raise outcome

    async def _publishing_channel(self) -> AbstractChannel:
        """The channel that all ordinary messages go through, in order."""
        async with self._opening:
            if self._publisher is None or self._publisher.is_closed:
                self._publisher = await self._link.connection().channel()
            return self._publisher

    async def _deliver(
        self, exchange: str, routing_key: str, message: Message, death: Death | None = None
    ) -> None:
        """Publish a message that must get into a queue. Raises NotFound when it gets into none.

        On a channel of its own: the library tells apart by id what comes back, and another message
        with this id may be under way.
        """
        with translated():
            async with (
                asyncio.timeout(CONFIRM_TIMEOUT_S),
                self._link.connection().channel(on_return_raises=True) as channel,
            ):
                below = await channel.get_underlay_channel()
                try:
                    await below.basic_publish(
                        message.body,
                        exchange=exchange,
                        routing_key=routing_key,
                        properties=cloudevents.properties(message, death),
                        mandatory=True,
                    )
                except PublishError as error:
                    raise NotFound(f"there is no queue {routing_key}") from error
                except DeliveryError as error:
                    raise _refused(f"queue {routing_key}") from error
        _count(exchange, 1)

    async def _bury(self, message: Message, death: Death) -> None:
        """Put a message into the queue of dead letters, which is made anew if it is gone."""
        await self.declare(DEAD_LETTERS)
        await self._deliver(DEAD, death.queue, message, death)


def _count(exchange: str, confirmed: int) -> None:
    if confirmed:
        MESSAGES_PUBLISHED.add(confirmed, {"exchange": exchange or "default"})


def _refused(where: str) -> BusUnavailable:
    return BusUnavailable(
        f"the broker refused a message for {where}: a queue is full, as its consumer is far behind "
        "or gone; try again later"
    )
