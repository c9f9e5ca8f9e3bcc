"""Dead letters over HTTP: listed, shown with what they did, and put back once."""

import asyncio
import base64
from dataclasses import replace

import pytest

from perdure.contracts.codec import to_envelope
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.dead_letter import MAX_BODY_BYTES, REPLAY_HEADER
from perdure.errors import BusUnavailable
from perdure.messaging.port import Delivery, Message, Queue
from perdure_scheduler.dead_letters import dead_lettered
from tests.builders.dead_letters import (
    QUEUE,
    REPORT,
    TASK,
    death,
    died,
    replayed,
    report_message,
)
from tests.builders.gateway import World, assigned

URL = "/v1/audit/dead-letters"
STREAM = "dead-letter-report-7"
REPORTS = Queue(QUEUE, "perdure.reports", ("#",))


class Consumer:
    """Takes what comes into a queue."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[Delivery] = asyncio.Queue()

    async def take(self, delivery: Delivery) -> None:
        self.came.put_nowait(delivery)

    async def next(self) -> Delivery:
        async with asyncio.timeout(5):
            return await self.came.get()


@pytest.fixture
async def consumer(world: World) -> Consumer:
    consumer = Consumer()
    await world.bus.consume(REPORTS, consumer.take)
    return consumer


async def test_dead_letters_are_listed_newest_first_and_without_bodies(world, http):
    await world.append(STREAM, died())
    other = dead_lettered(report_message(message_id="x9"), death("other"))
    await world.append("dead-letter-x9", other)
    await world.append(STREAM, replayed())
    body = (await http.get(URL)).json()
    assert [letter["id"] for letter in body["dead_letters"]] == ["x9", "report-7"]
    assert body["next_before"] is None
    assert all("body" not in letter for letter in body["dead_letters"])
    parked = (await http.get(URL, params={"status": "parked"})).json()["dead_letters"]
    assert [(letter["id"], letter["queues"]) for letter in parked] == [("x9", ["other"])]
    by_prefix = (await http.get(URL, params={"prefix": "rep"})).json()["dead_letters"]
    assert [letter["status"] for letter in by_prefix] == ["replayed"]
    first = (await http.get(URL, params={"limit": 1})).json()
    rest = (await http.get(URL, params={"before": first["next_before"]})).json()
    assert [letter["id"] for letter in rest["dead_letters"]] == ["report-7"]
    assert (await http.get(URL, params={"status": "lost"})).status_code == 422


async def test_a_dead_letter_shows_its_message_and_that_it_had_no_effect(world, http):
    await world.append(STREAM, died())
    letter = (await http.get(f"{URL}/report-7")).json()
    assert base64.b64decode(letter["body"]) == REPORT.SerializeToString()
    assert letter["message"]["epoch"]["epochs"] == 3
    assert (letter["task_id"], letter["source"], letter["subject"]) == (TASK, "trainer-agent", TASK)
    assert letter["headers"]["traceparent"].startswith("00-abab")
    (last,) = letter["deaths"]
    assert (last["error"], last["deliveries"], last["queue"]) == ("KeyError: 'epoch'", 5, QUEUE)
    assert letter["effect"] == []


async def test_a_dead_letter_names_the_events_that_it_led_to_all_the_same(world, http):
    await world.append(STREAM, died())
    await world.append(f"task-{TASK}", events_pb2.TaskSubmitted(task_id=TASK, goal="model"))
    await world.append(f"task-{TASK}", assigned(2, "train"))
    # What the report says was recorded, and its handler died before it could say so.
    await world.append(f"task-{TASK}", REPORT.epoch, cause=REPORT.id)
    (effect,) = (await http.get(f"{URL}/report-7")).json()["effect"]
    assert (effect["type"], effect["position"], effect["version"]) == ("EpochCompleted", 4, 3)


async def test_a_message_that_nobody_can_read_is_kept_as_it_came(world, http):
    message = Message("m1", "Invoice", b"\xff\x00\xfe", subject="a\x00b\ud800")
    await world.append("dead-letter-m1", dead_lettered(message, death()))
    letter = (await http.get(f"{URL}/m1")).json()
    assert base64.b64decode(letter["body"]) == b"\xff\x00\xfe"
    assert (letter["message"], letter["effect"], letter["task_id"]) == (None, None, "")
    assert letter["subject"] == "a\x00b\\ud800"


async def test_an_event_that_died_is_shown_with_what_it_says(world, http):
    (event,) = await world.append("task-t1", events_pb2.TaskSubmitted(task_id="t1", goal="model"))
    body = to_envelope(event).SerializeToString()
    message = Message(event.id, event.type, body)
    await world.append(f"dead-letter-{event.id}", dead_lettered(message, death("live.1.events")))
    letter = (await http.get(f"{URL}/{event.id}")).json()
    assert letter["message"]["data"]["task_id"] == "t1"
    assert [found["position"] for found in letter["effect"]] == [1]
    assert letter["task_id"] == "t1"


async def test_a_replay_puts_the_message_back_as_it_was_and_records_who_asked(
    world, http, consumer
):
    await world.append(STREAM, died())
    response = await http.post(f"{URL}/report-7/replay")
    assert (response.status_code, response.json()["status"]) == (202, "replayed")
    delivery = await consumer.next()
    original = report_message()
    headers = {**original.headers, REPLAY_HEADER: "1"}
    assert delivery.message == replace(original, headers=headers)
    (again,) = response.json()["replays"]
    assert (again["replay"], again["requested_by"]) == (1, "local")
    last = (await world.log.read_stream(STREAM))[-1]
    assert (last.type, last.causation_id, last.correlation_id) == (
        "MessageReplayed",
        "report-7",
        TASK,
    )


async def test_a_dead_letter_is_replayed_once_and_again_when_it_died_again(world, http, consumer):
    await world.append(STREAM, died())
    await http.post(f"{URL}/report-7/replay")
    refused = await http.post(f"{URL}/report-7/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "local replayed it at" in refused.json()["detail"]
    assert (await consumer.next()).message.headers[REPLAY_HEADER] == "1"
    assert consumer.came.empty()
    await world.append(STREAM, died(1))
    assert (await http.post(f"{URL}/report-7/replay")).status_code == 202
    assert (await consumer.next()).message.headers[REPLAY_HEADER] == "2"


async def test_a_message_that_died_in_two_queues_goes_back_into_both(world, http, consumer):
    other = Consumer()
    await world.bus.consume(Queue("other", "x", ()), other.take)
    await world.append(STREAM, died(), died(queue="other"))
    assert (await http.post(f"{URL}/report-7/replay")).json()["queues"] == [QUEUE, "other"]
    for taker in (consumer, other):
        assert (await taker.next()).message.id == "report-7"


async def test_what_cannot_be_replayed_stays_parked_and_says_why(world, http):
    assert (await http.get(f"{URL}/nothing")).status_code == 404
    assert (await http.post(f"{URL}/nothing/replay")).status_code == 404
    await world.append(STREAM, died())
    gone = await http.post(f"{URL}/report-7/replay")
    assert (gone.status_code, "no queue any more" in gone.json()["detail"]) == (409, True)
    large = replace(report_message(), id="big", body=b"x" * (MAX_BODY_BYTES + 1))
    await world.append("dead-letter-big", dead_lettered(large, death()))
    refused = await http.post(f"{URL}/big/replay")
    assert (refused.status_code, "1,048,577 bytes" in refused.json()["detail"]) == (409, True)
    assert (await http.get(f"{URL}/big")).json()["kept"] is False
    statuses = (await http.get(URL)).json()["dead_letters"]
    assert [letter["status"] for letter in statuses] == ["parked", "parked"]


async def test_while_the_broker_is_away_nothing_is_replayed(world, http, monkeypatch):
    async def publish(exchange: str, routing_key: str, message: Message) -> None:
        raise BusUnavailable("the broker does not answer")

    await world.append(STREAM, died())
    monkeypatch.setattr(world.bus, "publish", publish)
    response = await http.post(f"{URL}/report-7/replay")
    assert (response.status_code, response.json()["code"]) == (503, "bus.unavailable")
    assert [event.type for event in await world.log.read_stream(STREAM)] == ["MessageDeadLettered"]


async def test_a_message_that_dies_again_before_its_replay_is_recorded_is_parked_again(
    world, http, consumer, monkeypatch
):
    publish = world.bus.publish

    async def die_at_once(exchange: str, routing_key: str, message: Message) -> None:
        await publish(exchange, routing_key, message)
        await world.append(STREAM, dead_lettered(message, death()), publish=False)

    await world.append(STREAM, died())
    monkeypatch.setattr(world.bus, "publish", die_at_once)
    letter = (await http.post(f"{URL}/report-7/replay")).json()
    assert (letter["status"], len(letter["deaths"]), len(letter["replays"])) == ("parked", 2, 1)


async def test_two_who_replay_at_one_time_are_recorded_once(world, http, consumer):
    await world.append(STREAM, died())
    answers = await asyncio.gather(*(http.post(f"{URL}/report-7/replay") for _ in range(2)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    events = await world.log.read_stream(STREAM)
    assert [event.type for event in events] == ["MessageDeadLettered", "MessageReplayed"]


async def test_a_heartbeat_is_shown_and_its_effect_is_the_registration(world, http):
    worker = events_pb2.WorkerRegistered(worker_id="node-1", incarnation="i1")
    await world.append("worker-node-1", worker)
    body = work_pb2.Heartbeat(worker=worker).SerializeToString()
    message = Message("h1", "Heartbeat", body)
    await world.append("dead-letter-h1", dead_lettered(message, death("scheduler.heartbeats")))
    letter = (await http.get(f"{URL}/h1")).json()
    assert [found["type"] for found in letter["effect"]] == ["WorkerRegistered"]
