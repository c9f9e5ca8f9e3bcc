"""Time and ids, as ports, so that a simulation can pass in its own."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> str:
        """The time of day: RFC 3339, UTC, microseconds."""

    def monotonic(self) -> float:
        """Seconds that only rise, for measuring how long something lasts."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> str:
        """The time of day: RFC 3339, UTC, microseconds."""
        return datetime.now(UTC).isoformat(timespec="microseconds")

    def monotonic(self) -> float:
        """Seconds that only rise."""
        return time.monotonic()


NewId = Callable[[], str]


def new_id() -> str:
    """A random id: 64 bits, 16 hex digits."""
    return secrets.token_hex(8)
