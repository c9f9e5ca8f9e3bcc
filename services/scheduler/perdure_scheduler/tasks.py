"""The tasks that have not ended, as the log tells them, and the one way to change them: decide,
append, evolve.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from perdure.contracts.envelope import NewEvent, RecordedEvent, derived_id
from perdure.contracts.v1 import events_pb2
from perdure.domain.task import TaskState, task_stream
from perdure.domain.task_decisions import Command, decide
from perdure.domain.task_evolution import evolve, replay
from perdure.errors import EventIdReused, VersionConflict
from perdure.eventlog.port import EventLog, StreamAppend
from perdure.eventlog.tail import check_follows
from perdure.runtime.clock import Clock
from perdure.telemetry import tracing
from perdure.telemetry.metrics import ATTEMPTS_ENDED

log = logging.getLogger(__name__)

SOURCE: Final = "scheduler"
READ_BATCH: Final = 1000
# Only the gateway appends to the same streams (a cancel), so that a second try nearly always
# succeeds.
MAX_TRIES: Final = 10


@dataclass(frozen=True)
class SideFact:
    """An event about a data set or a model that is recorded together with a task's event."""

    stream: str
    event: Message


class Tasks:
    """All live tasks.

    Not safe for use from two asyncio tasks at once: the scheduler holds its lock.
    """

    def __init__(self, eventlog: EventLog, clock: Clock) -> None:
        self._log = eventlog
        self._clock = clock
        self._live: dict[str, TaskState] = {}
        self._position = 0

    def __iter__(self) -> Iterator[TaskState]:
        """The live tasks, oldest first."""
        return iter(list(self._live.values()))

    @property
    def position(self) -> int:
        """The log position up to which the tasks are known."""
        return self._position

    async def catch_up(self) -> None:
        """Take in what others have appended."""
        while True:
            events = await self._log.read_all(after=self._position, limit=READ_BATCH)
            check_follows(events, self._position)
            for event in events:
                self._take_in(event)
                self._position = event.position
            if len(events) < READ_BATCH:
                return

    async def get(self, task_id: str) -> TaskState | None:
        """One task, live or ended."""
        if task_id in self._live:
            return self._live[task_id]
        return replay(await self._log.read_stream(task_stream(task_id)))

    async def execute(
        self, task_id: str, command: Command, *, cause: str, facts: tuple[SideFact, ...] = ()
    ) -> tuple[TaskState | None, tuple[RecordedEvent, ...]]:
        """Decide on `command`, append what follows, and give the task's new state and its new
        events.

        `cause` is the id of the report or event that led to it: the same cause again appends
        nothing. `facts` are appended with the events, and only when there are events. Raises
        Conflict as `decide` does.
        """
        for _ in range(MAX_TRIES):
            state = await self.get(task_id)
            decided = decide(state, command)
            if not decided:
                return state, ()
            appends = self._appends(task_id, state, decided, cause)
            appends += await self._side_appends(task_id, facts, cause, first=len(decided))
            try:
                recorded = await self._log.append(*appends)
            except VersionConflict:
                await self.catch_up()
                continue
            except EventIdReused:  # the same cause was handled before, up to its effect
                await self.catch_up()
                return await self.get(task_id), ()
            mine = tuple(e for e in recorded if e.stream == task_stream(task_id))
            for event in mine:
                state = evolve(state, event)
                self._take_in(event)
                _count(state, event)
            return state, mine
        raise VersionConflict(f"task {task_id} is changed by others all the time")

    def _appends(
        self, task_id: str, state: TaskState | None, decided: tuple[Message, ...], cause: str
    ) -> tuple[StreamAppend, ...]:
        events = tuple(self._event(task_id, m, cause, i) for i, m in enumerate(decided))
        return (StreamAppend(task_stream(task_id), state.version if state else 0, events),)

    async def _side_appends(
        self, task_id: str, facts: tuple[SideFact, ...], cause: str, first: int
    ) -> tuple[StreamAppend, ...]:
        """The facts that their streams do not hold yet."""
        by_stream: dict[str, list[Message]] = {}
        for fact in facts:
            by_stream.setdefault(fact.stream, []).append(fact.event)
        appends = []
        index = first
        for stream, messages in by_stream.items():
            known = await self._log.read_stream(stream)
            events = []
            for message in messages:
                if not any(e.data == message for e in known):
                    events.append(self._event(task_id, message, cause, index))
                index += 1
            if events:
                appends.append(StreamAppend(stream, len(known), tuple(events)))
        return tuple(appends)

    def _event(self, task_id: str, message: Message, cause: str, index: int) -> NewEvent:
        return NewEvent(
            id=derived_id(f"{task_id}/{cause}", index),
            data=message,
            time=self._clock.now(),
            correlation_id=task_id,
            causation_id=cause,
            source=SOURCE,
            traceparent=tracing.traceparent(),
        )

    def _take_in(self, event: RecordedEvent) -> None:
        task_id = event.stream.removeprefix("task-")
        if event.stream == task_id:
            return  # not a task's stream
        state = self._live.get(task_id)
        if event.version != (state.version if state else 0) + 1:
            return  # known already, or about a task that has ended
        state = evolve(state, event)
        if state.ended:
            self._live.pop(task_id, None)
        else:
            self._live[task_id] = state


def _count(state: TaskState, event: RecordedEvent) -> None:
    """Count an attempt that ended."""
    match event.data:
        case events_pb2.AttemptSucceeded() as ended:
            outcome, failure = "succeeded", ""
        case events_pb2.AttemptFailed() as ended:
            outcome, failure = "failed", ended.failure
        case _:
            return
    attempt = state.attempt(ended.fence)
    stage = attempt.stage if attempt else ""
    ATTEMPTS_ENDED.add(1, {"stage": stage, "outcome": outcome, "failure": failure})
