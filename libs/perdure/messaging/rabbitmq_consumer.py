"""A consumer that comes back, whatever happened to its queue, its channel or the broker."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.abc import DeliveredMessage

from perdure.crash_points import reached
from perdure.errors import BusUnavailable
from perdure.messaging import cloudevents
from perdure.messaging.handling import Outcome, end, handle
from perdure.messaging.port import HANDLER_GRACE_S, Death, Handler, Message, Queue
from perdure.messaging.rabbitmq_connection import CLOSE_TIMEOUT_S, Link, said, translated

log = logging.getLogger(__name__)

# Messages in our hands when this process dies count as delivered once more, also those that nobody
# looked at: behind one that kills its consumers, innocent ones would become dead letters with it.
PREFETCH_DURABLE: Final = 1
# Live and ageing queues count no deliveries.
PREFETCH_LOSSY: Final = 100
SUBSCRIBE_TIMEOUT_S: Final = 15.0  # a broker that has just started elects leaders first
# After a failure; a queue that belongs to our own lost connection is free within two heartbeats.
RESUBSCRIBE_PAUSE_S: Final = 0.5
# A consumer that hears nothing for so long subscribes anew. The notice that its queue was deleted
# can get lost; and of a quorum queue that was deleted and made anew within a tenth of a second,
# RabbitMQ 3.10 counts the old consumer on, and keeps back from all what it means to have given it.
RENEW_IDLE_S: Final = 10.0
BURY_PAUSE_S: Final = 1.0

Declare = Callable[[AbstractConnection, Queue], Awaitable[bool]]
Bury = Callable[[Message, Death], Awaitable[None]]


@dataclass(frozen=True)
class _Arrived:
    incoming: DeliveredMessage
    at: float  # monotonic time


class _Subscription:
    """What arrives through one channel, until the channel, its queue or the broker ends it.

    On the lower of the two libraries: the upper one raises for a property that it does not know,
    and the message would stay with us, never handled.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.why = ""
        self._arrived: asyncio.Queue[_Arrived | None] = asyncio.Queue()

    async def open(self, channel: AbstractChannel, queue: Queue) -> None:
        """Start to consume."""
        lossy = queue.transient or queue.ttl_s is not None
        await channel.set_qos(PREFETCH_LOSSY if lossy else PREFETCH_DURABLE)
        self._channel = below = await channel.get_underlay_channel()
        below.on_consumer_cancel_callbacks.add(lambda _: self.end("cancelled by the broker"))
        channel.close_callbacks.add(lambda _, error: self.end(said(error)))
        self._tag = (await below.basic_consume(queue.name, self._arrive)).consumer_tag or ""

    async def done(self, arrived: _Arrived) -> None:
        """Tell the broker that the message is handled."""
        await self._channel.basic_ack(arrived.incoming.delivery_tag or 0)

    def end(self, why: str) -> None:
        """Interrupt what goes on: what has arrived is not ours any more, or nobody wants it."""
        if not self.ended.is_set():
            self.why = why
            self.ended.set()
            self._arrived.put_nowait(None)

    async def next(self, prepare: Callable[[], Awaitable[None]]) -> _Arrived | None:
        """The next message. None at the end, which comes by itself when none has arrived for
        RENEW_IDLE_S. What the next subscription needs is done by `prepare` before, so that the
        queue is without a consumer for a moment only.
        """
        if self.ended.is_set():
            return None
        try:
            async with asyncio.timeout(RENEW_IDLE_S):
                return await self._arrived.get()
        except TimeoutError:
            await prepare()
            await self._channel.basic_cancel(self._tag, timeout=SUBSCRIBE_TIMEOUT_S)
            self._arrived.put_nowait(None)  # after what came until the broker answered
            return await self._arrived.get()

    async def _arrive(self, incoming: DeliveredMessage) -> None:
        self._arrived.put_nowait(_Arrived(incoming, time.monotonic()))


