"""perdure service: what it does before a service runs."""

import importlib.metadata

import pytest

from tests.builders.command_line import CommandLine

NAMES = ("data-prep", "gateway", "publisher", "relay", "scheduler", "trainer-agent")


@pytest.fixture
def perdure(monkeypatch, capsys):
    for name in ("PERDURE_BUS_URL", "PERDURE_LOG_URL", "PERDURE_STORE_URL"):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(monkeypatch, capsys)


def entry(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "perdure.services")


@pytest.fixture
def installed(monkeypatch):
    """Make services be installed as given."""

    def install(*entries: importlib.metadata.EntryPoint) -> None:
        real = importlib.metadata.entry_points

        def entry_points(*, group: str):
            found = importlib.metadata.EntryPoints(entries)
            return found if group == "perdure.services" else real(group=group)

        monkeypatch.setattr("importlib.metadata.entry_points", entry_points)

    return install


def test_an_unknown_service_is_one_line_that_names_the_known_ones(perdure):
    ran = perdure("service", "worker")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: there is no service 'worker': it is one of {', '.join(NAMES)}\n"


def test_a_service_without_its_libraries_says_how_to_get_them(perdure, installed):
    installed(entry("relay", "perdure_nowhere.service:serve"))
    ran = perdure("service", "relay")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: the service relay needs perdure_nowhere, which is not installed: "
        "install it with: pip install 'perdure[relay]'\n"
    )


def test_a_missing_setting_is_one_line(perdure):
    ran = perdure("service", "relay")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert "PERDURE_BUS_URL is missing" in ran.err
    assert "PERDURE_LOG_URL is missing" in ran.err


def test_without_a_name_it_says_how_it_is_used(perdure):
    ran = perdure("service")
    assert ran.code == 2
    assert "perdure service" in ran.err


def test_the_help_names_services_and_settings(perdure):
    ran = perdure("service", "--help")
    assert ran.code == 0
    for word in (*NAMES, "PERDURE_BUS_URL", "PERDURE_LOG_URL", "PERDURE_STORE_URL"):
        assert word in ran.out
