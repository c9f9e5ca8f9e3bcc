"""An upload in whose midst a side is killed leaves nothing on the server's disk."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.builders.server import Server

pytestmark = pytest.mark.crash

WAIT_S = 20.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    started: list[Server] = []

    def run() -> Server:
        started.append(Server(tmp_path / "data"))
        return started[-1]

    yield run
    for server in started:
        server.end()


def half_an_upload(server: Server) -> socket.socket:
    """A connection that has sent two of five megabytes."""
    place = urlsplit(server.url)
    connection = socket.create_connection((place.hostname, place.port), timeout=WAIT_S)
    head = f"PUT /v1/blobs/{'ab' * 32} HTTP/1.1\r\nHost: {place.netloc}\r\n"
    connection.sendall(f"{head}Content-Length: 5000000\r\n\r\n".encode() + bytes(2_000_000))
    return connection


def wait_for_uploads(server: Server, number: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while len(list((server.data_dir / "spool").iterdir())) != number:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_is_killed_in_the_midst_of_an_upload_leaves_nothing(start):
    server = start()
    with half_an_upload(server):
        wait_for_uploads(server, 1)
    wait_for_uploads(server, 0)  # the client went away

    with half_an_upload(server):
        wait_for_uploads(server, 1)
        server.kill_with_all_children()
    assert len(list((server.data_dir / "spool").iterdir())) == 1
    again = start()
    wait_for_uploads(again, 0)
    assert list((again.data_dir / "store/tmp").iterdir()) == []
