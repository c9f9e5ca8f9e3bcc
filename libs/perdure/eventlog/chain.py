"""The hash chain over the log, computed from nothing but the stored fields.

An event's hash is SHA-256 (hex) over eight fields as netstrings, `<length in bytes>:<UTF-8
bytes>,`: the hash of the event before, position, stream, version, type, event id, data, metadata;
numbers in decimal. Anyone can check an export of the log with this description.
"""

import hashlib
from collections.abc import Iterable

from perdure.errors import DamagedLog
from perdure.eventlog.port import GENESIS_HASH, Head, Verified
from perdure.eventlog.stored import StoredEvent

EMPTY = Head(position=0, hash=GENESIS_HASH)


def netstring(text: str) -> bytes:
    """`text` as `<length in bytes>:<UTF-8 bytes>,`."""
    encoded = text.encode()
    return b"%d:%b," % (len(encoded), encoded)


def event_hash(previous_hash: str, event: StoredEvent) -> str:
    """The hash that `event` must have after one with `previous_hash`; the hash it claims is not
    looked at.
    """
    fields = (
        previous_hash,
        str(event.position),
        event.stream,
        str(event.version),
        event.type,
        event.event_id,
        event.data,
        event.metadata,
    )
    return hashlib.sha256(b"".join(map(netstring, fields))).hexdigest()


def verify_chain(events: Iterable[StoredEvent], after: Head = EMPTY) -> Head:
    """Recompute every hash of `events`, which must follow on `after`, and give the last one's
    position and hash.

    Raises DamagedLog, with the first `position` that is wrong in its details.
    """
    position, last_hash = after.position, after.hash
    for event in events:
        position += 1
        if event.position != position:
            raise damaged(
                position, f"it is missing: the next event is at position {event.position}"
            )
        expected = event_hash(last_hash, event)
        if event.hash != expected:
            raise damaged(position, f"its hash is {event.hash}, its content gives {expected}")
        last_hash = expected
    return Head(position, last_hash)


def verify_end(reached: Head, head: Head) -> Verified:
    """The verdict on a log whose events end at `reached`. DamagedLog: its head does not."""
    if reached != head:
        first_wrong = min(reached.position, head.position) + (reached.position != head.position)
        raise damaged(
            first_wrong,
            f"the events end at {reached.position} with hash {reached.hash}, but the head of the "
            f"log is {head.position} with hash {head.hash}",
        )
    return Verified(events=reached.position, head=reached)


def damaged(position: int, what: str) -> DamagedLog:
    """The error that names `position` as the first one that is wrong."""
    return DamagedLog(
        f"the event log is damaged at position {position}: {what}. "
        "Do not trust what follows from there; compare with a backup or an export",
        position=position,
    )
