"""One process at a time: who holds a Postgres advisory lock leads, the others stand by.

The lock belongs to a session of its own, so that it is free again when that session ends: when the
leader lets go, when its process dies, when the server finds the connection dead, and when it heard
nothing of the leader for IDLE_S (a process that was stopped, a network that swallows everything).

A leader asks every PING_EVERY_S whether it still leads, and ends its work when it gets no answer.
PING_EVERY_S + PING_TIMEOUT_S + STOP_S + CANCEL_S < IDLE_S: work whose network swallows everything
has ended before the server gives the lock away. Work whose whole process stood still cannot know
what it missed, so it asks `Leadership.held` right before it acts. Between the answer and the act it
may be stopped again: what it does must be harmless when another leads already, as an append at an
expected version is, or a message that is known by its id.

PostgreSQL 14 or newer, and no connection pooler in between that shares sessions.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from perdure.errors import Damaged, InvalidSetting, LogUnavailable, Unavailable
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.connection import answering, configured, connect, hang_up
from perdure.eventlog.statements import statement

RELAY: Final = "relay"  # its checkpoint has this name, too
SCHEDULER: Final = "scheduler"

APPLICATION: Final = "perdure leadership"  # what the server's operator sees the session under
SCHEMA: Final = "perdure"  # two installations in one server have two databases
CAMPAIGN_EVERY_S: Final = 1.0  # how late, at most, somebody takes a lock that is free
PING_EVERY_S: Final = 2.0
PING_TIMEOUT_S: Final = 2.0
STOP_S: Final = 3.0  # for work to end once it does not lead any more; then it is cancelled
CANCEL_S: Final = 1.0  # for work to end once it is cancelled
IDLE_S: Final = 10.0  # after this much silence the server ends a leader's session
DRAIN_S: Final = 10.0  # for work to end when the process is asked to
STEADY_S: Final = 30.0  # work that failed after so long is tried again without a long pause

Work = Callable[[asyncio.Event], Awaitable[None]]

_logger = logging.getLogger(__name__)


def lock_key(role: str) -> int:
    """The advisory lock that stands for leading as `role`: the first 8 bytes of the SHA-256 of
    "perdure/leader/<role>", as a signed number.
    """
    digest = hashlib.sha256(f"{SCHEMA}/leader/{role}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


@dataclass(frozen=True)
class Holder:
    """The session that has the lock while this process stands by."""

    pid: int  # of the server's process, as pg_terminate_backend takes it
    application: str
    address: str

    @property
    def foreign(self) -> bool:
        """Whether it is none of Perdure's: then nobody leads."""
        return self.application != APPLICATION

    def __str__(self) -> str:
        return f"pid {self.pid}, application {self.application!r}, from {self.address}"


class Leadership:
    """What a process knows of its own leading. Filled in by `while_leading`.

    `holder` has the lock instead, as far as that is known.
    """

    def __init__(self) -> None:
        self.holder: Holder | None = None
        self._session: Any = None
        self._key = 0
        self._lost = asyncio.Event()
        self._sure_until = 0.0  # monotonic time up to which the server keeps the lock for us
        self._asking = asyncio.Lock()  # a session answers one question at a time

    @property
    def leads(self) -> bool:
        """Whether this process leads, without asking anybody. At once False after it slept."""
        return self._session is not None and time.monotonic() < self._sure_until

    async def check(self) -> str:
        """Who leads, for a page that tells how things are.

        Raises LogUnavailable when nobody does, as a session that is none of Perdure's has the lock.
        """
        if self.leads:
            return "leads"
        if self.holder is None:
            return "stands by"
        if self.holder.foreign:
            raise LogUnavailable(_blocked(self.holder))
        return f"stands by: another leads ({self.holder})"

    async def held(self) -> bool:
        """Ask the server whether this process leads. False, too, when there is no answer."""
        async with self._asking:
            session = self._session
            if session is None or self._lost.is_set():
                return False
            asked_at = time.monotonic()
            try:
                with answering():
                    rows = await session.fetch(
                        statement("read_lock_holder"), self._key, timeout=PING_TIMEOUT_S
                    )
            except LogUnavailable as error:
                _logger.warning("cannot tell whether this process leads: %s", error.message)
                rows = []
            if not any(row["own"] for row in rows):
                self._lost.set()
                return False
            self._sure_until = asked_at + IDLE_S
            return True

    def _begin(self, session: Any, key: int, asked_at: float) -> None:
        lost = asyncio.Event()
        session.add_termination_listener(lambda _session: lost.set())
        self._session, self._key, self._lost = session, key, lost
        self._sure_until = asked_at + IDLE_S
        self.holder = None

    def _stand_by(self, holder: Holder | None) -> None:
        if holder is not None and holder != self.holder:
            if holder.foreign:
                _logger.error(_blocked(holder))
            else:
                _logger.info("stands by: another leads (%s)", holder)
        self.holder = holder

    def _end(self) -> None:
        self._session = None
        self._lost.set()

    async def _until_lost(self) -> None:
        """Return once this process does not lead any more."""
        while await self.held():
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_EVERY_S):
                    await self._lost.wait()


