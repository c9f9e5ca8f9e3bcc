"""Saying that an answer is long in coming, before anybody thinks that nothing happens."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

# Nearly every answer comes within it; people begin to wonder after it.
NOTICE_AFTER_S: Final = 3.0

# Called, from a thread of its own, with the server's URL.
OnWait = Callable[[str], None]


class Notice:
    """Within its block, calls `on_wait` once when nothing has come for NOTICE_AFTER_S."""

    def __init__(self, on_wait: OnWait | None, url: str) -> None:
        self._on_wait = on_wait
        self._url = url
        self._timer: threading.Timer | None = None
        self._given = threading.Event()

    def __enter__(self) -> Self:
        self.postpone()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.end()

    def postpone(self) -> None:
        """Something has moved: begin to wait anew."""
        self.end()
        if self._on_wait is not None and not self._given.is_set():
            self._timer = threading.Timer(NOTICE_AFTER_S, self._give, (self._on_wait,))
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """The answer is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give(self, on_wait: OnWait) -> None:
        self._given.set()
        on_wait(self._url)
