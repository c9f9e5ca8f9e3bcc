"""Named points at which a process can be made to die, to prove that what follows is recovered.

`PERDURE_CRASH_AT=relay.published` kills the process with SIGKILL when it first gets to that point;
`relay.published:3` the third time. Without the variable a point costs a comparison.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "PERDURE_CRASH_AT"

_point, _, _times = os.environ.get(VARIABLE, "").partition(":")
_left = int(_times or 1)


def reached(point: str) -> None:
    """Die here, when this is the point that PERDURE_CRASH_AT names."""
    global _left  # noqa: PLW0603 - one process, one crash
    if point != _point:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
