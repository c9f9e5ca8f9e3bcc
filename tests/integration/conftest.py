"""A gateway on a real port, and its two kinds of clients. A module may bring its own `world`."""

import pytest

from perdure.client import Client
from tests.builders.command_line import CommandLine
from tests.builders.gateway import ServerThread, World


@pytest.fixture
def world(tmp_path):
    """What the gateway stands on."""
    return World(tmp_path / "world")


@pytest.fixture
def server(world):
    """The gateway, in a thread."""
    with ServerThread(world) as server:
        yield server


@pytest.fixture
def client(server):
    """The SDK's client of it."""
    with Client(server.url) as client:
        yield client


@pytest.fixture
def perdure(server, monkeypatch, capsys, tmp_path):
    """The command line, run in this process, in a folder of its own."""
    monkeypatch.setenv("PERDURE_URL", server.url)
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)
