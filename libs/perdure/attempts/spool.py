"""What a child writes, stored in pieces while it runs, so that it can be read from anywhere at any
time.

A piece is an object `<prefix>/<offset>.<suffix>`; the pieces in the order of their keys are the
text. The size is bounded: past the limit only the newest text is kept, and goes in at the end,
after a line that says what is missing.
"""

import asyncio
import logging
from collections import deque
from typing import Final

from perdure.artifacts.port import ObjectStore
from perdure.errors import StoreUnavailable

log = logging.getLogger(__name__)

FLUSH_EVERY_S: Final = 1.0
# A training writes some 100 bytes a step to the log: the start and the end of it are what one
# reads.
MAX_HEAD_BYTES: Final = 8 << 20
MAX_TAIL_BYTES: Final = 1 << 20


class Spool:
    """Text on its way to the object store.

    `start` begins to store what `write` takes in; `write` never blocks; `close` stores the rest.
    """

    def __init__(self, store: ObjectStore, prefix: str, suffix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._suffix = suffix
        self._pending = bytearray()
        self._offset = 0  # of the first byte that is not stored
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._closing = asyncio.Event()
        self._storing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Store what comes in, again and again, until `close`."""
        self._storing = asyncio.create_task(self._store_until_closed())

    def write(self, data: bytes) -> None:
        """Take in a piece of text."""
        room = max(0, MAX_HEAD_BYTES - self._offset - len(self._pending))
        self._pending += data[:room]
        rest = data[room:]
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= MAX_TAIL_BYTES:
                gone = len(self._tail.popleft())
                self._tail_bytes -= gone
                self._dropped_bytes += gone

    async def _store_until_closed(self) -> None:
        while not self._closing.is_set():
            try:
                await asyncio.wait_for(self._closing.wait(), FLUSH_EVERY_S)
            except TimeoutError:
                await self._flush()

    async def close(self) -> None:
        """Store what is left.

        Text that cannot be stored is given up, and that is logged: work goes before logs.
        """
        self._closing.set()
        if self._storing is not None:
            await self._storing  # a piece on its way would overwrite the one that is stored below
        if self._tail:
            if self._dropped_bytes:
                self._pending += f"\n[{self._dropped_bytes} bytes left out]\n".encode()
            self._pending += b"".join(self._tail)
            self._tail.clear()
        if not await self._flush():
            log.error("the end of a log could not be stored", extra={"prefix": self._prefix})

    async def _flush(self) -> bool:
        if not self._pending:
            return True
        data = bytes(self._pending)
        key = f"{self._prefix}/{self._offset:012d}.{self._suffix}"
        try:
            await asyncio.to_thread(self._store.put_bytes, key, data)
        except StoreUnavailable as error:
            log.warning("log not stored yet: %s", error, extra={"prefix": self._prefix})
            return False
        del self._pending[: len(data)]
        self._offset += len(data)
        return True
