"""Whether a service is alive, and whether it is ready: for supervisors, probes and people.

GET /healthz   200 while the event loop answers and the service's own loop is at work, else 503:
               start the process anew
GET /readyz    200 when all that the service needs answers, else 503 with what does not: wait
GET /metrics   what is measured, for Prometheus
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from perdure.artifacts.port import ObjectStore
from perdure.errors import BusUnavailable, PerdureError
from perdure.eventlog.port import EventLog
from perdure.messaging.port import Bus, Queue, QueueView

# Probes give up after some seconds (Kubernetes: 1, Docker: 30): the answer has to be there before.
CHECK_TIMEOUT_S: Final = 3.0
# Between two looks of a loop at its ports lies 45 s at most: all of the log's timeouts in a row.
MAX_STILL_S: Final = 120.0
# A consumer that hears nothing subscribes anew now and then, and is away for some milliseconds.
RENEWAL_S: Final = 0.2
# An object that need not be there: that the store can say so is the answer.
PROBE_KEY: Final = "health/probe"

PROMETHEUS_MEDIA_TYPE: Final = "text/plain; version=0.0.4"

# Says what it found, and raises when it is not well.
Check = Callable[[], Awaitable[str]]
Answer = dict[str, Any]
P = TypeVar("P")


class Pulse:
    """When a service's loop was last seen at work: each use of a port is a sign of life."""

    def __init__(self) -> None:
        self._beat_at = time.monotonic()
        self._expected = False

    def beat(self) -> None:
        """The loop has just done something."""
        self._beat_at = time.monotonic()

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Within the block the loop runs, and its silence means that it stands still."""
        self.beat()
        self._expected = True
        try:
            yield
        finally:
            self._expected = False

    @property
    def still_s(self) -> float:
        """For how long the loop, which should run, was not seen; 0 when it need not run."""
        return time.monotonic() - self._beat_at if self._expected else 0.0

    def of(self, port: P) -> P:
        """`port`, of which every use is a beat."""
        return cast(P, _Watched(port, self.beat))


class _Watched:
    def __init__(self, port: Any, used: Callable[[], None]) -> None:
        self._port = port
        self._used = used

    def __getattr__(self, name: str) -> Any:
        self._used()
        return getattr(self._port, name)


class Checks:
    """Named checks, made all at once when somebody asks, each for CHECK_TIMEOUT_S at most.

    One that hangs is not begun a second time: questions do not pile up.
    """

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._running: dict[str, asyncio.Task[str]] = {}

    async def results(self) -> dict[str, Answer]:
        """Of each check `ok` and `detail`."""
        for name, check in self._checks.items():
            if name not in self._running:
                self._running[name] = asyncio.create_task(_made(check), name=f"check {name}")
        asked = dict(self._running)
        if asked:
            await asyncio.wait(asked.values(), timeout=CHECK_TIMEOUT_S)
        return {name: self._result(name, task) for name, task in asked.items()}

    def _result(self, name: str, task: asyncio.Task[str]) -> Answer:
        if not task.done():
            return {"ok": False, "detail": f"no answer in {CHECK_TIMEOUT_S:g} s"}
        if self._running.get(name) is task:
            del self._running[name]
        if task.cancelled():  # a connection that breaks cancels who waits for its answers
            return {"ok": False, "detail": "the connection broke"}
        error = task.exception()
        if error is None:
            return {"ok": True, "detail": task.result()}
        told = error.message if isinstance(error, PerdureError) else repr(error)
        return {"ok": False, "detail": told}

    async def close(self) -> None:
        """End the checks that still run."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


async def _made(check: Check) -> str:
    return await check()


