"""Waiting: for one of several things, or not for too long."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of `coroutines` is done, and end the others.

    Raises what the first one raised.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait until `event` is set; False when `timeout_s` passed first."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
