"""What runs from `start` to `stop`, as a context."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Started(ABC):
    """A `with` block starts it, and stops it at the end, whatever happened."""

    @abstractmethod
    def start(self) -> object:
        """Start it, and return once it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
