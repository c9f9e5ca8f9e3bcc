"""Group commit: what shares a group, what waits, and what happens when writing fails."""

import asyncio
from collections.abc import Sequence

import pytest

from perdure.contracts.envelope import NewEvent
from perdure.errors import LogUnavailable
from perdure.eventlog import group as group_module
from perdure.eventlog.group import GroupCommit, Result
from perdure.eventlog.request import Request, request_of
from tests.builders.events import event, to

DEADLINE_S = 10.0


class Recorder:
    """Stands for the database: notes the groups it is given, as the streams of each request."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.failure: Exception | None = None

    async def write(self, requests: Sequence[Request]) -> list[Result]:
        self.groups.append(["+".join(sorted(request.streams)) for request in requests])
        if self.failure is not None:
            raise self.failure
        return [() for _ in requests]


def request(*streams: str, known: NewEvent | None = None) -> Request:
    return request_of([to(stream, 0, known or event()) for stream in streams])


async def submit_all(recorder: Recorder, requests: Sequence[Request]) -> list[object]:
    group = GroupCommit(recorder.write)
    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(
            *(group.submit(request) for request in requests), return_exceptions=True
        )
        await group.close()
    return list(results)


async def test_requests_that_share_a_stream_go_one_after_the_other() -> None:
    recorder = Recorder()

    await submit_all(
        recorder, [request("a"), request("b"), request("a"), request("a"), request("c")]
    )

    assert recorder.groups == [["a", "b", "c"], ["a"], ["a"]]


async def test_a_request_does_not_overtake_one_that_was_put_off() -> None:
    recorder = Recorder()

    await submit_all(recorder, [request("a"), request("a", "b"), request("b"), request("c")])

    assert recorder.groups == [["a", "c"], ["a+b"], ["b"]]


async def test_requests_that_share_an_event_go_one_after_the_other() -> None:
    recorder, known = Recorder(), event()

    await submit_all(recorder, [request("a", known=known), request("b", known=known)])

    assert recorder.groups == [["a"], ["b"]]


async def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MAX_GROUP_EVENTS", 3)
    recorder = Recorder()

    await submit_all(recorder, [request(f"s{n}") for n in range(7)])

    assert [len(group) for group in recorder.groups] == [3, 3, 1]


async def test_too_many_that_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "MAX_WAITING", 2)
    recorder = Recorder()

    results = await submit_all(recorder, [request(f"s{n}") for n in range(3)])

    assert [type(result) for result in results] == [tuple, tuple, LogUnavailable]


async def test_an_outage_reaches_everyone_in_the_group_and_nobody_else() -> None:
    recorder = Recorder()
    recorder.failure = LogUnavailable("away")
    group = GroupCommit(recorder.write)

    failed = await asyncio.gather(
        group.submit(request("a")), group.submit(request("b")), return_exceptions=True
    )
    recorder.failure = None
    succeeded = await group.submit(request("a"))
    await group.close()

    assert [type(result) for result in failed] == [LogUnavailable, LogUnavailable]
    assert failed[0] is not failed[1]
    assert succeeded == ()


async def test_a_mistake_in_the_writer_leaves_nobody_waiting() -> None:
    recorder = Recorder()
    recorder.failure = RuntimeError("a mistake")
    group = GroupCommit(recorder.write)

    async with asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(
            group.submit(request("a")), group.submit(request("a")), return_exceptions=True
        )
    assert [type(result) for result in results] == [LogUnavailable, LogUnavailable]
    with pytest.raises(LogUnavailable):
        await group.submit(request("b"))
    with pytest.raises(RuntimeError, match="a mistake"):
        await group.close()
