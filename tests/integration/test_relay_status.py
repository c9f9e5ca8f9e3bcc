"""`perdure relay status` and the SDK's relay_status, against a gateway on a real port."""

import time
from pathlib import Path

import pytest

from perdure.client import Client
from perdure.eventlog.leadership import RELAY
from tests.builders.command_line import CommandLine
from tests.builders.gateway import ServerThread, dataset_imported
from tests.builders.server import Server

DEADLINE_S = 20.0
STATUS = ("relay", "status")


def set_up(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch, *, leads: bool, waiting: int
) -> None:
    """A relay that leads or not, two events published, and `waiting` more in the log."""

    async def has_leader(_role: str) -> bool:
        return leads

    monkeypatch.setattr(server.world.log, "has_leader", has_leader)
    for number in range(2 + waiting):
        server.run(server.world.append(f"dataset-{number}", dataset_imported(), publish=False))
    server.run(server.world.read_models.commit(RELAY, expected=0, position=2))


def test_a_relay_that_is_up_to_date(
    perdure: CommandLine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, monkeypatch, leads=True, waiting=0)
    ran = perdure(*STATUS)
    assert ran.code == 0
    assert [line.split(maxsplit=1) for line in ran.out.splitlines()] == [
        ["relay", "active"],
        ["lag", "0 events, 0 s"],
        ["published", "2 of 2"],
    ]


def test_a_relay_that_is_behind(
    perdure: CommandLine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, monkeypatch, leads=True, waiting=1)
    ran = perdure(*STATUS)
    assert ran.code == 0
    assert "1 event, " in ran.out
    assert "catching up" in ran.out


def test_no_relay_and_events_that_wait_is_a_negative_answer(
    perdure: CommandLine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, monkeypatch, leads=False, waiting=3)
    ran = perdure(*STATUS)
    assert ran.code == 1
    assert "none is active" in ran.out
    assert "3 events, " in ran.out
    assert "perdure service relay" in ran.out
    told = perdure(*STATUS, "--json")
    assert told.code == 1
    assert told.json.keys() == {"time", "head", "position", "lag_events", "lag_s", "active"}
    assert (told.json["lag_events"], told.json["active"]) == (3, False)


def test_no_relay_and_nothing_to_publish_is_no_failure(
    perdure: CommandLine, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(server, monkeypatch, leads=False, waiting=0)
    ran = perdure(*STATUS)
    assert ran.code == 0
    assert "none is active" in ran.out


def test_a_log_that_elects_nobody_says_so(perdure: CommandLine, server: ServerThread) -> None:
    server.run(server.world.append("dataset-1", dataset_imported(), publish=False))
    ran = perdure(*STATUS)
    assert ran.code == 0
    assert "not known" in ran.out


def test_the_sdk_gives_the_same(server: ServerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(server, monkeypatch, leads=True, waiting=4)
    with Client(server.url) as client:
        relay = client.relay_status()
    assert (relay.head, relay.position, relay.lag_events, relay.active) == (6, 2, 4, True)
    assert relay.lag_s > 0
    assert relay.json["lag_s"] == relay.lag_s


def test_the_relay_of_a_server_on_one_machine_is_active(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not (relay := server.client.relay_status()).active:
            assert time.monotonic() < deadline, relay
        server.stop()
    finally:
        server.end()
