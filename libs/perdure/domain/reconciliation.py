"""What is found when everything that is kept is held against the log."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# Of one kind, more than these say nothing new; they are counted.
MAX_LISTED: Final = 100


class Category(StrEnum):
    """What a finding comes to."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    DIFFERS = "differs"
    PARKED = "parked"
    OWED = "owed"
    UNCHECKED = "unchecked"


# For people, one line each.
EXPLAINED: Final[dict[Category, str]] = {
    Category.LOST: "it was there, and is not in the log any more",
    Category.DUPLICATED: "it took effect more than once",
    Category.DIFFERS: "something built from the log says something else than the log",
    Category.PARKED: "a message failed for good: a person has to decide",
    Category.OWED: "not done yet; it will be done by itself, which is no fault",
    Category.UNCHECKED: "could not be looked at, so nobody knows whether it is in order",
}


class Kind(StrEnum):
    """A kind of finding."""

    LOG_DAMAGED = "log-damaged"
    EVENTS_MISSING = "events-missing"
    PUBLISHED_UNKNOWN = "published-unknown"
    READ_MODEL_AHEAD = "read-model-ahead"
    REPORT_MISSING = "report-missing"
    FACT_MISSING = "fact-missing"
    MESSAGE_TWICE = "message-twice"
    PROGRESS_TWICE = "progress-twice"
    ATTEMPT_ENDED_TWICE = "attempt-ended-twice"
    STAGE_SUCCEEDED_TWICE = "stage-succeeded-twice"
    TASK_ENDED_TWICE = "task-ended-twice"
    FENCE_BROKEN = "fence-broken"
    TASK_UNREADABLE = "task-unreadable"
    READ_MODEL_DIFFERS = "read-model-differs"
    DEAD_LETTER = "dead-letter"
    TASK_WAITS = "task-waits"
    NOT_PUBLISHED = "not-published"
    NOT_KEPT = "not-kept"
    READ_MODEL_BEHIND = "read-model-behind"
    BROKER_AWAY = "broker-away"


@dataclass(frozen=True)
class Meaning:
    """What a kind comes to, and the next step for a person. `{}` in it is the finding's subject."""

    category: Category
    advice: str


_TWICE: Final = "see: perdure audit events {}; one of them must not count: report it as a bug"

MEANINGS: Final[dict[Kind, Meaning]] = {
    Kind.LOG_DAMAGED: Meaning(
        Category.LOST, "trust nothing from there on; compare with a backup or an export"
    ),
    Kind.EVENTS_MISSING: Meaning(
        Category.LOST, "restore them from a backup or an export: nothing else holds them"
    ),
    Kind.PUBLISHED_UNKNOWN: Meaning(
        Category.LOST,
        "the log was cut off, or restored from an older backup: restore the newer one. If there "
        "is none, run SELECT perdure.reset_projection('relay'): until then nothing is published",
    ),
    Kind.READ_MODEL_AHEAD: Meaning(
        Category.LOST,
        "the log was cut off, or restored from an older backup: restore the newer one. If there "
        "is none, run SELECT perdure.reset_projection('{}'): it is built anew",
    ),
    Kind.REPORT_MISSING: Meaning(
        Category.LOST,
        "look for its report: perdure audit dead-letters ls; then: perdure audit events {}",
    ),
    Kind.FACT_MISSING: Meaning(
        Category.LOST, "see: perdure audit events {}; submit the task again to have it whole"
    ),
    Kind.MESSAGE_TWICE: Meaning(Category.DUPLICATED, _TWICE),
    Kind.PROGRESS_TWICE: Meaning(Category.DUPLICATED, _TWICE),
    Kind.ATTEMPT_ENDED_TWICE: Meaning(Category.DUPLICATED, _TWICE),
    Kind.STAGE_SUCCEEDED_TWICE: Meaning(Category.DUPLICATED, _TWICE),
    Kind.TASK_ENDED_TWICE: Meaning(Category.DUPLICATED, _TWICE),
    Kind.FENCE_BROKEN: Meaning(Category.DUPLICATED, _TWICE),
    Kind.TASK_UNREADABLE: Meaning(
        Category.DIFFERS,
        "see: perdure audit events {}; run the newest version of Perdure, or report it as a bug",
    ),
    Kind.READ_MODEL_DIFFERS: Meaning(
        Category.DIFFERS,
        "believe: perdure audit replay {}; run SELECT perdure.reset_projection('tasks'), and it "
        "is built anew",
    ),
    Kind.DEAD_LETTER: Meaning(Category.PARKED, "see: perdure audit dead-letters show {}"),
    Kind.TASK_WAITS: Meaning(
        Category.OWED,
        "see that a scheduler and a worker for the stage run; see: perdure task show {}",
    ),
    Kind.NOT_PUBLISHED: Meaning(Category.OWED, "see that the relay runs: perdure relay status"),
    Kind.NOT_KEPT: Meaning(Category.OWED, "see that a scheduler runs: it moves them into the log"),
    Kind.READ_MODEL_BEHIND: Meaning(
        Category.OWED, "see whether it stands still: the gateway's /healthz and its log say why"
    ),
    Kind.BROKER_AWAY: Meaning(
        Category.UNCHECKED,
        "dead letters may wait there: see that the broker runs, then reconcile again",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One thing that was found. `subject` is what it is about: a task, a dead letter, a range of
    positions, a read model; `detail` says what is wrong with it.
    """

    kind: Kind
    subject: str
    detail: str

    @property
    def category(self) -> Category:
        """What it comes to."""
        return MEANINGS[self.kind].category

    @property
    def advice(self) -> str:
        """The next step for a person."""
        return MEANINGS[self.kind].advice.replace("{}", self.subject)


class Findings:
    """All that was found: counted, and listed up to MAX_LISTED of each kind."""

    def __init__(self) -> None:
        self._listed: dict[Kind, list[Finding]] = {}
        self._counts: Counter[Kind] = Counter()

    def add(self, kind: Kind, subject: str, detail: str) -> None:
        """Take in one more."""
        self._counts[kind] += 1
        listed = self._listed.setdefault(kind, [])
        if len(listed) < MAX_LISTED:
            listed.append(Finding(kind, subject, detail))

    def __iter__(self) -> Iterator[Finding]:
        """Those that are listed, the worst kinds first."""
        for kind in Kind:
            yield from self._listed.get(kind, ())

    def count(self, category: Category) -> int:
        """How many of this category there are, listed or not."""
        return sum(n for kind, n in self._counts.items() if MEANINGS[kind].category is category)

    def to_json(self) -> dict[str, Any]:
        """`ok` (all was looked at, and there is nothing but what is owed), counts by category,
        findings, and how many are not listed.
        """
        counts = {category.value: self.count(category) for category in Category}
        listed = [
            {
                "kind": finding.kind.value,
                "category": finding.category.value,
                "subject": finding.subject,
                "detail": finding.detail,
                "advice": finding.advice,
            }
            for finding in self
        ]
        return {
            "ok": sum(counts.values()) == counts[Category.OWED],
            "counts": counts,
            "findings": listed,
            "not_listed": sum(counts.values()) - len(listed),
        }
