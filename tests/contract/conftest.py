"""One PostgreSQL and one RabbitMQ for all tests that need them, empty for each."""

import itertools
import uuid
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from infra.stack.rabbitmq import RabbitNode
from infra.stack.seaweedfs import Weed
from perdure.eventlog.memory import MemoryLog, MemoryReadModels
from perdure.eventlog.port import EventLog, ReadModels
from perdure.eventlog.postgres import PostgresLog, open_postgres
from perdure.runtime.embedded_postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("postgres") / "server"
    with EmbeddedPostgres(folder, durable=False) as server:
        yield server.dsn


async def emptied(server: str) -> str:
    """The address of a database without anything of an earlier test in it.

    A new database for each test would cost 0.2 s, and seconds when the server stops.
    """
    admin = await asyncpg.connect(server)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await admin.execute("DROP SCHEMA IF EXISTS perdure CASCADE")
    await admin.close()
    return server


@pytest.fixture
async def database(postgres_server: str) -> str:
    return await emptied(postgres_server)


@pytest.fixture
async def postgres_log(database: str) -> AsyncIterator[PostgresLog]:
    log, _ = await open_postgres(database)
    yield log
    await log.close()


@pytest.fixture(params=["memory", "postgres"])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[EventLog, ReadModels]]:
    """A log and read models of each backend in turn."""
    if request.param == "memory":
        yield MemoryLog(), MemoryReadModels()
        return
    log, read_models = await open_postgres(
        await emptied(request.getfixturevalue("postgres_server"))
    )
    yield log, read_models
    await log.close()


@pytest.fixture
def log(stores: tuple[EventLog, ReadModels]) -> EventLog:
    return stores[0]


@pytest.fixture
def read_models(stores: tuple[EventLog, ReadModels]) -> ReadModels:
    return stores[1]


@pytest.fixture(scope="session")
def rabbit_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield node


VHOSTS_AT_ONCE = 40  # one by one they would cost a second each


@pytest.fixture(scope="session")
def vhosts(rabbit_node: RabbitNode) -> Iterator[str]:
    """Addresses of virtual hosts with nothing in them, without end."""
    return itertools.chain.from_iterable(
        rabbit_node.add_vhosts([f"test-{batch}-{number}" for number in range(VHOSTS_AT_ONCE)])
        for batch in itertools.count()
    )


@pytest.fixture
def vhost(vhosts: Iterator[str]) -> str:
    """The address of a broker with nothing in it."""
    return next(vhosts)


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weed]:
    server = Weed(tmp_path_factory.mktemp("weed"), None, "the-access-key", "the-secret-key")
    server.start()
    yield server
    server.kill()  # to stop takes seconds, and nothing of it is kept


@pytest.fixture
def s3_url(weed: Weed, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an S3 store with nothing in it: a prefix of its own in a bucket."""
    for name, value in weed.environment.items():
        monkeypatch.setenv(name, value)
    return f"{weed.url}/{uuid.uuid4().hex}"
