"""Group commit: appends that wait at the same time share one transaction and one disk flush."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable, PerdureError
from perdure.eventlog.request import Request

# About 5 ms of work for Postgres, in which this process can encode the next group: a group of all
# that waits would have both take turns.
MAX_GROUP_EVENTS = 400
MAX_GROUP_REQUESTS = 200
MAX_WAITING = 10_000  # beyond it, appending is refused: the database is far behind
CLOSE_TIMEOUT_S = 10.0

_logger = logging.getLogger(__name__)

Result = tuple[RecordedEvent, ...] | PerdureError
Write = Callable[[Sequence[Request]], Awaitable[list[Result]]]


@dataclass(eq=False, slots=True)
class _Waiting:
    request: Request
    answer: asyncio.Future[tuple[RecordedEvent, ...]]

    def settle(self, result: Result) -> None:
        # An appender that was cancelled does not wait any more; its events may well be in the log.
        if self.answer.done():
            return
        if isinstance(result, PerdureError):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)


class GroupCommit:
    """Gathers requests and writes them, one group after the other. Needs a running event loop.

    No group holds two requests that touch the same stream or carry the same event id: the later one
    waits for the next group, so that within a group each request stands for itself.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._queue: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="event log group commit")

    async def submit(self, request: Request) -> tuple[RecordedEvent, ...]:
        """Have `request` written and give its events as recorded.

        Raises what the log answered, or LogUnavailable when it did not answer: then the request may
        have been written or not, and repeating it exactly is right.
        """
        if self._closing or self._task.done():
            raise LogUnavailable("the event log is closed")
        if len(self._queue) >= MAX_WAITING:
            raise LogUnavailable(
                f"{len(self._queue)} appends wait for the event log already: try again later"
            )
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        return await waiting.answer

    async def close(self) -> None:
        """Write what waits, and end."""
        self._closing = True
        self._arrived.set()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._task
        except TimeoutError:
            raise LogUnavailable(
                f"the event log did not take the last appends within {CLOSE_TIMEOUT_S:g} s"
            ) from None

    async def _run(self) -> None:
        group: list[_Waiting] = []
        try:
            while True:
                group = self._next_group()
                if group:
                    await self._commit(group)
                elif self._closing:
                    return
                else:
                    self._arrived.clear()
                    await self._arrived.wait()
        except Exception:
            _logger.exception("the writer of the event log has failed: no append is possible")
            raise
        finally:
            for waiting in (*group, *self._queue):
                waiting.settle(LogUnavailable("the event log was closed before it answered"))

    def _next_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        later: deque[_Waiting] = deque()
        streams: set[str] = set()
        ids: set[str] = set()
        events = 0
        while (
            self._queue
            and events < MAX_GROUP_EVENTS
            and len(group) + len(later) < MAX_GROUP_REQUESTS
        ):
            waiting = self._queue.popleft()
            if waiting.answer.done():
                continue
            request = waiting.request
            if streams.isdisjoint(request.streams) and ids.isdisjoint(request.ids):
                group.append(waiting)
                events += len(request.entries)
            else:
                later.append(waiting)
            # Of those put off, too: what came after them must not overtake them.
            streams |= request.streams
            ids |= request.ids
        self._queue.extendleft(reversed(later))
        return group

    async def _commit(self, group: Sequence[_Waiting]) -> None:
        try:
            results = await self._write([waiting.request for waiting in group])
        except LogUnavailable as error:
            for waiting in group:
                waiting.settle(LogUnavailable(error.message))
        except asyncpg.PostgresError as error:
            # The database refused the statement because of one of the requests: the others shall
            # not suffer.
            if len(group) > 1:
                for waiting in group:
                    await self._commit([waiting])
            else:
                group[0].settle(
                    LogUnavailable(f"the event log's database refused an append: {error}")
                )
        else:
            for waiting, result in zip(group, results, strict=True):
                waiting.settle(result)
