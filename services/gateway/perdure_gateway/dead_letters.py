"""/v1/audit/dead-letters: messages that were given up, what became of them, and a second try."""

import base64
import logging
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from google.protobuf.message import DecodeError

from perdure.contracts.codec import event_class
from perdure.contracts.envelope import NewEvent, RecordedEvent, derived_id
from perdure.contracts.v1 import envelope_pb2, events_pb2
from perdure.crash_points import reached
from perdure.domain.dead_letter import (
    REPLAY_HEADER,
    DeadLetter,
    LetterStatus,
    dead_letter_stream,
    is_kept,
    replay,
    to_json,
)
from perdure.domain.message_effect import decoded, effect, effect_stream
from perdure.errors import Conflict, DamagedLog, EventIdReused, NotFound, VersionConflict
from perdure.eventlog.port import EventLog, StreamAppend
from perdure.messaging.port import TO_QUEUE, Message
from perdure.telemetry import tracing
from perdure_gateway.answering import NEEDS_DATABASE
from perdure_gateway.context import DEAD_LETTERS, SOURCE, Gateway, GatewayOf, Id
from perdure_gateway.listing import Before, Limit, Prefix, page
from perdure_gateway.tasks import LOCAL_USER
from perdure_gateway.wire import to_plain

router = APIRouter()
_logger = logging.getLogger(__name__)
# Each conflict means that the message died again, or that somebody else replayed it.
MAX_REPLAY_TRIES: Final = 10


@router.get("/v1/audit/dead-letters")
async def list_dead_letters(
    gateway: GatewayOf,
    limit: Limit = 100,
    before: Before = None,
    status: Annotated[LetterStatus | None, Query()] = None,
    prefix: Prefix = "",
) -> dict[str, Any]:
    """Dead letters, newest first, without their bodies."""
    where = {} if status is None else {"status": status.value}
    documents, next_before = await page(
        gateway, DEAD_LETTERS, limit=limit, before=before, prefix=prefix, where=where
    )
    return {
        "dead_letters": [document.body for document in documents],
        "next_before": next_before,
    }


@router.get("/v1/audit/dead-letters/{dead_letter_id}")
async def show_dead_letter(gateway: GatewayOf, dead_letter_id: Id) -> dict[str, Any]:
    """One dead letter: all its deaths and replays, its body, and whether it took effect all the
    same.

    `body` is base64, `message` what it says (null when it cannot be read). `effect` names the
    events that it led to; it is null for a message of which nothing would be in the log.
    """
    letter, events = await _letter(gateway.log, dead_letter_id)
    last = _last_death(events)
    return {
        **to_json(letter),
        "headers": dict(last.headers),
        "source": last.source,
        "subject": last.subject,
        "time": last.time,
        "body": base64.b64encode(last.body).decode(),
        "message": _message_json(last),
        "effect": await effect_of(gateway.log, last),
    }


@router.post(
    "/v1/audit/dead-letters/{dead_letter_id}/replay", status_code=202, dependencies=[NEEDS_DATABASE]
)
async def replay_dead_letter(gateway: GatewayOf, dead_letter_id: Id) -> dict[str, Any]:
    """Put a parked message back into each queue where it died, with its id and its headers.

    When the server dies between the broker's confirm and the record of it, the message stays
    parked and may be replayed again: consumers bear a second delivery. 409 when it is not parked,
    when its body was not kept, or when no such queue is left; 503 when the broker is away.
    """
    letter, events = await _letter(gateway.log, dead_letter_id)
    parked = _parked(letter, events)
    number = letter.next_replay
    await _put_back(gateway, letter, parked, number)
    reached("replay.published")
    return to_json(await _record(gateway, letter, number))


async def effect_of(
    log: EventLog, death: events_pb2.MessageDeadLettered
) -> list[dict[str, Any]] | None:
    """The events that the message led to, by position; None when nothing of it would be in the
    log, or nobody can tell.
    """
    message = decoded(death.message_type, death.body) if is_kept(death) else None
    stream = effect_stream(message)
    if not stream:
        return None
    found = effect(message, await log.read_stream(stream))
    return [
        {
            "position": event.position,
            "stream": event.stream,
            "version": event.version,
            "type": event.type,
            "time": event.time,
        }
        for event in found
    ]


