"""What a process says of itself to whoever supervises it."""

import asyncio

import httpx
import pytest

from perdure.artifacts import open_store
from perdure.errors import BusUnavailable, LogUnavailable, NotFound
from perdure.eventlog.memory import MemoryLog
from perdure.messaging.local import LocalBus
from perdure.messaging.port import Queue, QueueView
from perdure.messaging.topology import EVENTS
from perdure.runtime import health
from perdure.runtime.health import Checks, Health, Pulse, health_app

QUEUE = Queue("work.w1", EVENTS, ("w1",))


async def well() -> str:
    return "fine"


async def away() -> str:
    raise LogUnavailable("the log is away")


async def broken() -> str:
    raise ValueError("a bug")


async def cut_off() -> str:
    raise asyncio.CancelledError


class Stuck:
    """A check that does not come back until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.let_go = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        await self.let_go.wait()
        return "back"


def pages(of: Health) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(health_app(of, lambda: b"perdure_up 1\n"))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_each_check_is_told_with_what_it_found() -> None:
    checks = Checks({"a": well, "b": away, "c": broken, "d": cut_off})
    assert await checks.results() == {
        "a": {"ok": True, "detail": "fine"},
        "b": {"ok": False, "detail": "the log is away"},
        "c": {"ok": False, "detail": "ValueError('a bug')"},
        "d": {"ok": False, "detail": "the connection broke"},
    }


async def test_a_check_that_hangs_holds_nobody_up_and_is_not_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "CHECK_TIMEOUT_S", 0.05)
    stuck = Stuck()
    checks = Checks({"slow": stuck, "fast": well})
    for _ in range(3):
        results = await checks.results()
        assert results["slow"] == {"ok": False, "detail": "no answer in 0.05 s"}
        assert results["fast"]["ok"]
    assert stuck.begun == 1
    stuck.let_go.set()
    assert (await checks.results())["slow"] == {"ok": True, "detail": "back"}
    await checks.results()
    assert stuck.begun == 2


async def test_questions_at_the_same_time_share_a_check() -> None:
    stuck = Stuck()
    checks = Checks({"slow": stuck})
    asked = [asyncio.create_task(checks.results()) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stuck.let_go.set()
    assert await asyncio.gather(*asked) == [{"slow": {"ok": True, "detail": "back"}}] * 5
    assert stuck.begun == 1


async def test_a_process_that_waits_is_alive_and_not_ready() -> None:
    process = Health("relay")
    process.waits_for("PERDURE_LOG_URL", "the database does not answer")
    async with pages(process) as http:
        alive, ready = await http.get("/healthz"), await http.get("/readyz")
        assert alive.status_code == 200
        assert alive.json() == {"status": "ok", "service": "relay", "state": "starting"}
        assert ready.status_code == 503
        assert ready.json() == {
            "service": "relay",
            "state": "starting",
            "status": "unavailable",
            "checks": {"PERDURE_LOG_URL": {"ok": False, "detail": "the database does not answer"}},
        }
        process.has("PERDURE_LOG_URL")
        assert (await http.get("/readyz")).status_code == 503  # it does not run yet


async def test_a_process_is_ready_while_it_runs_and_all_checks_are_well() -> None:
    process = Health("relay")
    verdicts = {"broker": well, "database": well}
    process.runs(verdicts, lambda: "standby")
    async with pages(process) as http:
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")
        assert ready.json()["state"] == "standby"
        verdicts["database"] = away
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert ready.json()["checks"]["broker"]["ok"]
        verdicts["database"] = well
        process.stops()
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["state"]) == (503, "stopping")
        assert (await http.get("/healthz")).status_code == 200


async def test_a_loop_that_stands_still_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: now[0])
    process = Health("scheduler")
    log = process.pulse.of(MemoryLog())
    now[0] = 1000.0
    assert process.alive()[0]  # it is not expected to run
    with process.pulse.expected():
        assert process.alive()[0]
        now[0] += health.MAX_STILL_S + 1
        well_, told = process.alive()
        assert not well_
        assert told["detail"].startswith("the service's loop has stood still for 121 s")
        await log.head()
        assert process.alive()[0]
    now[0] += 1000
    assert process.alive()[0]


async def test_a_watched_port_is_the_port_itself() -> None:
    log = Pulse().of(MemoryLog())
    assert await log.read_all(after=0) == []


async def test_metrics_are_told_in_prometheus_form() -> None:
    async with pages(Health("relay")) as http:
        answer = await http.get("/metrics")
    assert answer.text == "perdure_up 1\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_broker_is_asked_who_consumes() -> None:
    bus = LocalBus()
    check = health.consumers(bus, QUEUE)
    with pytest.raises(NotFound, match=r"work\.w1"):
        await check()
    await bus.declare(QUEUE)
    with pytest.raises(BusUnavailable, match=r"no consumer at work\.w1"):
        await check()

    async def handle(_delivery: object) -> None:
        return

    consumer = await bus.consume(QUEUE, handle)
    assert await check() == "1 at work.w1"
    await consumer.cancel()
    with pytest.raises(BusUnavailable):
        await check()
    assert await health.broker(bus, QUEUE)() == "0 messages wait at work.w1"
    await bus.close()


async def test_a_consumer_that_is_away_for_a_moment_counts() -> None:
    counts = [0, 1, 0, 0]

    class Renewing(LocalBus):
        async def inspect(self, queue: Queue) -> QueueView:
            return QueueView(0, counts.pop(0))

    check = health.consumers(Renewing(), QUEUE)
    assert await check() == "1 at work.w1"
    with pytest.raises(BusUnavailable):
        await check()


async def test_database_and_store_are_asked_something(tmp_path) -> None:
    assert await health.database(MemoryLog())() == "the log has 0 events"
    closed = MemoryLog()
    await closed.close()
    with pytest.raises(LogUnavailable):
        await health.database(closed)()
    check = health.store(open_store(tmp_path.as_uri()))
    assert await check() == "answers"
