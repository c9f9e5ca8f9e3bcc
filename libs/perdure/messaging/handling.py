"""What becomes of a message in a handler's hands; the same for every backend.

A failing handler gets the message again in place, so that the order of the queue stays.
"""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Final

from perdure.errors import Unavailable, described
from perdure.messaging.port import Death, Delivery, Handler, Queue

log = logging.getLogger(__name__)

# A message that failed is tried again after this pause, so that a failing handler does not spin.
REDELIVERY_PAUSE_S: Final = 0.2
# What a handler needs is away: looked for again after this pause.
UNAVAILABLE_PAUSE_S: Final = 1.0
# What a dead letter says of its error: enough to know it by, and small beside any message.
MAX_ERROR_CHARS: Final = 2000


class Outcome(Enum):
    """How it ended, other than with the death of the message."""

    DONE = "done"
    INTERRUPTED = "interrupted"  # not done, and not tried again here


async def handle(
    delivery: Delivery,
    queue: Queue,
    exchange: str,
    handler: Handler,
    interrupted: asyncio.Event,
    *,
    received: float,
) -> Outcome | Death:
    """Hand `delivery` to `handler` until it is done, is given up, or says nothing any more.

    `received` is the monotonic time from which the queue's `ttl_s` counts. `interrupted` ends the
    pauses between two tries, not a handler that runs.
    """
    failures, waited = 0, False
    while not _has_expired(queue, received):
        try:
            await handler(delivery)
        except Unavailable as error:
            if not waited:
                log.warning("waiting: %s", error, extra=_facts(delivery, queue))
            waited = True
            pause_s = UNAVAILABLE_PAUSE_S
        except Exception as error:
            log.exception("handler failed", extra=_facts(delivery, queue))
            failures += 1
            if queue.delivery_limit is not None and failures >= queue.delivery_limit:
                return _death(delivery, queue, exchange, error)
            delivery = replace(delivery, attempt=delivery.attempt + 1)
            pause_s = REDELIVERY_PAUSE_S
        else:
            return Outcome.DONE
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await interrupted.wait()
                return Outcome.INTERRUPTED
    return Outcome.DONE


async def end(consuming: asyncio.Task[None], grace_s: float) -> None:
    """Wait for a consumer's task for `grace_s`; then, or when cancelled, cancel it."""
    try:
        await asyncio.wait({consuming}, timeout=grace_s)
    finally:
        consuming.cancel()
    await asyncio.wait({consuming})


def _has_expired(queue: Queue, received: float) -> bool:
    return queue.ttl_s is not None and time.monotonic() - received > queue.ttl_s


def _death(delivery: Delivery, queue: Queue, exchange: str, error: Exception) -> Death:
    told = described(error)[:MAX_ERROR_CHARS]
    # What neither UTF-8 nor a database's text can hold must not keep the message from its end.
    told = told.replace("\0", "").encode(errors="replace").decode()
    return Death(queue.name, exchange, delivery.routing_key, "failed", told, delivery.attempt)


def _facts(delivery: Delivery, queue: Queue) -> dict[str, object]:
    return {
        "queue": queue.name,
        "message_id": delivery.message.id,
        "message_type": delivery.message.type,
        "attempt": delivery.attempt,
    }
