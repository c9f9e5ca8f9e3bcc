"""Waiting for one of several things."""

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
