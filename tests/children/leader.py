"""A process that stands by, and acts while it leads: each act is a line with the time.

python -m tests.children.leader DSN ROLE IDLE_S
"""

import asyncio
import sys
import time

from perdure.eventlog import leadership
from perdure.eventlog.leadership import Leadership, while_leading

PAUSE_S = 0.01


async def stand_by(dsn: str, role: str) -> None:
    known = Leadership()

    async def act(ending: asyncio.Event) -> None:
        while not ending.is_set():
            if await known.held():
                print(time.monotonic(), "acts", flush=True)
            else:
                print(time.monotonic(), "may not", flush=True)
            await asyncio.sleep(PAUSE_S)
        print(time.monotonic(), "ends", flush=True)

    await while_leading(dsn, role, act, asyncio.Event(), known)


if __name__ == "__main__":
    leadership.IDLE_S = float(sys.argv[3])  # type: ignore[misc]
    asyncio.run(stand_by(sys.argv[1], sys.argv[2]))
