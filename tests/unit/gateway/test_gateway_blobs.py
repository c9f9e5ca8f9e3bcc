"""The bytes of images, by their digests."""

import asyncio
import errno
import tempfile
from pathlib import Path

import pytest

from perdure.datasets.snapshot import blob_key
from perdure_gateway.blobs import MAX_DIGESTS
from perdure_gateway.settings import GatewaySettings
from tests.builders.gateway import World, digest_of

IMAGE = b"\xff\xd8 the bytes of an image"
DIGEST = digest_of(IMAGE)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, GatewaySettings(spool_dir=tmp_path, max_blob_bytes=2_000_000))


async def missing(http, *digests: str) -> list[str]:
    response = await http.post("/v1/blobs/missing", json={"digests": list(digests)})
    assert response.status_code == 200, response.text
    return response.json()["missing"]


def damage(world: World, content: bytes) -> Path:
    """Change the last byte of a stored object behind the store's back."""
    (path,) = (
        path
        for path in (world.root / "store/data").rglob("*")
        if path.is_file() and path.read_bytes() == content
    )
    path.chmod(0o644)
    path.write_bytes(content[:-1] + b"x")
    return path


async def test_an_image_is_missing_until_it_is_sent(world, http):
    other = "ab" * 32
    assert await missing(http, DIGEST, other, DIGEST) == [DIGEST, other]
    sent = await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)
    assert (sent.status_code, sent.json()) == (201, {"digest": DIGEST, "size_bytes": len(IMAGE)})
    assert world.store.get_bytes(blob_key(DIGEST), digest=DIGEST) == IMAGE
    assert await missing(http, DIGEST, other) == [other]
    assert await missing(http) == []


async def test_sent_again_it_is_there_once_and_mended(world, http):
    for _ in range(2):
        assert (await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)).status_code == 201
    assert len(list(world.store.list("datasets/"))) == 1
    damage(world, IMAGE)
    assert (await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)).status_code == 201
    assert world.store.get_bytes(blob_key(DIGEST), digest=DIGEST) == IMAGE


async def test_what_the_store_knows_to_be_damaged_is_missing(world, http):
    await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)
    damage(world, IMAGE).unlink()
    gone_later = digest_of(b"other")
    world.store.put_bytes(blob_key(gone_later), b"something else")
    assert await missing(http, DIGEST, gone_later) == [DIGEST, gone_later]


async def test_other_bytes_than_announced_are_refused_and_not_stored(world, http):
    response = await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE + b"!")
    assert (response.status_code, response.json()["code"]) == (400, "input.invalid")
    assert digest_of(IMAGE + b"!") in response.json()["detail"]
    assert list(world.store.list("datasets/")) == []
    assert list(world.root.glob("*.upload")) == []


@pytest.mark.parametrize("announced", [True, False])
async def test_an_image_above_the_limit_is_refused(world, http, announced):
    data = b"x" * 2_000_001

    async def chunks():
        for start in range(0, len(data), 65_536):
            yield data[start : start + 65_536]

    body = data if announced else chunks()
    response = await http.put(f"/v1/blobs/{digest_of(data)}", content=body)
    assert (response.status_code, response.json()["code"]) == (413, "input.too-large")
    # One byte less is more than any other body may have.
    response = await http.put(f"/v1/blobs/{digest_of(data[1:])}", content=data[1:])
    assert response.status_code == 201


@pytest.mark.parametrize("name", ["AB" * 32, "ab" * 31, "ab" * 33, "..%2Fx", "missing", "x"])
async def test_only_digests_name_images(http, name):
    response = await http.put(f"/v1/blobs/{name}", content=IMAGE)
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"digests": "ab" * 32},
        {"digests": ["../../etc/passwd"]},
        {"digests": ["ab" * 31]},
        {"digests": [3]},
        {"digests": [], "surprise": 1},
    ],
)
async def test_a_question_of_the_wrong_form_is_refused(http, body):
    response = await http.post("/v1/blobs/missing", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "request.invalid")


async def test_as_many_as_announced_may_be_asked_for_at_once(http):
    digests = [f"{number:064x}" for number in range(MAX_DIGESTS + 1)]
    assert await missing(http, *digests[1:]) == digests[1:]
    response = await http.post("/v1/blobs/missing", json={"digests": digests})
    assert response.status_code == 422


async def test_a_full_disk_is_said(http, monkeypatch):
    make = tempfile.NamedTemporaryFile

    def full(**arguments):
        file = make(**arguments)

        def write(_data):
            raise OSError(errno.ENOSPC, "No space left on device")

        file.write = write
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    response = await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)
    assert (response.status_code, response.json()["code"]) == (503, "store.unavailable")
    assert "Free some space" in response.json()["detail"]
    assert response.headers["retry-after"]


async def test_a_client_that_goes_away_leaves_nothing(world, http):
    sent: list[dict] = []
    messages = [
        {"type": "http.request", "body": IMAGE[:5], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    path = f"/v1/blobs/{DIGEST}"
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "PUT",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    async with asyncio.timeout(5):
        await http._transport.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert list(world.store.list("datasets/")) == []
    assert list(world.root.glob("*.upload")) == []


async def test_pages_from_elsewhere_send_nothing(world, http):
    headers = {"Origin": "https://evil.example"}
    response = await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE, headers=headers)
    assert response.status_code == 400
    assert list(world.store.list("datasets/")) == []
