"""GET /v1/tasks/{id}/logs: what all attempts of a task wrote, as one text."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from perdure.artifacts.port import ObjectStore
from perdure_gateway.context import GatewayOf, Id
from perdure_gateway.listing import MAX_POSITION
from perdure_gateway.tasks import show_task

router = APIRouter()
NEXT_OFFSET_HEADER: Final = "Perdure-Next-Offset"
MAX_LOG_BYTES: Final = 4 * 1024 * 1024
# An hour of log is some thousand small objects, each of which takes a store some milliseconds.
READ_THREADS: Final = 8
_CHUNK_KEY: Final = re.compile(r"logs/[^/]+/(?P<fence>\d+)-(?P<stage>[a-z]+)/\d+\.log")


@dataclass(frozen=True)
class Segment:
    """A part of a task's log: a stored chunk, or a line of ours (`text`) that names the attempt
    that follows.
    """

    size_bytes: int
    key: str = ""
    text: bytes = b""


@router.get("/v1/tasks/{task_id}/logs")
async def task_logs(
    gateway: GatewayOf,
    task_id: Id,
    offset: Annotated[int, Query(ge=0, le=MAX_POSITION)] = 0,
    limit: Annotated[int, Query(ge=4, le=MAX_LOG_BYTES)] = MAX_LOG_BYTES,
) -> Response:
    """Up to `limit` bytes of the log from byte `offset` on, and where to go on in
    `Perdure-Next-Offset`.
    """
    await show_task(gateway, task_id)
    data = await asyncio.to_thread(read_log, gateway.store, task_id, offset, limit)
    headers = {NEXT_OFFSET_HEADER: str(offset + len(data)), "X-Content-Type-Options": "nosniff"}
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


def segments(store: ObjectStore, task_id: str) -> list[Segment]:
    """The parts of a task's log, in order."""
    found: list[Segment] = []
    attempt = ""
    for key, size_bytes in store.sizes(f"logs/{task_id}/"):
        name = _CHUNK_KEY.fullmatch(key)
        if name is None:
            continue
        if key.rpartition("/")[0] != attempt:
            attempt = key.rpartition("/")[0]
            title = f"==> attempt {int(name['fence'])}: {name['stage']} <==\n".encode()
            found.append(Segment(len(title), text=title))
        found.append(Segment(size_bytes, key=key))
    return found


def read_log(store: ObjectStore, task_id: str, offset: int, limit: int) -> bytes:
    """Up to `limit` bytes from `offset` on, never ending within a character."""
    wanted: list[tuple[Segment, slice]] = []
    start = 0
    for segment in segments(store, task_id):
        first, last = max(offset, start), min(offset + limit, start + segment.size_bytes)
        if first < last:
            wanted.append((segment, slice(first - start, last - start)))
        start += segment.size_bytes

    def read(piece: tuple[Segment, slice]) -> bytes:
        segment, part = piece
        return (store.get_bytes(segment.key) if segment.key else segment.text)[part]

    with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="log") as pool:
        data = b"".join(pool.map(read, wanted))
    return whole_characters(data) if len(data) >= limit else data


def whole_characters(data: bytes) -> bytes:
    """`data` without a UTF-8 character that is cut off at its end."""
    for length in range(1, min(4, len(data)) + 1):
        byte = data[-length]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            expected = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-length] if length < expected else data
    return data
