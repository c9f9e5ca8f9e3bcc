"""What holds for every answer: it says whose it is, and it begins in time."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

from fastapi import Depends, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import perdure
from perdure.errors import LogUnavailable, StoreUnavailable, Unavailable
from perdure.runtime.health import Checks
from perdure_gateway.guard import BLOBS_PATH, UPLOAD_PATH
from perdure_gateway.problems import problem_from

# The client tells Perdure from other servers by it.
VERSION_HEADER: Final = "Perdure-Version"
# A read takes milliseconds, and waits 2 s at most for its projection; what the database or the
# store have not answered by then they will hardly answer. The client waits for 15 s.
ANSWER_TIMEOUT_S: Final = 8.0
# What works for as long as the log or the body is long, or waits for a broker's confirm. What these
# need is asked for before they begin: NEEDS_DATABASE, NEEDS_STORE.
LONG_PATHS: Final = (UPLOAD_PATH, "/v1/audit/verify", "/v1/audit/reconcile")
LONG_PATHS_BEGIN: Final = BLOBS_PATH
LONG_PATHS_END: Final = "/replay"

_logger = logging.getLogger(__name__)


class Answering:
    """ASGI middleware that names the server in every answer, and answers 503 for a route that has
    not begun to within ANSWER_TIMEOUT_S.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        path: str = scope["path"]
        if path in LONG_PATHS or path.startswith(LONG_PATHS_BEGIN) or path.endswith(LONG_PATHS_END):
            await self._app(scope, receive, answer.send)
            return
        route = asyncio.create_task(self._route(scope, receive, answer), name=f"answer {path}")
        try:
            await asyncio.wait(
                {route, answer.begun}, timeout=ANSWER_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if route.done() or answer.begun.done():
                await asyncio.wait({route})
            else:
                await _give_up(scope, receive, answer)
        finally:
            route.cancel()
            await asyncio.wait({route})
        if not route.cancelled():
            route.result()

    async def _route(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        await self._app(scope, receive, answer.send)


async def _give_up(scope: Scope, receive: Receive, answer: "_Answer") -> None:
    asked = f"{scope['method']} {scope['path']}"
    _logger.error("%s was given up: no answer in %g s", asked, ANSWER_TIMEOUT_S)
    done = "" if scope["method"] == "GET" else "; it may have been done all the same"
    error = Unavailable(
        f"the server gave {asked} up after {ANSWER_TIMEOUT_S:g} s: its database or object store "
        f"hangs (its /readyz says which). Try again when that is mended{done}"
    )
    answer.given_up = True
    await problem_from(error)(scope, receive, answer.send_last)


@dataclass
class _Answer:
    """The way back to the client. Of a route that was given up nothing comes through any more."""

    to_client: Send
    begun: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    given_up: bool = False

    async def send(self, message: Message) -> None:
        if not self.given_up:
            await self.send_last(message)

    async def send_last(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)[VERSION_HEADER] = perdure.__version__
            if not self.begun.done():
                self.begun.set_result(None)
        await self.to_client(message)


async def _database_answers(request: Request) -> None:
    needed: Checks = request.app.state.database
    for found in (await needed.results()).values():
        if not found["ok"]:
            raise LogUnavailable(f"the database is not ready: {found['detail']}; {_THEN}")


async def _store_answers(request: Request) -> None:
    needed: Checks = request.app.state.store
    for found in (await needed.results()).values():
        if not found["ok"]:
            raise StoreUnavailable(f"the object store is not ready: {found['detail']}; {_THEN}")


_THEN: Final = "nothing was begun; try again when it answers"
# For routes without a time limit: within 3 s they know that it is no use to begin.
NEEDS_DATABASE: Final = Depends(_database_answers)
NEEDS_STORE: Final = Depends(_store_answers)