class Health:
    """What is known of this process: how far it has come, and what it waits for."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.pulse = Pulse()
        self._checks = Checks({})
        self._missing: dict[str, str] = {}
        self._state: Callable[[], str] = lambda: "starting"

    def waits_for(self, what: str, why: str) -> None:
        """Something that the service needs in order to start does not answer."""
        self._missing[what] = why

    def has(self, what: str) -> None:
        """Something that the service needs has answered."""
        self._missing.pop(what, None)

    def runs(self, checks: Mapping[str, Check], state: Callable[[], str]) -> None:
        """The service has what it needs. `state` says what it does."""
        self._checks, self._state = Checks(checks), state

    def stops(self) -> None:
        """No more work is taken on."""
        self._state = lambda: "stopping"

    async def close(self) -> None:
        """End what is still being checked."""
        await self._checks.close()

    def alive(self) -> tuple[bool, Answer]:
        """Whether the process does its work, and the answer that says so."""
        still_s = self.pulse.still_s
        told = {"service": self.service, "state": self._state()}
        if still_s <= MAX_STILL_S:
            return True, {"status": "ok", **told}
        detail = f"the service's loop has stood still for {still_s:.0f} s: start it anew"
        return False, {"status": "failing", **told, "detail": detail}

    async def ready(self) -> tuple[bool, Answer]:
        """Whether the service can do its work now, and the answer with each check."""
        results = {name: {"ok": False, "detail": why} for name, why in self._missing.items()}
        well, answer = verdict(results | await self._checks.results())
        state = self._state()
        if state in ("starting", "stopping"):
            well, answer["status"] = False, "unavailable"
        return well, {"service": self.service, "state": state, **answer}


def verdict(results: Mapping[str, Answer]) -> tuple[bool, Answer]:
    """Whether all checks found all well, and the answer that says so."""
    well = all(result["ok"] for result in results.values())
    return well, {"status": "ready" if well else "unavailable", "checks": results}


def health_app(health: Health, measured: Callable[[], bytes]) -> Starlette:
    """The pages of a process. `measured` gives its metrics in Prometheus' text form (blocking)."""

    async def healthz(_request: Request) -> JSONResponse:
        return answered(*health.alive())

    async def readyz(_request: Request) -> JSONResponse:
        return answered(*await health.ready())

    async def metrics(_request: Request) -> Response:
        text = await asyncio.to_thread(measured)
        return Response(text, media_type=PROMETHEUS_MEDIA_TYPE)

    pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])


def answered(well: bool, answer: Answer) -> JSONResponse:
    """`answer` as a response: 200 when all is well, else 503."""
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse(answer, status_code=status, headers={"cache-control": "no-store"})


def database(log: EventLog) -> Check:
    """The event log's database says where the log ends."""

    async def check() -> str:
        return f"the log has {(await log.head()).position} events"

    return check


def store(objects: ObjectStore) -> Check:
    """The object store looks up an object."""

    async def check() -> str:
        await asyncio.to_thread(objects.stat, PROBE_KEY)
        return "answers"

    return check


async def inspected(bus: Bus, queue: Queue) -> QueueView:
    """The queue as the broker sees it; as it is RENEWAL_S later, when it counts no consumer.

    Raises as Bus.inspect does.
    """
    view = await bus.inspect(queue)
    if view.consumers:
        return view
    await asyncio.sleep(RENEWAL_S)
    return await bus.inspect(queue)


def consumers(bus: Bus, *queues: Queue) -> Check:
    """The broker, which alone knows, counts a consumer at each of `queues`."""

    async def check() -> str:
        # At once: a distant broker takes a second for each.
        views = await asyncio.gather(*(inspected(bus, queue) for queue in queues))
        counts = {queue.name: view.consumers for queue, view in zip(queues, views, strict=True)}
        lonely = [name for name, count in counts.items() if not count]
        if lonely:
            raise BusUnavailable(f"the broker counts no consumer at {', '.join(lonely)}")
        return ", ".join(f"{count} at {name}" for name, count in counts.items())

    return check


def broker(bus: Bus, queue: Queue) -> Check:
    """The broker answers, for a service that consumes nothing (now)."""

    async def check() -> str:
        return f"{(await bus.inspect(queue)).messages} messages wait at {queue.name}"

    return check
