"""Which server the command line talks to."""

from pathlib import Path

import pytest

from perdure.client.address import server_url
from perdure.errors import ServerUnreachable


def test_a_named_data_folder_without_a_server_is_not_answered_by_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_URL", raising=False)
    monkeypatch.setenv("PERDURE_DATA_DIR", str(tmp_path))
    with pytest.raises(ServerUnreachable, match="perdure up"):
        server_url()
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:5", "pid": 1}')
    assert server_url() == "http://127.0.0.1:5"
