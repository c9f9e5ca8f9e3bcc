"""Connections to the log's database, and what its errors mean to the rest of Perdure."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import asyncpg

from perdure.errors import InvalidSetting, LogUnavailable, described

CONNECT_TIMEOUT_S = 10.0
STATEMENT_TIMEOUT_S = (
    30.0  # no statement of ours takes a second; an append may wait for other appends
)
ACQUIRE_TIMEOUT_S = 15.0
GOODBYE_S = 1.0
# An address may name several hosts: what a replica says is old, and a lock there locks nobody out.
SERVER_ROLE = "primary"
POOL_SIZE = 8  # per process: appends use one connection at a time, reads share the others

# What passes by itself, or when somebody starts the database again.
_UNAVAILABLE = (
    OSError,  # also TimeoutError
    asyncpg.InterfaceError,  # the connection closed under us
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shut down, starting up, cancelled
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.PostgresSystemError,
)
# What stays as it is until somebody changes a setting.
_MISCONFIGURED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ClientConfigurationError,
    asyncpg.RaiseError,  # a migration that found the database unfit
)


@contextmanager
def answering() -> Iterator[None]:
    """Turn the failures of a database that does not answer into LogUnavailable."""
    try:
        yield
    except asyncpg.ClientConfigurationError:
        raise  # also an InterfaceError; no waiting will cure it
    except _UNAVAILABLE as error:
        raise LogUnavailable(
            f"the event log's database does not answer ({described(error)}): "
            "check that PostgreSQL runs, and try again"
        ) from error


@contextmanager
def configured() -> Iterator[None]:
    """Turn what is wrong with the address or the account into InvalidSetting, on opening."""
    try:
        with answering():
            yield
    except _MISCONFIGURED as error:
        raise InvalidSetting(
            f"the event log's database cannot be used ({described(error)}): "
            "check its address, account and rights"
        ) from error


async def connect(dsn: str, settings: Mapping[str, str] | None = None) -> Any:
    """One asyncpg connection of its own, outside any pool; `settings` are the server's, for its
    session.
    """
    return await asyncpg.connect(
        dsn,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=STATEMENT_TIMEOUT_S,
        target_session_attrs=SERVER_ROLE,
        server_settings=dict(settings or {}),
    )


async def hang_up(connection: Any) -> None:
    """Say goodbye if the server still listens; else it would log a broken connection."""
    try:
        await connection.close(timeout=GOODBYE_S)
    except (OSError, asyncpg.InterfaceError):
        connection.terminate()


async def open_pool(dsn: str) -> Any:
    """A pool of asyncpg connections, which replaces those that break."""
    with configured():
        return await asyncpg.create_pool(
            dsn,
            min_size=0,  # none is restored in the background while the database is away
            max_size=POOL_SIZE,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=STATEMENT_TIMEOUT_S,
            target_session_attrs=SERVER_ROLE,
            reset=_nothing,
        )


async def _nothing(connection: Any) -> None:
    """Nothing to reset: our statements leave no state in a session. Saves a round trip per use."""


async def fetch(pool: Any, statement: str, *arguments: Any) -> list[Any]:
    """The rows of one statement. Raises LogUnavailable."""
    with answering():
        async with pool.acquire(timeout=ACQUIRE_TIMEOUT_S) as connection:
            return await fetch_over(connection, statement, *arguments)


async def fetch_over(connection: Any, statement: str, *arguments: Any) -> list[Any]:
    """The rows of one statement over `connection`, which is ended when they do not come in time."""
    try:
        rows: list[Any] = await connection.fetch(statement, *arguments)
    except (TimeoutError, asyncio.CancelledError):
        # The driver would ask the server to cancel the statement, and wait for its answer before
        # anything else: on a network that swallows everything, none comes.
        connection.terminate()
        raise
    return rows
