"""What every event log promises, on each backend."""

import asyncio
import hashlib

import pytest

from perdure.contracts.codec import canonical_json, to_dict
from perdure.contracts.envelope import NewEvent, RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.errors import EventIdReused, LogUnavailable, VersionConflict
from perdure.eventlog.port import EventLog, Head, StreamAppend
from tests.builders.events import epoch, event, to

ZEROS = "0" * 64
DEADLINE_S = 30.0


async def test_events_come_back_as_they_were_appended(log: EventLog) -> None:
    first, second = epoch(1, causation_id="report-7"), event(source="gateway")

    recorded = await log.append(to("task-1", 0, first, second))

    assert [(e.id, e.position, e.version) for e in recorded] == [
        (first.id, 1, 1),
        (second.id, 2, 2),
    ]
    assert await log.read_stream("task-1") == list(recorded)
    assert await log.read_all(after=0) == list(recorded)
    assert recorded[0].type == "EpochCompleted"
    assert recorded[0].data == first.data
    assert recorded[0].causation_id == "report-7"
    assert recorded[1].source == "gateway"
    assert await log.head() == Head(2, recorded[1].hash)


async def test_an_empty_log_ends_at_zero(log: EventLog) -> None:
    assert await log.head() == Head(0, ZEROS)
    assert await log.read_all(after=0) == []
    assert await log.read_stream("task-1") == []
    assert (await log.verify()).events == 0


async def test_reads_are_bounded_as_asked(log: EventLog) -> None:
    await log.append(to("task-1", 0, *(epoch(n) for n in range(1, 6))))

    middle = await log.read_stream("task-1", from_version=2, to_version=4)
    page = await log.read_all(after=3, limit=1)

    assert [e.version for e in middle] == [2, 3, 4]
    assert [e.position for e in page] == [4]
    assert await log.read_stream("task-1", from_version=6) == []


async def test_hashes_are_those_that_sha256sum_gives(log: EventLog) -> None:
    # printf '64:000...,1:1,6:task-1,1:1,19:TaskCancelRequested,3:a-1,22:{...},...' | sha256sum
    first = event(id="a-1")
    second = event(events_pb2.TaskCancelRequested(requested_by="Änne"), id="a-2")

    recorded = await log.append(to("task-1", 0, first, second))

    assert [e.hash for e in recorded] == [
        "a40b87afe63bc930e63dd6cca4038978aad6e04870e9696a88af2fb6446b63d1",
        "b38291c1159f9023191f021d197ff5bd93e27073ad1a8dd9060c6cbb76ee7c3c",
    ]


async def test_the_chain_can_be_recomputed_from_what_is_read(log: EventLog) -> None:
    await log.append(to("task-1", 0, epoch(1), event()), to("task-2", 0, epoch(3)))
    await log.append(to("task-1", 2, epoch(2)))

    previous = ZEROS
    for recorded in await log.read_all(after=0):
        previous = _hash_by_the_book(previous, recorded)
        assert recorded.hash == previous
    verified = await log.verify()
    assert (verified.events, verified.head) == (4, Head(4, previous))


def _hash_by_the_book(previous: str, recorded: RecordedEvent) -> str:
    metadata = {
        "time": recorded.time,
        "correlation_id": recorded.correlation_id,
        "causation_id": recorded.causation_id,
        "source": recorded.source,
    }
    digest = hashlib.sha256()
    for field in (
        previous,
        recorded.position,
        recorded.stream,
        recorded.version,
        recorded.type,
        recorded.id,
        canonical_json(to_dict(recorded.data)),
        canonical_json(metadata),
    ):
        text = str(field).encode()
        digest.update(str(len(text)).encode() + b":" + text + b",")
    return digest.hexdigest()


async def test_sixteen_writers_and_a_tailer_that_misses_nothing(log: EventLog) -> None:
    writers, appends = 16, 20
    total = writers * appends * 2
    seen: list[RecordedEvent] = []

    async def write(number: int) -> list[str]:
        ids = []
        for version in range(0, 2 * appends, 2):
            pair = (epoch(version), event())
            await log.append(to(f"task-{number}", version, *pair))
            ids += [e.id for e in pair]
        return ids

    async def follow() -> None:
        while len(seen) < total:
            await log.wait(after=len(seen), timeout_s=0.5)
            seen.extend(await log.read_all(after=len(seen), limit=50))

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        group.create_task(follow())
        tasks = [group.create_task(write(number)) for number in range(writers)]

    assert [e.position for e in seen] == list(range(1, total + 1))
    assert sorted(e.id for e in seen) == sorted(i for task in tasks for i in task.result())
    for number in range(writers):
        versions = [e.version for e in seen if e.stream == f"task-{number}"]
        assert versions == list(range(1, 2 * appends + 1))
    assert (await log.verify()).events == total


async def test_of_two_writers_on_one_stream_one_wins(log: EventLog) -> None:
    results = await asyncio.gather(
        log.append(to("task-1", 0, event(source="a"))),
        log.append(to("task-1", 0, event(source="b"))),
        return_exceptions=True,
    )

    assert sorted(type(result).__name__ for result in results) == ["VersionConflict", "tuple"]
    assert len(await log.read_stream("task-1")) == 1


async def test_a_conflict_says_which_stream_is_where(log: EventLog) -> None:
    await log.append(to("task-1", 0, event(), event()))

    with pytest.raises(VersionConflict) as refused:
        await log.append(to("task-1", 5, event()))

    assert refused.value.details == {
        "stream": "task-1",
        "expected_version": 5,
        "actual_version": 2,
    }


