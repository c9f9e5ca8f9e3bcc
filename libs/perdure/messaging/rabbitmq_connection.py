"""The connection to a RabbitMQ server, made again however often it is lost.

aio-pika's own robust connection restores its objects behind the caller's back and one by one; this
loop knows when it is connected, says why when it is not, and lets the topology be declared before
anything else happens on a new connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final
from urllib.parse import parse_qs, urlsplit

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS
from aiormq.exceptions import (
    AuthenticationError,
    ChannelAccessRefused,
    ConnectionClosed,
    ProbableAuthenticationError,
)

from perdure.errors import BusUnavailable, InvalidSetting, described
from perdure.masking import masked

log = logging.getLogger(__name__)
# The library logs each failed try, and a traceback for each lost connection; both are told here.
logging.getLogger("aiormq").setLevel(logging.CRITICAL)

# Both ends send one twice in this time. The broker gives a silent connection up after two of them,
# we after 18 to 20 s (aiormq allows three and a bit): well within the 30 s of a worker's lease.
HEARTBEAT_S: Final = 5
CONNECT_TIMEOUT_S: Final = 10.0  # three round trips and a password check
PREPARE_TIMEOUT_S: Final = 30.0  # a broker that has just started elects leaders of its queues first
CLOSE_TIMEOUT_S: Final = 3.0  # saying goodbye to a broker that may not listen any more
# Pauses between two tries double up to the longest.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 3.0

# AMQP's reply code for a virtual host that is not there, or not for this user; and for too many
# connections to it, which pass.
_NOT_ALLOWED: Final = 530
_PASSES: Final = "limit"

Prepare = Callable[[AbstractConnection], Awaitable[None]]


class Link:
    """A connection that comes back. `prepare` runs on each new one before anybody else uses it."""

    def __init__(self, url: str, name: str, prepare: Prepare) -> None:
        """`name` is what the broker's operator sees this connection under."""
        self._url = url
        self._name = name
        self._prepare = prepare
        self._connection: AbstractConnection | None = None
        self._up = asyncio.Event()
        self._tried = asyncio.Event()
        self._why_not = "not connected yet"
        self._refused = False  # by a broker that answers, for as long as nobody changes a setting
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to connect, and return after the first try, whatever came of it but a refusal.

        Raises InvalidSetting when the broker refuses the user, the password, the virtual host or
        the right to declare what is needed. Refused later, the link goes on trying: who takes a
        right away may give it back.
        """
        self._task = asyncio.create_task(self._run(), name="broker connection")
        try:
            await self._tried.wait()
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._refused:
            why = self._why_not
            await self.close()
            raise InvalidSetting(
                f"the broker at {masked(self._url)} refuses us ({why}): "
                "check the user, the password, the virtual host and the user's permissions for it"
            )

    def connection(self) -> AbstractConnection:
        """The connection. Raises BusUnavailable while there is none."""
        if self._connection is None:
            raise BusUnavailable(
                f"no connection to the broker at {masked(self._url)}: {self._why_not}"
            )
        return self._connection

    async def connected(self) -> AbstractConnection:
        """Wait for the connection; how long is for the caller to bound."""
        while self._connection is None:
            await self._up.wait()
        return self._connection

    async def close(self) -> None:
        """Release the connection, and make no other."""
        self._why_not = "the bus is closed"
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            try:
                await self._connect_until_lost()
                pause_s = FIRST_PAUSE_S
            except BusUnavailable as error:
                self._refused = _refusal(error.__cause__)
                if self._why_not != error.message:  # once per reason, not per try
                    self._complain(error.message)
                self._why_not = error.message
            except Exception as error:
                log.exception("connecting to the broker at %s failed", masked(self._url))
                self._why_not = said(error)
            self._tried.set()

    def _complain(self, why: str) -> None:
        if not self._refused:
            log.warning("no broker at %s: %s", masked(self._url), why)
        elif self._tried.is_set():  # else `start` raises it
            log.error("the broker at %s refuses us, and is asked again: %s", masked(self._url), why)

    async def _connect_until_lost(self) -> None:
        """Raises BusUnavailable when it did not even come to a connection."""
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_close(_: object, error: BaseException | None) -> None:
            if not lost.done():
                lost.set_result(said(error))

        with translated():
            connection = await _connect(self._url, self._name)
        try:
            connection.close_callbacks.add(on_close)
            with translated():
                async with asyncio.timeout(PREPARE_TIMEOUT_S):
                    await self._prepare(connection)
            log.info("connected to the broker at %s", masked(self._url))
            self._connection = connection
            self._refused = False
            self._up.set()
            self._tried.set()
            self._why_not = await lost
            log.warning("lost the broker at %s: %s", masked(self._url), self._why_not)
        finally:
            self._connection = None
            self._up.clear()
            await _close(connection)


async def _connect(url: str, name: str) -> AbstractConnection:
    heartbeat_s = None if "heartbeat" in parse_qs(urlsplit(url).query) else HEARTBEAT_S
    connection = aio_pika.Connection(
        aio_pika.connection.make_url(url, heartbeat=heartbeat_s),
        client_properties={"connection_name": name},
    )
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await connection.connect()
    except BaseException:
        await _close(connection)
        raise
    return connection


async def _close(connection: AbstractConnection) -> None:
    """Say goodbye, for a while; a connection that is lost already takes no time.

    One that did not come to its end would be closed by the garbage collector, in whatever thread
    and moment that runs: a second try has nothing to wait for, and ends it.
    """
    for _ in range(2):
        with contextlib.suppress(TimeoutError, *CONNECTION_EXCEPTIONS):
            await asyncio.wait_for(connection.close(), CLOSE_TIMEOUT_S)
            return


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise BusUnavailable for whatever a broken connection or channel raises here.

    A library call that waits when its connection is given up ends with CancelledError: that is no
    cancellation of the task it runs in.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BusUnavailable(said(error)) from error
    except TimeoutError as error:
        raise BusUnavailable("the broker did not answer in time") from error
    except CONNECTION_EXCEPTIONS as error:
        raise BusUnavailable(said(error)) from error


def _refusal(error: BaseException | None) -> bool:
    """Whether the broker has answered, and no waiting will change what it said."""
    if isinstance(error, ConnectionClosed):
        return error.args[:1] == (_NOT_ALLOWED,) and _PASSES not in said(error)
    return isinstance(
        error, AuthenticationError | ProbableAuthenticationError | ChannelAccessRefused
    )


def said(error: BaseException | None) -> str:
    """What an error of the library says, on one line."""
    if error is None:
        return "closed"
    if isinstance(error, asyncio.CancelledError):  # the library ends so what waits for the broker
        return "the connection was given up: the broker is silent"
    return " ".join(str(part) for part in error.args if part is not None) or described(error)
