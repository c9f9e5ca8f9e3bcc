"""An S3 server, or what lies before it, that misbehaves: played by a small HTTP server."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from perdure.artifacts import ObjectStore, StoredObject, open_store, s3_transport, s3_writes
from perdure.artifacts.s3_errors import Replaced
from perdure.errors import NotFound, StoreDenied, StoreUnavailable
from tests.builders.fake_s3 import FakeS3, Request, fake_s3, in_turn

# `printf abc | b3sum`
ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
DATA = os.urandom(3 << 20)
PART_BYTES = 5 << 20


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.setattr(s3_transport, "RETRY_FOR_S", 1.0)
    with fake_s3() as server:
        yield server


@pytest.fixture
def store(server: FakeS3) -> ObjectStore:
    return open_store(server.url)


def ok(request: Request) -> None:
    request.answer(200, etag='"one"')


def fail(status: int):
    return lambda request: request.refuse(status, "SlowDown")


def cut(request: Request) -> None:
    request.give(DATA, cut_after=1 << 20)


def give(request: Request) -> None:
    request.give(DATA)


class TestPassingFaults:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_a_server_that_is_overloaded_is_asked_again(self, store, server, status):
        server.behave = in_turn(fail(status), fail(status), ok)

        assert store.put_bytes("key", b"abc") == StoredObject("key", ABC, 3)
        assert [request.body for request in server.seen] == [b"abc"] * 3

    def test_a_connection_that_breaks_without_an_answer_is_made_again(self, store, server):
        def hang_up(request: Request) -> None:
            request.handler.close_connection = True

        server.behave = in_turn(hang_up, ok)

        store.put_bytes("key", b"abc")
        assert len(server.seen) == 2

    def test_a_body_that_is_cut_goes_on_where_it_ended(self, store, server, tmp_path):
        server.behave = in_turn(cut, cut, give)

        store.get_file("key", tmp_path / "copy")

        assert (tmp_path / "copy").read_bytes() == DATA
        assert [request.headers.get("range") for request in server.seen] == [
            None,
            f"bytes={1 << 20}-",
            f"bytes={2 << 20}-",
        ]
        assert {request.headers.get("if-match") for request in server.seen[1:]} == {'"one"'}

    def test_an_object_that_is_replaced_while_it_is_read_is_read_anew(self, store, server):
        changed = os.urandom(1000)
        server.behave = in_turn(
            cut,
            lambda request: request.refuse(412, "PreconditionFailed"),
            lambda request: request.give(changed, etag="two"),
        )

        assert store.get_bytes("key") == changed

    def test_an_opened_object_never_mixes_two_versions(self, store, server):
        server.behave = in_turn(cut, lambda request: request.refuse(412, "PreconditionFailed"))

        with store.open("key") as opened, pytest.raises(Replaced, match="replaced"):
            opened.read()

    def test_a_completion_whose_answer_was_lost_is_complete(
        self, store, server, tmp_path, monkeypatch
    ):
        server.behave = multipart(complete=no_upload, look=large)

        stored = store.put_file("key", large_file(tmp_path, monkeypatch))

        assert stored.size_bytes == len(LARGE)


class TestLastingFaults:
    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_a_server_that_only_fails_is_unavailable(self, store, server, status):
        server.behave = fail(status)

        with pytest.raises(StoreUnavailable, match=f"storing key: .* status {status}"):
            store.put_bytes("key", b"abc")
        assert 2 < len(server.seen) < 10

    def test_a_body_that_is_always_cut_leaves_no_file(self, store, server, tmp_path):
        def stop(request: Request) -> None:
            request.give(DATA, cut_after=0 if "range" in request.headers else 1000)

        server.behave = stop

        with pytest.raises(StoreUnavailable, match=r"reading key: the connection broke"):
            store.get_file("key", tmp_path / "copy")
        assert list(tmp_path.iterdir()) == []

    def test_a_server_that_hangs_is_given_up(self, server, monkeypatch):
        monkeypatch.setattr(s3_transport, "READ_TIMEOUT_S", 0.5)
        store = open_store(server.url)
        released = threading.Event()
        server.behave = lambda request: released.wait(30) and None

        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.get_bytes("key")
        released.set()

        assert time.monotonic() - started < 3

    def test_a_server_that_hangs_within_a_body_is_given_up(self, server, monkeypatch):
        monkeypatch.setattr(s3_transport, "READ_TIMEOUT_S", 0.5)
        store = open_store(server.url)
        released = threading.Event()

        def hang(request: Request) -> None:
            request.give(DATA, cut_after=1000)
            request.handler.wfile.flush()
            released.wait(30)

        server.behave = hang
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.get_bytes("key")
        released.set()

        assert time.monotonic() - started < 5

    @pytest.mark.slow
    def test_whoever_asks_a_server_that_hangs_knows_after_half_a_minute(self, server, monkeypatch):
        monkeypatch.setattr(s3_transport, "RETRY_FOR_S", 20.0)
        store = open_store(server.url)
        released = threading.Event()
        server.behave = lambda request: released.wait(60) and None

        started = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.put_bytes("key", b"abc")
        released.set()

        assert 15 < time.monotonic() - started < 32

    def test_parts_that_are_not_put_together_are_no_object(
        self, store, server, tmp_path, monkeypatch
    ):
        # Amazon S3 may fail after it has answered 200: the error is in the body.
        def fail_late(request: Request) -> None:
            body = b"<Error><Code>InternalError</Code></Error>"
            request.answer(200, body, content_type="application/xml")

        server.behave = multipart(complete=fail_late, look=missing)

        with pytest.raises(StoreUnavailable, match="storing key: it did not put the parts"):
            store.put_file("key", large_file(tmp_path, monkeypatch))

    def test_parts_of_an_upload_that_fails_are_taken_back_without_waiting(
        self, store, server, tmp_path, monkeypatch
    ):
        server.behave = multipart(part=fail(503), abort=fail(503))

        with pytest.raises(StoreUnavailable):
            store.put_file("key", large_file(tmp_path, monkeypatch))

        assert server.count("DELETE") == 1
        assert "uploadId=id" in server.seen[-1].path

    def test_a_server_that_ignores_ranges_is_not_believed(self, store, server):
        def whole(request: Request) -> None:
            request.headers.pop("range", None)
            request.give(DATA, cut_after=1 << 20)

        server.behave = whole

        with pytest.raises(StoreUnavailable, match="whole object in place of a part"):
            store.get_bytes("key")

    @pytest.mark.parametrize(
        ("status", "body"),
        [(404, b"<html>nothing here</html>"), (200, b"<html>hello"), (400, b"\xff\xfe")],
    )
    def test_what_is_no_s3_server_is_said_to_be_none(self, store, server, status, body):
        server.behave = lambda request: request.answer(status, body, content_type="text/html")

        with pytest.raises(StoreUnavailable, match=r"no S3 server|not understood"):
            list(store.list(""))

    def test_a_request_that_is_refused_is_not_sent_again(self, store, server):
        server.behave = lambda request: request.refuse(400, "AuthorizationHeaderMalformed")

        with pytest.raises(StoreUnavailable, match=r"400 AuthorizationHeaderMalformed.*region"):
            store.put_bytes("key", b"abc")
        assert len(server.seen) == 1

    def test_a_redirect_is_not_followed(self, store, server):
        server.behave = lambda request: request.answer(
            307, location=f"http://127.0.0.1:{server.port}/elsewhere"
        )

        with pytest.raises(StoreUnavailable):
            store.get_bytes("key")
        assert len(server.seen) == 1


class TestAnswers:
    def test_an_object_that_is_not_there(self, store, server):
        server.behave = missing

        with pytest.raises(NotFound, match="no object key"):
            store.get_bytes("key")
        assert store.stat("key") is None

    def test_a_bucket_that_may_not_be_made(self, store, server, monkeypatch):
        def no_bucket(request: Request) -> None:
            if request.method == "HEAD":
                request.answer(404)
            else:
                request.refuse(403, "AccessDenied")

        monkeypatch.setattr(server, "take", no_bucket)

        for _ in range(2):
            with pytest.raises(StoreDenied, match=r"no bucket bucket.*may not make.*AccessDenied"):
                store.put_bytes("key", b"abc")

    def test_a_key_that_may_not_ask_for_the_bucket_may_still_use_it(
        self, store, server, monkeypatch
    ):
        def only_objects(request: Request) -> None:
            if request.method == "HEAD":
                request.answer(403)
            else:
                ok(request)

        monkeypatch.setattr(server, "take", only_objects)

        store.put_bytes("key", b"abc")

    def test_denied_access_says_so_without_the_keys(self, store, server, caplog):
        caplog.set_level("DEBUG")
        server.behave = lambda request: request.refuse(403, "SignatureDoesNotMatch")

        with pytest.raises(StoreDenied, match="SignatureDoesNotMatch") as denied:
            store.put_bytes("key", b"abc")
        assert len(server.seen) == 1
        assert "the-secret" not in f"{denied.value}{denied.value.__cause__!r}{caplog.text}"
        assert "Signature=" not in caplog.text

    def test_keys_come_from_files_and_a_session_token_is_sent(self, server, tmp_path, monkeypatch):
        server.behave = ok
        for name, value in (("ACCESS_KEY_ID", "filed"), ("SESSION_TOKEN", "lent")):
            (tmp_path / name).write_text(f"{value}\n")
            monkeypatch.delenv(f"AWS_{name}", raising=False)
            monkeypatch.setenv(f"AWS_{name}_FILE", str(tmp_path / name))

        open_store(server.url).put_bytes("key", b"abc")

        headers = server.seen[0].headers
        assert "Credential=filed/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "lent"


LARGE = os.urandom(2 * PART_BYTES + 1)


def large_file(folder, monkeypatch):
    monkeypatch.setattr(s3_writes, "PART_BYTES", PART_BYTES)
    (folder / "large").write_bytes(LARGE)
    return folder / "large"


def missing(request: Request) -> None:
    if request.method == "HEAD":
        request.answer(404)
    else:
        request.refuse(404, "NoSuchKey")


def large(request: Request) -> None:
    request.give(LARGE)


def no_upload(request: Request) -> None:
    request.refuse(404, "NoSuchUpload")


def multipart(*, part=ok, complete=missing, look=missing, abort=no_upload):
    """A server that takes parts."""

    def behave(request: Request) -> None:
        if request.method == "POST" and "uploads=" in request.path:
            body = b"<InitiateMultipartUploadResult><UploadId>id</UploadId>"
            request.answer(200, body + b"</InitiateMultipartUploadResult>")
        elif request.method == "POST":
            complete(request)
        elif request.method == "DELETE":
            abort(request)
        else:
            (part if request.method == "PUT" else look)(request)

    return behave
