"""The bytes of images, by their digests."""

import asyncio
import errno
import json
import resource
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from perdure.datasets.snapshot import blob_key
from perdure_gateway import receiving
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
    world.damage(IMAGE)
    assert (await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)).status_code == 201
    assert world.store.get_bytes(blob_key(DIGEST), digest=DIGEST) == IMAGE


async def test_many_who_send_the_same_image_at_once_store_it_once(world, http):
    image = IMAGE + bytes(1_500_000)
    digest = digest_of(image)
    sent = await asyncio.gather(
        *(http.put(f"/v1/blobs/{digest}", content=image) for _ in range(8)), missing(http, digest)
    )
    assert [response.status_code for response in sent[:8]] == [201] * 8
    assert sent[8] in ([], [digest])
    assert world.store.get_bytes(blob_key(digest), digest=digest) == image
    files = [path for path in (world.root / "store/data").rglob("*") if path.is_file()]
    assert len(files) == 1
    assert list((world.root / "store/tmp").iterdir()) == list(world.root.glob("*.upload")) == []


async def test_what_the_store_knows_to_be_damaged_is_missing(world, http):
    await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE)
    world.damage(IMAGE).unlink()
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


@pytest.mark.parametrize(
    "body", [b"[" * 500_000, b'{"digests":' * 50_000, b"9" * 5_000, b"\xff", b"", b"{"]
)
async def test_a_question_that_cannot_be_read_is_refused(http, body):
    headers = {"Content-Type": "application/json"}
    response = await http.post("/v1/blobs/missing", content=body, headers=headers)
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"


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


@pytest.mark.parametrize(
    ("most_bytes", "body_bytes"), [(10_000, 10_100), (1_500_000, 1_900_000), (0, 1)]
)
async def test_a_disk_that_takes_a_part_is_said_to_be_full(world, http, most_bytes, body_bytes):
    """The kernel writes what goes in, and refuses the rest, also when the file is closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        response = await http.put(f"/v1/blobs/{DIGEST}", content=bytes(body_bytes))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (response.status_code, response.json()["code"]) == (503, "store.unavailable")
    assert list(world.root.glob("*.upload")) == []


async def test_a_folder_for_uploads_that_is_gone_is_said(tmp_path):
    world = World(tmp_path, GatewaySettings(spool_dir=tmp_path / "gone"))
    app = world.app()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            response = await client.put(f"/v1/blobs/{DIGEST}", content=IMAGE)
    await world.bus.close()
    assert (response.status_code, response.json()["code"]) == (503, "store.unavailable")
    assert str(tmp_path / "gone") in response.json()["detail"]


async def put_by_hand(http, receive: Callable[[], Awaitable[dict]]) -> tuple[int, dict]:
    """Status and problem of a PUT whose body comes from `receive`."""
    sent: list[dict] = []

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
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body)


async def test_a_client_that_goes_away_leaves_nothing(world, http):
    messages = [
        {"type": "http.request", "body": IMAGE[:5], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    status, problem = await put_by_hand(http, receive)
    assert (status, problem["code"]) == (400, "input.invalid")
    assert list(world.store.list("datasets/")) == []
    assert list(world.root.glob("*.upload")) == []


@pytest.mark.parametrize("kind", ["silent", "a byte now and then"])
async def test_a_body_that_comes_too_slowly_is_given_up(world, http, monkeypatch, kind):
    monkeypatch.setattr(receiving, "SILENCE_S", 0.2)

    async def receive():
        await asyncio.sleep(3600 if kind == "silent" else 0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    status, problem = await put_by_hand(http, receive)
    assert (status, problem["code"]) == (503, "unavailable")
    assert "too slowly" in problem["detail"]
    assert list(world.root.glob("*.upload")) == []


async def test_a_slow_line_is_waited_for(world, http, monkeypatch):
    """It is slow for longer than one may be silent."""
    monkeypatch.setattr(receiving, "SILENCE_S", 0.2)
    pieces = [IMAGE[:1], *[b"x" * 100] * 20]
    sent = b"".join(pieces)

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    status, problem = await put_by_hand(http, receive)
    assert (status, problem["code"]) == (400, "input.invalid")  # whole, and not that image
    assert digest_of(sent) in problem["detail"]


async def test_pages_from_elsewhere_send_nothing(world, http):
    headers = {"Origin": "https://evil.example"}
    response = await http.put(f"/v1/blobs/{DIGEST}", content=IMAGE, headers=headers)
    assert response.status_code == 400
    assert list(world.store.list("datasets/")) == []
