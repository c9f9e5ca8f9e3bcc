"""An app on a port: when it is taken, when it is given back."""

import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from infra.stack.ports import free_port
from perdure.errors import AlreadyRunning
from perdure.runtime.http_server import HttpServer


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def app(lifespan=None) -> Starlette:
    return Starlette(routes=[Route("/", hello)], lifespan=lifespan)


async def answer(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(url)).text


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_app_answers_from_start_to_stop(host: str) -> None:
    server = HttpServer(app(), host=host, port=0)
    url = await server.start()
    assert url == server.url
    assert await answer(url) == "hello"
    await server.stop()
    with pytest.raises(httpx.ConnectError):
        await answer(url)


async def test_a_port_is_taken_before_anybody_is_answered() -> None:
    port = free_port()
    first = HttpServer(app(), host="127.0.0.1", port=port)
    first.take_port()
    with pytest.raises(httpx.ConnectError):  # refused, and not left waiting
        await answer(f"http://127.0.0.1:{port}")
    await first.start()
    second = HttpServer(app(), host="127.0.0.1", port=port)
    with pytest.raises(AlreadyRunning, match=f"127.0.0.1:{port}: Address already in use"):
        await second.start()
    await second.stop()
    assert await answer(first.url) == "hello"
    await first.stop()


async def test_an_app_that_does_not_start_gives_the_port_back_and_says_why() -> None:
    @contextlib.asynccontextmanager
    async def fails(_app: Starlette) -> AsyncIterator[None]:
        raise LookupError("no broker")
        yield

    port = free_port()
    server = HttpServer(app(fails), host="127.0.0.1", port=port)
    with pytest.raises(LookupError, match="no broker"):
        await server.start()
    with socket.create_server(("127.0.0.1", port)):
        pass
