"""What read models promise, on each backend, and what a projector makes of them."""

import asyncio
from typing import Any

import pytest

from perdure.contracts.envelope import RecordedEvent
from perdure.eventlog.port import Document, EventLog, ReadModels
from perdure.eventlog.projector import Fold, Projector
from tests.builders.events import epoch, event, to

DEADLINE_S = 30.0


def document(key: str, created: int, **body: Any) -> Document:
    return Document(key, created, body)


async def test_documents_and_checkpoint_move_together(read_models: ReadModels) -> None:
    body = {"state": "running", "epochs": [1, 2], "loss": 0.5, "detail": "nul \x00", "none": None}

    moved = await read_models.commit(
        "tasks", expected=0, position=4, documents=[Document("t", 3, body)]
    )

    assert moved is True
    assert await read_models.position("tasks") == 4
    assert await read_models.get("tasks", "t") == Document("t", 3, body)
    assert await read_models.get("tasks", "other") is None
    assert await read_models.get("models", "t") is None
    assert await read_models.position("models") == 0


@pytest.mark.parametrize("expected", [0, 3, 5])
async def test_a_commit_from_another_checkpoint_writes_nothing(
    read_models: ReadModels, expected: int
) -> None:
    await read_models.commit("tasks", expected=0, position=4)

    moved = await read_models.commit(
        "tasks", expected=expected, position=9, documents=[document("t", 9)]
    )

    assert moved is False
    assert await read_models.position("tasks") == 4
    assert await read_models.get("tasks", "t") is None


async def test_a_commit_cannot_begin_in_the_middle(read_models: ReadModels) -> None:
    assert await read_models.commit("tasks", expected=2, position=3) is False
    assert await read_models.position("tasks") == 0


async def test_of_two_commits_at_the_same_time_one_wins(read_models: ReadModels) -> None:
    commits = [
        read_models.commit("tasks", expected=0, position=n, documents=[document("t", n)])
        for n in range(1, 9)
    ]

    results = await asyncio.gather(*commits)

    assert sorted(results) == [False] * 7 + [True]
    position = await read_models.position("tasks")
    assert await read_models.get("tasks", "t") == document("t", position)


async def test_a_document_is_replaced_by_the_last_one_of_its_key(read_models: ReadModels) -> None:
    await read_models.commit("tasks", expected=0, position=1, documents=[document("t", 1, a=1)])
    await read_models.commit(
        "tasks", expected=1, position=2, documents=[document("t", 1, b=1), document("t", 1, c=1)]
    )

    assert await read_models.get("tasks", "t") == document("t", 1, c=1)


async def test_documents_are_found_newest_first(read_models: ReadModels) -> None:
    states = ["done", "running", "done", "done", "failed"]
    documents = [document(f"t{n}", n, state=state, n=n) for n, state in enumerate(states, 1)]
    await read_models.commit("tasks", expected=0, position=5, documents=documents)
    await read_models.commit("models", expected=0, position=5, documents=[document("m", 9)])

    async def keys(**query: Any) -> list[str]:
        return [found.key for found in await read_models.find("tasks", **query)]

    assert await keys() == ["t5", "t4", "t3", "t2", "t1"]
    assert await keys(limit=2) == ["t5", "t4"]
    assert await keys(before=3) == ["t2", "t1"]
    assert await keys(where={"state": "done"}) == ["t4", "t3", "t1"]
    assert await keys(where={"state": "done"}, before=4, limit=1) == ["t3"]
    assert await keys(where={"state": "gone"}) == []
    assert await keys(where={"n": "1"}) == []  # the number 1 is not the text "1"
    assert await keys(where={"state": "done", "other": "x"}) == []


async def test_a_document_that_was_given_out_is_a_copy(read_models: ReadModels) -> None:
    body = {"epochs": [1]}
    await read_models.commit("tasks", expected=0, position=1, documents=[Document("t", 1, body)])
    body["epochs"].append(2)

    found = await read_models.get("tasks", "t")
    assert found is not None
    found.body["epochs"].append(3)

    assert await read_models.get("tasks", "t") == document("t", 1, epochs=[1])


async def test_a_projection_can_be_dropped(read_models: ReadModels) -> None:
    await read_models.commit("tasks", expected=0, position=2, documents=[document("t", 1)])
    await read_models.commit("models", expected=0, position=2, documents=[document("m", 1)])

    await read_models.reset("tasks")

    assert await read_models.position("tasks") == 0
    assert await read_models.find("tasks") == []
    assert await read_models.get("models", "m") == document("m", 1)


def _count_epochs(body: dict[str, Any] | None, recorded: RecordedEvent) -> dict[str, Any]:
    body = body or {"positions": []}
    body["positions"].append(recorded.position)
    return body


COUNT = Fold(key_of=lambda e: e.stream if e.type == "EpochCompleted" else None, apply=_count_epochs)


async def test_projectors_that_race_take_every_event_in_once(
    stores: tuple[EventLog, ReadModels],
) -> None:
    log, read_models = stores
    projectors = [Projector(log, read_models, "epochs", COUNT) for _ in range(2)]
    runs = [asyncio.create_task(projector.run()) for projector in projectors]
    for version in range(0, 200, 2):
        await log.append(
            to("task-1", version, epoch(version), event()), to("task-2", version, event(), epoch(1))
        )

    async with asyncio.timeout(DEADLINE_S):
        assert await projectors[0].reached(400, timeout_s=DEADLINE_S)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)

    assert await read_models.get("epochs", "task-1") == document(
        "task-1", 1, positions=list(range(1, 400, 4))
    )
    assert await read_models.get("epochs", "task-2") == document(
        "task-2", 4, positions=list(range(4, 401, 4))
    )


async def test_a_projector_goes_on_from_the_checkpoint(
    stores: tuple[EventLog, ReadModels],
) -> None:
    log, read_models = stores
    await log.append(to("task-1", 0, epoch(1)))
    assert await Projector(log, read_models, "epochs", COUNT).step(idle_s=0) is True

    await log.append(to("task-1", 1, event(), epoch(2)))
    later = Projector(log, read_models, "epochs", COUNT)
    assert await later.step(idle_s=0) is True
    assert await later.step(idle_s=0) is False

    assert await read_models.get("epochs", "task-1") == document("task-1", 1, positions=[1, 3])
    assert await read_models.position("epochs") == 3


async def test_a_dropped_projection_is_built_again(stores: tuple[EventLog, ReadModels]) -> None:
    log, read_models = stores
    projector = Projector(log, read_models, "epochs", COUNT)
    await log.append(to("task-1", 0, epoch(1), epoch(2)))
    await projector.step(idle_s=0)

    await read_models.reset("epochs")
    await projector.step(idle_s=0)

    assert await read_models.get("epochs", "task-1") == document("task-1", 1, positions=[1, 2])


async def test_reached_gives_up_in_time(stores: tuple[EventLog, ReadModels]) -> None:
    log, read_models = stores
    projector = Projector(log, read_models, "epochs", COUNT)

    assert await projector.reached(0, timeout_s=0) is True
    assert await projector.reached(1, timeout_s=0.05) is False
