"""Runs one service as a process: settings, log, the servers it needs, health pages, and its end.

Exit codes: 0 stopped as asked; 1 the service failed, and may be started anew by a supervisor; 2 a
setting is wrong, and starting anew will not help; 128 + signal: a second signal ended it at once.

Nothing in here starts a failed service again: it would go on with what the failure left in memory.
A supervisor starts a clean process, which finds everything in log, broker and store.
"""

import asyncio
import importlib.util
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, TypeVar

import perdure
from perdure.artifacts import open_store
from perdure.artifacts.port import ObjectStore
from perdure.errors import (
    AlreadyRunning,
    InvalidInput,
    InvalidSetting,
    PerdureError,
    StoreDenied,
    Unavailable,
)
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.port import EventLog, ReadModels
from perdure.messaging import Bus, open_bus
from perdure.runtime.data_folder import held
from perdure.runtime.health import PROBE_KEY, Check, Health, health_app
from perdure.runtime.http_server import HttpServer
from perdure.runtime.logs import log_to_stderr
from perdure.runtime.settings import (
    SecretUrl,
    ServiceSettings,
    read_settings,
    variable_of,
)
from perdure.runtime.waiting import first_of, set_within
from perdure.telemetry.setup import Telemetry, prometheus_text

log = logging.getLogger(__name__)

STOPPED: Final = 0
FAILED: Final = 1
MISCONFIGURED: Final = 2
KILLED: Final = 128  # plus the signal's number, as a shell says it

STDERR: Final = 2  # its descriptor
# While a server does not answer: how often the log says so.
SAY_EVERY_S: Final = 10.0
# A service that was told to stop may take `drain_s`; then it is cancelled, and has this long.
CANCEL_S: Final = 2.0
# For each connection: a server that is away must not hold up the end.
CLOSE_S: Final = 5.0
S = TypeVar("S", bound=ServiceSettings)
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """A service that has been put together.

    `run` works until the event is set, then brings to an end what it does. `checks` are what
    /readyz asks; `state` is one word for what the service does.
    """

    run: Callable[[asyncio.Event], Awaitable[None]]
    checks: Mapping[str, Check]
    state: Callable[[], str] = lambda: "running"


class Host:
    """What a service is put together with.

    It opens what the service needs, waits while a server does not answer yet, and closes
    everything, last first, at the end. Raises InvalidSetting for what no waiting will cure.
    """

    def __init__(self, health: Health, stopping: asyncio.Event, at_end: AsyncExitStack) -> None:
        self.pulse = health.pulse
        self.at_end = at_end
        self._name = f"perdure {health.service}"
        self._health = health
        self._stopping = stopping

    async def log(self, url: SecretUrl) -> tuple[EventLog, ReadModels]:
        """The event log and the read models of PERDURE_LOG_URL, at this version's schema."""
        # The data plane has no database, and does not install its driver.
        from perdure.eventlog.postgres import open_postgres

        found = await self._reach("log_url", lambda: open_postgres(url.get_secret_value()))
        self._close_at_end("database", found[0].close)
        return found

    async def bus(self, url: SecretUrl) -> Bus:
        """The broker of PERDURE_BUS_URL."""
        bus = await self._reach(
            "bus_url", lambda: open_bus(url.get_secret_value(), name=self._name)
        )
        self._close_at_end("broker", bus.close)
        return bus

    async def store(self, url: SecretUrl) -> ObjectStore:
        """The object store of PERDURE_STORE_URL."""

        def opened() -> ObjectStore:
            store = open_store(url.get_secret_value())
            store.stat(PROBE_KEY)  # opening asks no server
            return store

        return await self._reach("store_url", lambda: asyncio.to_thread(opened))

    @contextmanager
    def listening(self, setting: str) -> Iterator[None]:
        """Name the setting, `setting`_port or `setting`_host, with which the block cannot listen.
        Raises InvalidSetting.
        """
        try:
            yield
        except AlreadyRunning as error:
            raise InvalidSetting(f"{variable_of(setting)}_PORT: {error.message}") from error
        except InvalidSetting as error:
            raise InvalidSetting(f"{variable_of(setting)}_HOST: {error.message}") from error

    @contextmanager
    def data_dir(self, root: Path) -> Iterator[None]:
        """Hold the folder of PERDURE_DATA_DIR until the end. The block makes what is needed in it.
        Raises InvalidSetting when another process holds it, and when it cannot be used.
        """
        name = variable_of("data_dir")
        try:
            self.at_end.enter_context(held(root, otherwise=name))
            yield
        except (AlreadyRunning, InvalidSetting) as error:
            raise InvalidSetting(f"{name}: {error.message}") from error
        except OSError as error:
            raise InvalidSetting(
                f"{name}: {error.filename} cannot be used: {error.strerror}"
            ) from error

    async def _reach(self, setting: str, open_: Callable[[], Awaitable[T]]) -> T:
        """What `open_` gives, once it does; it is tried again while it raises Unavailable."""
        name, delays, said_at = variable_of(setting), retry_delays(), float("-inf")
        found: list[T] = []
        self._health.waits_for(name, "no answer yet")

        async def try_it() -> None:
            found.append(await open_())

        while not found:
            try:
                await first_of(try_it(), self._stopping.wait())
            except (InvalidSetting, StoreDenied) as error:
                raise InvalidSetting(f"{name}: {error.message}") from error
            except Unavailable as error:
                self._health.waits_for(name, error.message)
                if time.monotonic() - said_at >= SAY_EVERY_S:
                    said_at = time.monotonic()
                    log.warning("waits for %s: %s", name, error.message)
                await set_within(self._stopping, next(delays))
            if self._stopping.is_set():
                raise _Stopped
        if said_at > float("-inf"):
            log.info("%s answers now", name)
        self._health.has(name)
        return found[0]

    def _close_at_end(self, what: str, close: Callable[[], Awaitable[None]]) -> None:
        async def close_it() -> None:
            try:
                await asyncio.wait_for(close(), CLOSE_S)
            except (TimeoutError, OSError, PerdureError) as error:
                log.warning("the %s could not be closed properly: %r", what, error)

        self.at_end.push_async_callback(close_it)


