"""How fast messages go through RabbitMQ, and events from the log to a consumer; one JSON line each.

The peer is aio-pika itself on the same broker in the same run, without what the bus adds
(CloudEvents headers, the topology, the loop that comes back). For the latency it is a message
published straight to the consumer, past log and relay.
"""

import asyncio
import json
import secrets
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import aio_pika

from infra.stack.ports import free_port
from infra.stack.postgres import Postgres
from infra.stack.rabbitmq import RabbitNode
from perdure.contracts.envelope import NewEvent
from perdure.contracts.v1 import events_pb2
from perdure.eventlog.port import StreamAppend
from perdure.eventlog.postgres import open_postgres
from perdure.messaging import open_bus
from perdure.messaging.port import Bus, Delivery, Message, Queue
from perdure.messaging.topology import EVENTS
from perdure_relay.relay import Relay

MEASURE_S = 3.0
PIPELINED = 100
BODY = b"x" * 300  # an epoch's report
EVENTS_PER_S = 50  # what a busy fleet says; below what anything here can carry
LATENCIES = 400
QUEUE = Queue("bench", "bench", ("k",))
LIVE = Queue("bench.live", EVENTS, ("#",), transient=True)


def figure(name: str, value: float, unit: str, peer: str, peer_value: float) -> None:
    line = {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "peer": peer,
        "peer_value": round(peer_value, 2),
        "ratio": round(value / peer_value, 3),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def per_s(step: Callable[[], Awaitable[int]]) -> float:
    """Messages per second of a step that says how many it has sent."""
    sent, started = 0, time.perf_counter()
    while time.perf_counter() - started < MEASURE_S:
        sent += await step()
    return sent / (time.perf_counter() - started)


def message() -> Message:
    return Message(uuid.uuid4().hex, "EpochCompleted", BODY, source="bench", subject="task-1")


async def publishing(bus: Bus, url: str) -> None:
    await bus.declare(QUEUE)

    async def one() -> int:
        await bus.publish("bench", "k", message())
        return 1

    async def many() -> int:
        await bus.publish_all("bench", [("k", message()) for _ in range(PIPELINED)])
        return PIPELINED

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        exchange = await channel.get_exchange("bench")

        async def raw_one() -> int:
            await exchange.publish(aio_pika.Message(BODY, delivery_mode=2), "k")
            return 1

        async def raw_many() -> int:
            await asyncio.gather(*(raw_one() for _ in range(PIPELINED)))
            return PIPELINED

        for name, ours, theirs in (("single", one, raw_one), ("batch_100", many, raw_many)):
            value, peer = await per_s(ours), await per_s(theirs)
            figure(f"publish_confirm_{name}", value, "messages/s", "aio-pika", peer)


class Arrivals:
    """When each message came."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.came = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> None:
        self.at[delivery.message.id] = time.perf_counter()
        self.came.set()

    async def has(self, ids: dict[str, float]) -> None:
        async with asyncio.timeout(30):
            while not ids.keys() <= self.at.keys():
                self.came.clear()
                await self.came.wait()


async def latencies_ms(send: Callable[[str], Awaitable[float]], arrivals: Arrivals) -> list[float]:
    """From the time that `send` names to the handler, for a steady stream."""
    sent: dict[str, float] = {}
    for _ in range(LATENCIES):
        began, name = time.perf_counter(), str(uuid.uuid4())
        sent[name] = await send(name)
        await asyncio.sleep(max(0.0, 1 / EVENTS_PER_S - (time.perf_counter() - began)))
    await arrivals.has(sent)
    return [(arrivals.at[name] - at) * 1000 for name, at in sent.items()]


async def latency(bus: Bus, log_url: str) -> None:
    log, read_models = await open_postgres(log_url)
    arrivals, stopping = Arrivals(), asyncio.Event()
    await bus.consume(LIVE, arrivals)
    relay = asyncio.create_task(
        Relay(eventlog=log, checkpoints=read_models, bus=bus).run(stopping), name="relay"
    )
    version = 0

    async def append(name: str) -> float:
        """Counts from when the event is in the log."""
        nonlocal version
        data = events_pb2.EpochCompleted(fence=1, epoch=version, box_loss=0.5, map50=0.5)
        event = NewEvent(name, data, "2026-01-02T03:04:05.000006+00:00", "task-1", "", "bench")
        await log.append(StreamAppend("task-1", version, (event,)))
        version += 1
        return time.perf_counter()

    async def straight(name: str) -> float:
        """Counts from when it is handed to the bus."""
        began = time.perf_counter()
        await bus.publish(EVENTS, "Straight.x", Message(name, "Straight", BODY))
        return began

    through = sorted(await latencies_ms(append, arrivals))
    direct = sorted(await latencies_ms(straight, arrivals))
    stopping.set()
    await relay
    await log.close()
    for name, share in (("p50", 50), ("p99", 99)):
        value, peer = (statistics.quantiles(v, n=100)[share - 1] for v in (through, direct))
        figure(f"log_to_consumer_{name}", value, "ms", "publish straight to the consumer", peer)


async def measure(bus_url: str, log_url: str) -> None:
    bus = await open_bus(bus_url)
    await publishing(bus, bus_url)
    await latency(bus, log_url)
    await bus.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with (
            Postgres(root / "postgres", port=free_port(), password=secrets.token_hex(8)) as log,
            RabbitNode(root / "rabbitmq") as node,
        ):
            asyncio.run(measure(node.url, log.url))


if __name__ == "__main__":
    main()
