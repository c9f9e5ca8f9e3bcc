"""What the client believes of a server's answer to which images are missing."""

import httpx
import pytest

from perdure.client import Client
from perdure.client.problems import VERSION_HEADER
from perdure.errors import ForeignServer
from tests.builders.datasets import picture, write_files, yolo_files
from tests.builders.gateway import digest_of


class Server(httpx.BaseTransport):
    """Says which images are missing, and takes what is sent."""

    def __init__(self, missing: object) -> None:
        self.missing = missing
        self.got: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        if request.method != "GET":
            self.got.append(f"{request.method} {request.url.path}")
        answer = {"missing": self.missing, "version": "1"}
        return httpx.Response(200, json=answer, headers={VERSION_HEADER: "1"})


def upload(tmp_path, missing: object) -> list[str]:
    server = Server(missing)
    with Client("http://127.0.0.1:9", transport=server) as client:
        client.upload(write_files(tmp_path / "set", yolo_files(2)))
    return server.got


@pytest.mark.parametrize(
    "missing", [None, {}, "x", 3, ["ab" * 32], [["x"]], [None], [3], [digest_of(picture(0)), {}]]
)
def test_an_answer_that_nobody_asked_for_is_refused(tmp_path, missing):
    with pytest.raises(ForeignServer, match="other images"):
        upload(tmp_path, missing)


def test_an_image_that_is_missing_twice_is_sent_once(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure.client.blobs.SMALL_BYTES", 0)
    digest = digest_of(picture(0))
    assert upload(tmp_path, [digest, digest]) == [
        "POST /v1/blobs/missing",
        f"PUT /v1/blobs/{digest}",
        "POST /v1/uploads",
    ]
