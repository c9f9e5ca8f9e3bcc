"""Which server the command line talks to."""

from pathlib import Path

import pytest

from perdure.client.address import address_of, find_address
from perdure.errors import InvalidSetting, ServerUnreachable


def test_a_named_data_folder_without_a_server_is_not_answered_by_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_URL", raising=False)
    monkeypatch.setenv("PERDURE_DATA_DIR", str(tmp_path))
    with pytest.raises(ServerUnreachable, match="perdure up"):
        find_address()
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:5", "pid": 1}')
    assert find_address().url == "http://127.0.0.1:5"


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:7412",
        "ftp://host",
        "http://",
        "http://:80",
        "http://host:0",
        "http://host:99999",
        "http://host:many",
        "http://[::1",
        "http://[zz]:1",
        "http://a b",
        "http://host\n",
        "http://ho\x00st",
        "http://host\x1b[31m",
        "http://host/\x7f",
        "http://host/\u2028",
        "http://host/a b",
        "\thttp://host",
        "http://exa..mple",
        "http://" + "a" * 64,
        "http://\u00e4..\u00f6",
        "http://ho\\st",
        "http://host/?q=1",
        "http://host/#a",
    ],
)
def test_what_is_no_url_is_refused_in_one_line_that_names_the_variable(
    url: str,
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        address_of(url, "PERDURE_URL")
    assert caught.value.message.startswith("PERDURE_URL is ")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:7412",
        "http://[::1]:7412",
        "https://perdure.example.org/under/a/path",
        "http://my_host-1.local.:80",
        "http://b\u00fccher.example",
    ],
)
def test_the_url_of_a_server_is_taken_as_it_is(url: str) -> None:
    assert address_of(url + "/", "PERDURE_URL").url == url


@pytest.mark.parametrize(
    "url", ["http://me:hush@host:1", "http://me:hu/hush@host", "http://me:hush@h\u2100st"]
)
def test_a_password_is_not_shown(url: str) -> None:
    try:
        shown = address_of(url, "PERDURE_URL").shown
    except InvalidSetting as error:
        shown = error.message
    assert "hush" not in shown
    assert "***@" in shown


def test_who_names_the_address_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_URL", "http://127.0.0.1:5")
    assert "PERDURE_URL names it" in find_address().advice
    assert "perdure up" not in find_address().advice
    monkeypatch.delenv("PERDURE_URL")
    assert "perdure up" in find_address().advice
    monkeypatch.setenv("PERDURE_DATA_DIR", str(tmp_path))
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:5", "pid": 1}')
    assert "perdure up" in find_address().advice
    assert "server.json" in find_address().advice


def test_which_character_is_wrong_is_said() -> None:
    with pytest.raises(InvalidSetting, match=r"it holds the character '\\x00'"):
        address_of("http://ho\x00st", "PERDURE_URL")