Assemble = Callable[[S, Host], Awaitable[Service]]


class _Stopped(Exception):
    """It was told to stop before it ran."""


def require(*modules: str) -> None:
    """Raise ModuleNotFoundError for the first of `modules` that is not installed.

    For what only the children import: without it each attempt would fail.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def serve(name: str, kind: type[S], assemble: Assemble[S]) -> NoReturn:
    """Run the service `name` until it is told to stop, and end the process.

    Raises InvalidSetting, before anything was begun, when the environment does not give the
    settings of `kind`.
    """
    _occupy_standard_descriptors()
    settings = read_settings(kind, os.environ)
    log_to_stderr(name, settings.log_level)
    asyncio.run(_serve(name, settings, assemble))
    raise AssertionError("_serve ends the process")


async def _serve(name: str, settings: S, assemble: Assemble[S]) -> NoReturn:
    stopping = asyncio.Event()
    _stop_on_signals(stopping)
    shown = settings.model_dump(mode="json")
    log.info("starts", extra={"version": perdure.__version__, "settings": shown})
    code = await _outcome(name, settings, assemble, stopping)
    if code == STOPPED:
        log.info("stopped")
    logging.shutdown()
    # Everything is closed. A thread that still waits for a server would only hold us up.
    os._exit(code)


async def _outcome(name: str, settings: S, assemble: Assemble[S], stopping: asyncio.Event) -> int:
    """The process's exit code. What went wrong is one line of the log, with what to do; of a wrong
    setting it is a plain line, as of those that are found before there is a log.
    """
    try:
        async with AsyncExitStack() as at_end:
            await _live(name, settings, assemble, stopping, at_end)
    except _Stopped:
        return STOPPED
    except InvalidInput as error:
        _complain(error)
        return MISCONFIGURED
    except PerdureError as error:
        log.critical(error.message)
        return FAILED
    except Exception as error:
        log.critical("failed: %s", _told(error), exc_info=error)
        return FAILED
    return STOPPED


def _complain(error: PerdureError) -> None:
    line = f"error: {' '.join(error.message.split())}\n"
    # Not sys.stderr, which is None where the caller has closed it.
    with suppress(OSError):  # nobody listens: the exit code says it all the same
        os.write(STDERR, line.encode(errors="backslashreplace"))


def _told(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _live(
    name: str,
    settings: S,
    assemble: Assemble[S],
    stopping: asyncio.Event,
    at_end: AsyncExitStack,
) -> None:
    telemetry = _telemetry(name)
    at_end.push_async_callback(asyncio.to_thread, telemetry.close)
    health = Health(name)
    pages = HttpServer(
        health_app(health, prometheus_text), host=settings.health_host, port=settings.health_port
    )
    host = Host(health, stopping, at_end)
    with host.listening("health"):
        url = await pages.start()
    at_end.push_async_callback(pages.stop)
    at_end.push_async_callback(health.close)
    log.info("health pages at %s", url, extra={"url": url})
    service = await assemble(settings, host)
    health.runs(service.checks, service.state)
    log.info("runs")
    await _run(service, stopping, health, settings.drain_s)


def _telemetry(name: str) -> Telemetry:
    try:
        return Telemetry(name, prometheus=True)
    except ValueError as error:  # what OpenTelemetry does not take; the rest it passes over
        raise InvalidSetting(f"a variable OTEL_... is wrong: {error}") from error


async def _run(service: Service, stopping: asyncio.Event, health: Health, drain_s: float) -> None:
    """Let the service work until it is told to stop, and for `drain_s` after that."""
    work = asyncio.ensure_future(service.run(stopping))
    stop = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            health.stops()
            log.info("stops: it brings to an end what it does, within %g s", drain_s)
            await asyncio.wait({work}, timeout=drain_s)
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=CANCEL_S)
            raise PerdureError(
                f"the service did not come to an end within {drain_s:g} s and was cut off: "
                f"give it more time with {variable_of('drain_s')}"
            )
        work.result()
        if not stop.done():
            raise PerdureError("the service ended though nobody told it to")
    finally:
        work.cancel()
        stop.cancel()


def _stop_on_signals(stopping: asyncio.Event) -> None:
    """Set `stopping` at the first SIGTERM or SIGINT; the second ends the process at once.

    Not through the event loop's own handlers: the second is heard also while a step blocks it.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            # Children end with their parent; the next start finds everything in log and broker.
            os._exit(KILLED + number)
        asked = True
        loop.call_soon_threadsafe(stopping.set)

    signal.signal(signal.SIGTERM, stop)
    # A shell starts what is to run in the background with SIGINT ignored: Ctrl-C is not for it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, stop)


def _occupy_standard_descriptors() -> None:
    """Open what the caller has closed of 0, 1 and 2: else a connection would get such a number,
    and what somebody prints would go into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