class RabbitConsumer:
    """Handles one queue's messages one at a time.

    `declare` makes the queue exist, and says whether it is as it should be. `bury` puts a message
    into the queue of dead letters, and returns when the broker has it.
    """

    def __init__(
        self,
        link: Link,
        queue: Queue,
        handler: Handler,
        *,
        declare: Declare,
        bury: Bury,
        forget: Callable[["RabbitConsumer"], None],
    ) -> None:
        self._link = link
        self._queue = queue
        self._handler = handler
        self._declare = declare
        self._bury = bury
        self._forget = forget
        self._subscription: _Subscription | None = None
        self._handling = False
        self._stopping = False
        self._tried = asyncio.Event()
        self._complaint = ""
        self._as_meant = True
        self._task = asyncio.create_task(self._run(), name=f"consume {queue.name}")

    async def started(self) -> None:
        """Return once messages are taken; without waiting when there is no broker, or it fails."""
        with contextlib.suppress(BusUnavailable, TimeoutError):
            self._link.connection()
            await asyncio.wait_for(self._tried.wait(), SUBSCRIBE_TIMEOUT_S)

    async def cancel(self, grace_s: float = HANDLER_GRACE_S) -> None:
        """Stop taking deliveries, and wait for the handler that runs. See the port."""
        self._stopping = True
        patience_s = 0.0
        if self._subscription is not None:
            self._subscription.end("cancelled")
            # Idle, it still needs its time to close the channel: else its consumer stays.
            patience_s = grace_s if self._handling else CLOSE_TIMEOUT_S
        if self._task is not asyncio.current_task():  # else the loop ends after its handler
            await end(self._task, patience_s)

    async def _run(self) -> None:
        try:
            while not self._stopping:
                await self._serve_once(await self._link.connected())
                if not self._stopping:
                    await asyncio.sleep(RESUBSCRIBE_PAUSE_S)
        finally:
            self._forget(self)

    async def _serve_once(self, connection: AbstractConnection) -> None:
        try:
            with translated():
                why = await self._serve(connection)
        except BusUnavailable as error:
            why = error.message
        except Exception as error:
            log.exception("the consumer failed, and starts again", extra=self._facts())
            why = said(error)
        self._tried.set()
        self._complain(why)

    async def _serve(self, connection: AbstractConnection) -> str:
        """Handle messages until something ends it; say what."""
        async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
            self._as_meant = await self._declare(connection, self._queue)
        why = ""
        while not why and not self._stopping:
            why = await self._consume(connection)
        if self._stopping and self._queue.transient:
            async with connection.channel() as channel:
                await channel.queue_delete(self._queue.name)
        return why

    async def _consume(self, connection: AbstractConnection) -> str:
        """Handle messages through one channel; say what ended it, if anything did."""
        async with connection.channel(publisher_confirms=False) as channel:
            subscription = _Subscription()
            await self._open(subscription, channel)
            self._subscription = subscription
            try:
                while arrived := await subscription.next(lambda: self._bind_anew(connection)):
                    await self._take(arrived, subscription)
            finally:
                self._subscription = None
            return subscription.why

    async def _bind_anew(self, connection: AbstractConnection) -> None:
        """Make good what a queue that was made anew by hand may lack; if that can be."""
        if self._as_meant:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                self._as_meant = await self._declare(connection, self._queue)

    async def _open(self, subscription: _Subscription, channel: AbstractChannel) -> None:
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                await subscription.open(channel, self._queue)
        except TimeoutError as error:
            # A quorum queue has no leader while most of its nodes are down; and for ever, when its
            # only node was killed within about a second of making it.
            raise BusUnavailable(
                f"the broker does not answer for queue {self._queue.name}: it has no leader. If it "
                "has none though all nodes of the broker run, delete it (rabbitmqctl delete_queue "
                f"{self._queue.name}): it is then made anew, without the messages in it"
            ) from error
        log.log(
            logging.INFO if self._complaint or not self._tried.is_set() else logging.DEBUG,
            "consuming %s",
            self._queue.name,
            extra=self._facts(),
        )
        self._complaint = ""
        self._tried.set()

    async def _take(self, arrived: _Arrived, subscription: _Subscription) -> None:
        """Handle a message, and tell the broker that it is done."""
        incoming = arrived.incoming
        delivery = cloudevents.delivery(incoming)
        self._handling = True
        try:
            outcome = await handle(
                delivery,
                self._queue,
                incoming.exchange or "",
                self._handler,
                subscription.ended,
                received=arrived.at,
            )
            if isinstance(outcome, Death):
                outcome = await self._buried(delivery.message, outcome, subscription)
            if outcome is Outcome.DONE:
                reached("consumer.handled")
                await subscription.done(arrived)
        finally:
            self._handling = False

    async def _buried(self, message: Message, death: Death, subscription: _Subscription) -> Outcome:
        while True:
            try:
                await self._bury(message, death)
            except BusUnavailable as error:
                self._complain(f"message {message.id} is not buried yet: {error.message}")
            else:
                return Outcome.DONE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BURY_PAUSE_S):
                    await subscription.ended.wait()
                    return Outcome.INTERRUPTED

    def _complain(self, why: str) -> None:
        """Say what is wrong, once per reason and not per try."""
        if why and why != self._complaint and not self._stopping:
            log.warning("not consuming %s: %s", self._queue.name, why, extra=self._facts())
        self._complaint = why

    def _facts(self) -> dict[str, object]:
        return {"queue": self._queue.name}
