"""Named points at which a process can be made to die, to prove that what follows is recovered.

`PERDURE_CRASH_AT=relay.published` kills the process with SIGKILL when it first gets to that point;
`relay.published:3` the third time. Without the variable a point costs a comparison.
"""

import os
import re
import signal
from typing import Final

VARIABLE: Final = "PERDURE_CRASH_AT"

POINTS: Final = frozenset(
    {
        "cache.built",
        "cache.copied",
        "consumer.handled",
        "gateway.appended",
        "keeper.recorded",
        "relay.checkpointed",
        "relay.published",
        "relay.read",
        "replay.published",
        "scheduler.answered",
        "scheduler.assigned",
        "scheduler.offered",
        "scheduler.recorded",
        "worker.accepted",
        "worker.ended",
        "worker.sent",
        "worker.spooled",
    }
)
_FORM: Final = re.compile(r"(?P<point>[^:]*)(:(?P<times>[1-9][0-9]{0,8}))?")


def parse(text: str) -> tuple[str, int]:
    """The point that a value of PERDURE_CRASH_AT names, and how often it is to be reached.

    Raises ValueError, which says what the value has to be, for one that would kill nobody.
    """
    found = _FORM.fullmatch(text)
    if found is None or found["point"] not in POINTS:
        raise ValueError(
            f"it has to be one of {', '.join(sorted(POINTS))}; behind it can stand :N for the "
            "Nth time"
        )
    return found["point"], int(found["times"] or 1)


def _armed() -> tuple[str, int]:
    try:
        return parse(os.environ.get(VARIABLE, ""))
    except ValueError:  # nothing, or what `read_settings` refuses when a service starts
        return "", 0


_point, _left = _armed()


def reached(point: str) -> None:
    """Die here, when this is the point that PERDURE_CRASH_AT names."""
    global _left  # noqa: PLW0603 - one process, one crash
    if point != _point:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
