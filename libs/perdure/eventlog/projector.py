"""Builds a read model from the log, and keeps it up."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from perdure.contracts.envelope import RecordedEvent
from perdure.errors import LogUnavailable
from perdure.eventlog.backoff import retry_delays
from perdure.eventlog.port import Document, EventLog, ReadModels
from perdure.eventlog.tail import check_follows

BATCH_EVENTS = 500
IDLE_S = 5.0  # how often an idle projector looks whether its projection was reset
POLL_S = 0.05  # how late, at most, `reached` sees what a projector in another process did

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fold:
    """How events become documents: pure functions.

    `key_of` names the document that an event belongs to, None for an event that does not matter.
    `apply` gives the document's body after the event, from the body before (None: there is none
    yet), which it may change in place.
    """

    key_of: Callable[[RecordedEvent], str | None]
    apply: Callable[[dict[str, Any] | None, RecordedEvent], dict[str, Any]]


class Projector:
    """Builds the projection `name`. Several may run for one: each event takes effect once."""

    def __init__(self, log: EventLog, read_models: ReadModels, name: str, fold: Fold) -> None:
        self._log = log
        self._read_models = read_models
        self._name = name
        self._fold = fold
        self._moved = asyncio.Event()

    async def run(self) -> NoReturn:
        """Follow the log until cancelled. While it does not answer, try again with growing delays.

        Raises DamagedLog for a hole in the log, and whatever the fold raises.
        """
        delays = retry_delays()
        while True:
            try:
                await self.step(idle_s=IDLE_S)
                delays = retry_delays()
            except LogUnavailable as error:
                delay_s = next(delays)
                _logger.warning(
                    "projection %s stands still, next try in %g s: %s",
                    self._name,
                    delay_s,
                    error.message,
                )
                await asyncio.sleep(delay_s)

    async def step(self, *, idle_s: float) -> bool:
        """Take in the next events, if need be after waiting for some up to `idle_s`. False: there
        were none.

        It starts from the checkpoint every time, so that it does not matter who moved it.
        """
        position = await self._read_models.position(self._name)
        events = await self._log.read_all(after=position, limit=BATCH_EVENTS)
        if not events:
            await self._log.wait(after=position, timeout_s=idle_s)
            return False
        check_follows(events, position)
        documents = await self._apply(events)
        # When another projector was first, this writes nothing, and the next step goes on from
        # where that one got.
        await self._read_models.commit(
            self._name, expected=position, position=events[-1].position, documents=documents
        )
        self._moved.set()
        self._moved = asyncio.Event()
        return True

    async def reached(self, position: int, *, timeout_s: float) -> bool:
        """Wait until the projection contains all events up to `position`. False when `timeout_s`
        passed first.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            moved = self._moved  # taken before looking: nothing falls in between
            if await self._read_models.position(self._name) >= position:
                return True
            left_s = deadline - loop.time()
            if left_s <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, POLL_S)):
                    await moved.wait()

    async def _apply(self, events: Sequence[RecordedEvent]) -> list[Document]:
        """The documents that `events` touch, as they are afterwards."""
        documents: dict[str, Document] = {}
        for event in events:
            key = self._fold.key_of(event)
            if key is None:
                continue
            before = documents.get(key) or await self._read_models.get(self._name, key)
            documents[key] = Document(
                key=key,
                created=before.created if before else event.position,
                body=self._fold.apply(before.body if before else None, event),
            )
        return list(documents.values())
