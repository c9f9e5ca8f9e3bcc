"""Walks the log once and finds what should not be in it, and what should and is not."""

from collections.abc import Iterable
from typing import Final

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain.dead_letter import dead_letter_stream
from perdure.domain.reconciliation import Findings, Kind
from perdure.domain.task import task_stream
from perdure.domain.task_audit import TaskAudit

_LETTERS: Final = dead_letter_stream("")

# A model or a data set version that a task says it made: (what it is, its id).
_Fact = tuple[str, str]


class LogAudit:
    """Takes all events in order, once: `take` any number of times, then `end`.

    `published` is the position up to which the relay has published. What it keeps grows with the
    number of tasks, models, data set versions and dead letters, not with the number of events.
    """

    def __init__(self, findings: Findings, *, published: int) -> None:
        self.tasks = TaskAudit(findings)
        self.position = 0
        self._findings = findings
        self._published = published
        self._unpublished_since = ""
        self._known: set[_Fact] = set()
        self._promised: dict[_Fact, tuple[str, int]] = {}
        # Highest replay that died, and highest that was made, of each dead letter.
        self._letters: dict[str, tuple[int, int]] = {}

    def take(self, events: Iterable[RecordedEvent]) -> None:
        """The next events."""
        for event in events:
            if event.position != self.position + 1:
                self._missing(self.position + 1, event.position - 1)
            self.position = event.position
            if event.position == self._published + 1:
                self._unpublished_since = event.time
            self.tasks.take(event)
            self._take_fact(event)
            self._take_letter(event)

    def _missing(self, first: int, last: int) -> None:
        told = f"position {first}" if first == last else f"positions {first} to {last}"
        self._findings.add(Kind.EVENTS_MISSING, f"{first}..{last}", f"{told}: not in the log")

    def _take_fact(self, event: RecordedEvent) -> None:
        """A result that a task was told of, and what the log holds of it: both are one append."""
        data = event.data
        match data:
            case events_pb2.DatasetImported():
                self._hold("data set version", data.version)
            case events_pb2.ModelRegistered():
                self._hold("model", data.model_id)
            case events_pb2.AttemptSucceeded() if data.WhichOneof("result") == "prepared":
                self._promise("data set version", data.prepared.dataset_version, event)
            case events_pb2.TaskSucceeded() if data.model_id:
                self._promise("model", data.model_id, event)

    def _hold(self, what: str, fact_id: str) -> None:
        self._known.add((what, fact_id))
        self._promised.pop((what, fact_id), None)

    def _promise(self, what: str, fact_id: str, event: RecordedEvent) -> None:
        if (what, fact_id) not in self._known:
            task_id = event.stream.removeprefix(task_stream(""))
            self._promised.setdefault((what, fact_id), (task_id, event.position))

    def _take_letter(self, event: RecordedEvent) -> None:
        data = event.data
        if not isinstance(data, events_pb2.MessageDeadLettered | events_pb2.MessageReplayed):
            return
        letter_id = event.stream.removeprefix(_LETTERS)
        died, replayed = self._letters.get(letter_id, (0, 0))
        if isinstance(data, events_pb2.MessageDeadLettered):
            died = max(died, data.replay)
        else:
            replayed = max(replayed, data.replay)
        self._letters[letter_id] = (died, replayed)

    def parked(self) -> list[str]:
        """The ids of the dead letters that no replay has settled, oldest first."""
        return [
            letter_id for letter_id, (died, replayed) in self._letters.items() if died >= replayed
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How much there is of what."""
        return {
            "events": self.position,
            **self.tasks.counts,
            "dead_letters": len(self._letters),
            "published": self._published,
        }

    def end(self, *, head: int, now: str) -> None:
        """The log's head is at position `head`, and it is `now`: name what is missing or owed."""
        if self.position < head:
            self._missing(self.position + 1, head)
        for (what, fact_id), (task_id, position) in self._promised.items():
            told = f"its {what} {fact_id}, of position {position}, is not in the log"
            self._findings.add(Kind.FACT_MISSING, task_id, f"task {task_id}: {told}")
        self.tasks.end(now)
        if self._published > head:
            told = f"positions {head + 1} to {self._published} were published, and are not here"
            self._findings.add(Kind.PUBLISHED_UNKNOWN, f"{head + 1}..{self._published}", told)
        elif self._published < head:
            told = f"events not published yet: {head - self._published}"
            since = f"the oldest of {self._unpublished_since}"
            self._findings.add(
                Kind.NOT_PUBLISHED, f"{self._published + 1}..{head}", f"{told}, {since}"
            )