async def _letter(log: EventLog, dead_letter_id: str) -> tuple[DeadLetter, list[RecordedEvent]]:
    events = await log.read_stream(dead_letter_stream(dead_letter_id))
    letter = replay(events)
    if letter is None:
        raise NotFound(f"there is no dead letter {dead_letter_id}", dead_letter_id=dead_letter_id)
    return letter, events


def _last_death(events: list[RecordedEvent]) -> events_pb2.MessageDeadLettered:
    deaths = [e.data for e in events if isinstance(e.data, events_pb2.MessageDeadLettered)]
    return deaths[-1]


def _parked(
    letter: DeadLetter, events: list[RecordedEvent]
) -> list[events_pb2.MessageDeadLettered]:
    """The facts of the deaths that no replay has settled. Raises Conflict when there are none, or
    a body is missing.
    """
    if not letter.parked:
        last = letter.replays[-1]
        raise Conflict(
            f"dead letter {letter.id} is not parked: {last.requested_by} replayed it at "
            f"{last.at}, and it has not died again since",
            dead_letter_id=letter.id,
        )
    versions = {death.version for death in letter.parked}
    deaths = [
        event.data
        for event in events
        if event.version in versions and isinstance(event.data, events_pb2.MessageDeadLettered)
    ]
    if not all(map(is_kept, deaths)):
        raise Conflict(
            f"dead letter {letter.id} cannot be replayed: its body of {letter.body_bytes:,} bytes "
            "was too large to be kept; its sender has to send it again",
            dead_letter_id=letter.id,
        )
    return deaths


async def _put_back(
    gateway: Gateway,
    letter: DeadLetter,
    deaths: list[events_pb2.MessageDeadLettered],
    number: int,
) -> None:
    """Publish to each queue. Raises Conflict when none of them is there any more."""
    put = 0
    for death in deaths:
        try:
            await gateway.bus.publish(TO_QUEUE, death.queue, _message(death, number))
        except NotFound as error:
            # A queue goes with its consumer only when that loses nothing by missing a message.
            _logger.warning("dead letter %s is not replayed there: %s", letter.id, error.message)
        else:
            put += 1
    if not put:
        raise Conflict(
            f"dead letter {letter.id} cannot be replayed: {', '.join(letter.queues)} is no queue "
            "any more. Nobody waits for it there; its worker or page is gone",
            dead_letter_id=letter.id,
        )


def _message(death: events_pb2.MessageDeadLettered, number: int) -> Message:
    return Message(
        id=death.message_id,
        type=death.message_type,
        body=death.body,
        headers={**death.headers, REPLAY_HEADER: str(number)},
        source=death.source,
        subject=death.subject,
        time=death.time,
    )


async def _record(gateway: Gateway, letter: DeadLetter, number: int) -> DeadLetter:
    """Append that replay `number` was published, unless somebody else has recorded it."""
    stream = dead_letter_stream(letter.id)
    cause = f"{stream}/replay"
    event = NewEvent(
        derived_id(cause, number),
        events_pb2.MessageReplayed(requested_by=LOCAL_USER, replay=number),
        gateway.clock.now(),
        letter.task_id or stream,
        letter.message_id,
        SOURCE,
        tracing.traceparent(),
    )
    for _ in range(MAX_REPLAY_TRIES):
        with suppress(VersionConflict, EventIdReused):  # settled by reading it again
            await gateway.log.append(StreamAppend(stream, letter.version, (event,)))
        letter, _ = await _letter(gateway.log, letter.id)
        if any(known.replay == number for known in letter.replays):
            return letter
    raise Conflict(
        f"dead letter {letter.id} dies faster than its replay can be recorded: it was put back, "
        "and is parked again",
        dead_letter_id=letter.id,
    )


def _message_json(death: events_pb2.MessageDeadLettered) -> dict[str, Any] | None:
    """What a message says. An event in it is shown as the API shows events."""
    message = decoded(death.message_type, death.body) if is_kept(death) else None
    if message is None:
        return None
    form = to_plain(message)
    if isinstance(message, envelope_pb2.Envelope):
        try:
            form["data"] = to_plain(event_class(message.type).FromString(message.data))
        except (DamagedLog, DecodeError):  # of a newer version, or not whole: shown as it came
            return form
    return form
