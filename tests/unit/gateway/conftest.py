"""A gateway within the test's own event loop."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.builders.gateway import World


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


@pytest.fixture
async def http(world) -> AsyncIterator[httpx.AsyncClient]:
    app = world.app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client
    await world.bus.close()