async def test_the_same_append_twice_is_recorded_once(log: EventLog) -> None:
    pair = to("task-1", 0, event(), epoch(1))
    first = await log.append(pair)
    await log.append(to("task-1", 2, event()))

    again = await log.append(pair)
    at_another_version = await log.append(StreamAppend("task-1", 3, pair.events))

    assert again == first
    assert at_another_version == first
    assert (await log.head()).position == 3


async def test_the_same_append_at_the_same_time_is_recorded_once(log: EventLog) -> None:
    pair = to("task-1", 0, event(), epoch(1))

    results = await asyncio.gather(*(log.append(pair) for _ in range(5)))

    assert results == [results[0]] * 5
    assert (await log.head()).position == 2


@pytest.mark.parametrize(
    ("stream", "version", "fields"),
    [
        ("task-2", 0, {}),
        ("task-1", 1, {"data": events_pb2.TaskCancelRequested(requested_by="bob")}),
        ("task-1", 1, {"data": events_pb2.TaskCancelled()}),
        ("task-1", 1, {"time": "2027-01-01T00:00:00Z"}),
        ("task-1", 1, {"correlation_id": "task-2"}),
        ("task-1", 1, {"causation_id": "report-2"}),
        ("task-1", 1, {"source": "elsewhere"}),
        ("task-1", 0, {"source": "elsewhere"}),
    ],
)
async def test_an_id_with_other_content_is_refused(
    log: EventLog, stream: str, version: int, fields: dict[str, object]
) -> None:
    await log.append(to("task-1", 0, event(id="known")))

    with pytest.raises(EventIdReused, match="known"):
        await log.append(to(stream, version, event(id="known", **fields)))

    assert (await log.head()).position == 1


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_known_events_with_a_new_one_among_them_are_refused(
    log: EventLog, version: int
) -> None:
    known = event()
    await log.append(to("task-1", 0, known))

    with pytest.raises(EventIdReused, match="new-one"):
        await log.append(to("task-1", version, known, event(id="new-one")))

    assert (await log.head()).position == 1


async def test_several_streams_are_appended_to_or_none(log: EventLog) -> None:
    await log.append(to("worker-1", 0, event()))

    with pytest.raises(VersionConflict):
        await log.append(to("task-1", 0, event()), to("worker-1", 0, event()))
    assert await log.read_stream("task-1") == []

    recorded = await log.append(to("task-1", 0, event()), to("worker-1", 1, event()))
    assert [(e.stream, e.version, e.position) for e in recorded] == [
        ("task-1", 1, 2),
        ("worker-1", 2, 3),
    ]


async def test_an_append_without_events_only_checks_the_version(log: EventLog) -> None:
    await log.append(to("queue-1", 0, event()))

    assert await log.append(to("queue-1", 1)) == ()
    with pytest.raises(VersionConflict):
        await log.append(to("task-1", 0, event()), to("queue-1", 0))

    assert (await log.head()).position == 1


async def test_any_text_survives(log: EventLog) -> None:
    text = 'nul \x00, escaped \\u0000, quote ", backslash \\, newline \n, 猫 🐈 \u2028'
    failed = event(events_pb2.AttemptFailed(fence=1, failure="killed", detail=text))

    await log.append(to("task-1", 0, failed))

    (read,) = await log.read_stream("task-1")
    assert read.data == failed.data
    assert (await log.verify()).events == 1


def _nonsense() -> list[tuple[StreamAppend, ...]]:
    twin: NewEvent = event()
    return [
        (to("task-1", 0, event()), to("task-1", 1, event())),
        (to("task-1", 0, twin, twin),),
        (to("task-1", -1, event()),),
        (to("task-1", 2**63, event()),),
        (to("", 0, event()),),
        (to("task-\x00", 0, event()),),
        (to("task-1", 0, event(id="")),),
        (to("t" * 501, 0, event()),),
        (to("task-1\ntask-2", 0, event()),),
        (to("task-1", 0, event(id="a\nb")),),
        (to("task-1", 0, *(event() for _ in range(1001))),),
    ]


@pytest.mark.parametrize("appends", _nonsense())
async def test_an_append_that_makes_no_sense_is_refused(
    log: EventLog, appends: tuple[StreamAppend, ...]
) -> None:
    with pytest.raises(ValueError):
        await log.append(*appends)

    assert (await log.head()).position == 0


async def test_waiting_ends_when_an_event_is_appended(log: EventLog) -> None:
    async def wait() -> bool:
        return await log.wait(after=1, timeout_s=DEADLINE_S)

    await log.append(to("task-1", 0, event()))
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait())
        await log.append(to("task-1", 1, event()))

    assert waiting.result() is True
    assert await log.wait(after=1, timeout_s=0) is True


async def test_waiting_ends_when_the_time_has_passed(log: EventLog) -> None:
    await log.append(to("task-1", 0, event()))

    assert await log.wait(after=1, timeout_s=0.05) is False
    assert await log.wait(after=1, timeout_s=0) is False


async def test_a_closed_log_says_that_it_is_unavailable(log: EventLog) -> None:
    await log.close()

    with pytest.raises(LogUnavailable):
        await log.append(to("task-1", 0, event()))
    with pytest.raises(LogUnavailable):
        await log.read_all(after=0)
