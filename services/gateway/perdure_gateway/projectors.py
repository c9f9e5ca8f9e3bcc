"""Keeps the gateway's read models up to date while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.errors import PerdureError
from perdure.eventlog.port import EventLog, ReadModels
from perdure.eventlog.projector import Projector
from perdure_gateway.projections import PROJECTIONS

_logger = logging.getLogger(__name__)


class Projectors:
    """One projector for each read model."""

    def __init__(self, log: EventLog, read_models: ReadModels) -> None:
        self._projectors = {
            name: Projector(log, read_models, name, fold) for name, fold in PROJECTIONS.items()
        }
        self._failures: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run them all within the block."""
        tasks = [
            asyncio.create_task(self._run(name, projector), name=f"projection {name}")
            for name, projector in self._projectors.items()
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self, name: str, position: int, timeout_s: float) -> None:
        """Wait until projection `name` contains the event at `position`, `timeout_s` at most."""
        if name in self._failures:
            return  # it will not move any more; /healthz says so
        if not await self._projectors[name].reached(position, timeout_s=timeout_s):
            _logger.warning("projection %s is behind position %d", name, position)

    def check(self) -> None:
        """Raise when a projection has stopped for good: what it shows is out of date."""
        if self._failures:
            told = "; ".join(f"{name}: {reason}" for name, reason in self._failures.items())
            raise PerdureError(f"projections have stopped: {told}. The server's log says more")

    async def _run(self, name: str, projector: Projector) -> None:
        try:
            await projector.run()
        except Exception as error:  # recorded here: the audit routes must go on answering
            _logger.exception("projection %s has stopped", name)
            self._failures[name] = f"{type(error).__name__}: {error}"
