"""Dead letters: messages that failed as often as their queue allows, and are kept in the log.

A message has one stream, whatever queues it died in. Each replay of it has a number, which travels
with it as a header: so a death that is told twice is recorded once, and one after a replay is told
from the one before it, in whatever order they come in.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from google.protobuf.message import Message
from pydantic import TypeAdapter

from perdure.contracts.envelope import RecordedEvent, derived_id
from perdure.contracts.v1 import events_pb2
from perdure.domain.identifiers import SAFE_ID

# Ten times the largest message of Perdure's own. Readers take the log by the thousand events, and
# the event that holds a body has to pass the broker, too.
MAX_BODY_BYTES: Final = 1024 * 1024
# A traceback in a message or a quoted body says nothing more after this.
MAX_TEXT_CHARACTERS: Final = 4000
REPLAY_HEADER: Final = "perdure-replay"


class LetterStatus(StrEnum):
    """Whether a dead letter still waits for somebody."""

    PARKED = "parked"
    REPLAYED = "replayed"  # put back into its queue, and not dead again


@dataclass(frozen=True)
class Died:
    """One death: of the message as first sent (`replay` 0), or of its replay of that number."""

    replay: int
    queue: str
    exchange: str
    routing_key: str
    reason: str
    error: str
    deliveries: int
    at: str
    version: int  # of the event that tells of it


@dataclass(frozen=True)
class Replayed:
    """A replay, and who asked for it."""

    replay: int
    requested_by: str
    at: str


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter as its events tell it. `version` is the version of its stream.

    `queues` are those in which it is parked, or to which its last replay went.
    """

    id: str
    version: int
    message_id: str
    message_type: str
    task_id: str
    body_bytes: int
    kept: bool  # False: its body was too large for the log, and it cannot be replayed
    status: LetterStatus
    queues: tuple[str, ...]
    deaths: tuple[Died, ...]
    replays: tuple[Replayed, ...] = ()

    @property
    def parked(self) -> tuple[Died, ...]:
        """The deaths that no replay has settled."""
        settled = max((known.replay for known in self.replays), default=0)
        return tuple(death for death in self.deaths if death.replay >= settled)

    @property
    def next_replay(self) -> int:
        """The number for the next replay: above all that were ever sent, recorded or not."""
        died = [death.replay for death in self.deaths]
        return 1 + max(died + [known.replay for known in self.replays])


_ADAPTER: Final = TypeAdapter(DeadLetter)


def to_json(letter: DeadLetter) -> dict[str, Any]:
    """The one public JSON form of a dead letter, without its body."""
    form: dict[str, Any] = _ADAPTER.dump_python(letter, mode="json")
    return form


def from_json(form: dict[str, Any]) -> DeadLetter:
    """The dead letter that `to_json` wrote."""
    return _ADAPTER.validate_python(form)


def dead_letter_id(message_id: str, body: bytes) -> str:
    """What a dead letter is called: the message's own id, or a hash when that is no name.

    A message without an id is known by its body.
    """
    if SAFE_ID.fullmatch(message_id):
        return message_id
    named = message_id.encode("utf-8", "surrogatepass") or body
    return f"hashed-{hashlib.sha256(named).hexdigest()[:32]}"


def dead_letter_stream(dead_letter_id: str) -> str:
    """The stream of a dead letter."""
    return f"dead-letter-{dead_letter_id}"


def death_id(stream: str, message_type: str, body: bytes, queue: str, replay: int) -> str:
    """The id of the event that records a death: told again, it is the same.

    The body is part of it, because ids come from outside: another message under the same id is
    another death, and nothing is dropped.
    """
    content = hashlib.sha256(b"%d:%b%b" % (len(message_type), message_type.encode(), body))
    return derived_id(f"{stream}/{queue}/{content.hexdigest()}", replay)


def plain_text(text: str) -> str:
    """`text` as an event can hold it: valid, and of bounded length."""
    return text[:MAX_TEXT_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def replay(events: Iterable[RecordedEvent]) -> DeadLetter | None:
    """The dead letter that `events` of one stream tell of; None for no events."""
    letter: DeadLetter | None = None
    for event in events:
        letter = evolve(letter, event)
    return letter


def evolve(letter: DeadLetter | None, event: RecordedEvent) -> DeadLetter:
    """`letter` after `event`."""
    data: Message = event.data
    match data:
        case events_pb2.MessageDeadLettered():
            return _died(letter, data, event)
        case events_pb2.MessageReplayed():
            assert letter is not None, f"{event.stream} begins with {event.type}"
            again = Replayed(data.replay, data.requested_by, event.time)
            return _standing(
                replace(letter, version=event.version, replays=(*letter.replays, again))
            )
        case _:
            raise AssertionError(f"{event.stream} holds {event.type}")


def _died(
    letter: DeadLetter | None, data: events_pb2.MessageDeadLettered, event: RecordedEvent
) -> DeadLetter:
    death = Died(
        replay=data.replay,
        queue=data.queue,
        exchange=data.exchange,
        routing_key=data.routing_key,
        reason=data.reason,
        error=data.error,
        deliveries=data.deliveries,
        at=event.time,
        version=event.version,
    )
    if letter is None:
        letter = DeadLetter(
            id=event.stream.removeprefix(dead_letter_stream("")),
            version=event.version,
            message_id=data.message_id,
            message_type=data.message_type,
            task_id=data.task_id,
            body_bytes=data.body_bytes,
            kept=True,
            status=LetterStatus.PARKED,
            queues=(),
            deaths=(),
        )
    kept = letter.kept and is_kept(data)
    return _standing(
        replace(letter, version=event.version, kept=kept, deaths=(*letter.deaths, death))
    )


def _standing(letter: DeadLetter) -> DeadLetter:
    """`letter` with the status, and the queues, that its deaths and replays give."""
    parked = letter.parked
    if not parked:
        return replace(letter, status=LetterStatus.REPLAYED)
    queues = tuple(dict.fromkeys(death.queue for death in parked))
    return replace(letter, status=LetterStatus.PARKED, queues=queues)


def is_kept(data: events_pb2.MessageDeadLettered) -> bool:
    """Whether the event holds the message's body."""
    return len(data.body) == data.body_bytes