async def while_leading(
    dsn: str,
    role: str,
    run: Work,
    stopping: asyncio.Event,
    leadership: Leadership | None = None,
    *,
    drain_s: float = DRAIN_S,
) -> None:
    """Stand by for `role`, and run `run` whenever this process leads, until `stopping` is set.

    `run` gets an event that is set when it is to end: because the lock is lost (it has STOP_S), or
    because of `stopping` (it has `drain_s`, and leads until it has ended). Then it is cancelled.
    `leadership` lets others see, and `run` ask, whether it leads.

    When `run` raises, the lock is let go, the error is logged, and after a growing pause it stands
    by again. Damaged is raised: trying again would not make it whole. A `run` that returns by
    itself ends this, too. RuntimeError: it did not end though it was cancelled: the process must.
    """
    leadership = leadership or Leadership()
    delays = retry_delays()
    while not stopping.is_set():
        began_at = time.monotonic()
        try:
            if await _term(dsn, role, run, stopping, leadership, drain_s):
                return
        except _Unstoppable:
            raise
        except Exception as error:  # noqa: BLE001 - recorded, and begun again
            _record(role, _only(error))
        if time.monotonic() - began_at > STEADY_S:
            delays = retry_delays()
        await _pause(stopping, next(delays))


async def _term(
    dsn: str,
    role: str,
    run: Work,
    stopping: asyncio.Event,
    leadership: Leadership,
    drain_s: float,
) -> bool:
    """Wait for the lock, and lead once. True: `run` has returned by itself."""
    key = lock_key(role)
    async with _session(dsn, stopping) as session:
        if session is None:
            return False
        try:
            elected_at = await _elected(session, key, stopping, leadership)
        finally:
            leadership.holder = None
        if elected_at is None:
            return False
        leadership._begin(session, key, elected_at)
        _logger.info("leads as %s", role)
        try:
            return await _work(run, stopping, leadership, drain_s)
        finally:
            leadership._end()
            _logger.info("does not lead as %s any more", role)


def _ending_when_silent() -> dict[str, str]:
    """Settings by which the server ends the session of a leader that it does not hear: keepalives
    find the machine that is gone, the user timeout an answer that nobody takes, the idle timeout a
    process that stands still while its kernel goes on answering.
    """
    return {
        "application_name": APPLICATION,
        "idle_session_timeout": f"{IDLE_S * 1000:.0f}ms",
        "tcp_user_timeout": f"{IDLE_S * 1000:.0f}ms",
        "tcp_keepalives_idle": "5",
        "tcp_keepalives_interval": "2",
        "tcp_keepalives_count": "2",
    }


@asynccontextmanager
async def _session(dsn: str, stopping: asyncio.Event) -> AsyncIterator[Any | None]:
    """A session that the server ends when it does not hear of it. None: it is time to stop."""
    connecting = asyncio.create_task(connect(dsn, _ending_when_silent()))
    try:
        await _first_of(connecting, stopping)
        if not connecting.done():
            yield None
            return
        with configured():
            session = connecting.result()
        yield session
    finally:
        connecting.cancel()
        await asyncio.wait({connecting})
        if not connecting.cancelled() and connecting.exception() is None:
            await hang_up(connecting.result())


async def _elected(
    session: Any, key: int, stopping: asyncio.Event, leadership: Leadership
) -> float | None:
    """Wait until `session` has the lock, and give the time when it asked. None: it is time to
    stop.
    """
    while not stopping.is_set():
        asked_at = time.monotonic()
        with answering():
            if await session.fetchval(statement("try_lock"), key, timeout=PING_TIMEOUT_S):
                return asked_at
            rows = await session.fetch(statement("read_lock_holder"), key, timeout=PING_TIMEOUT_S)
        leadership._stand_by(_holder(rows[0]) if rows else None)
        await _pause(stopping, CAMPAIGN_EVERY_S)
    return None


def _holder(row: Mapping[str, Any]) -> Holder:
    return Holder(
        row["pid"], row["application_name"] or "", row["address"] or "an address that is not shown"
    )


def _blocked(holder: Holder) -> str:
    return (
        f"nobody leads: a session that is none of Perdure's holds the lock ({holder}). If nobody "
        f"needs it, end it at the database: SELECT pg_terminate_backend({holder.pid})"
    )


async def _work(run: Work, stopping: asyncio.Event, leadership: Leadership, drain_s: float) -> bool:
    """Run the work until it ends, the lock is lost, or it is time to stop.

    True: it ended by itself.
    """
    ending = asyncio.Event()
    work = asyncio.ensure_future(run(ending))
    lost = asyncio.create_task(leadership._until_lost())
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({work, lost, stop}, return_when=asyncio.FIRST_COMPLETED)
        by_itself = work.done()
        ending.set()
        if not lost.done():
            await asyncio.wait({work, lost}, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        if lost.done():
            await asyncio.wait({work}, timeout=STOP_S)
    finally:
        for task in (work, lost, stop):
            task.cancel()
        await asyncio.wait({work, lost, stop}, timeout=CANCEL_S)
        if not work.done():
            raise _Unstoppable("the work of a former leader does not end though it was cancelled")
    for task in (work, lost):
        if not task.cancelled():
            task.result()
    return by_itself


def _only(error: Exception) -> Exception:
    """What went wrong, when it stands alone in a task group's error."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _record(role: str, error: Exception) -> None:
    match error:
        case Damaged():
            raise error
        case Unavailable() | InvalidSetting():
            _logger.warning("does not lead as %s: %s", role, error.message)
        case _:
            _logger.error(
                "the work of the leading %s has failed: it will be begun again",
                role,
                exc_info=error,
            )


async def _first_of(task: asyncio.Future[Any], stopping: asyncio.Event) -> None:
    """Wait until `task` is done or it is time to stop."""
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()


async def _pause(stopping: asyncio.Event, pause_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            await stopping.wait()


class _Unstoppable(RuntimeError):
    """Two would lead in one process if it went on."""
