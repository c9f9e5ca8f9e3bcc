"""What an S3 store does besides what every store does: against a real SeaweedFS server."""

import io
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3
from minio import Minio

from infra.stack.ports import free_port
from infra.stack.seaweedfs import Weed
from perdure.artifacts import ObjectStore, StoredObject, open_store, s3_transport, s3_writes
from perdure.artifacts.credentials import read_credentials
from perdure.artifacts.s3_reader import ObjectReader
from perdure.errors import (
    DamagedObject,
    InvalidInput,
    InvalidSetting,
    NotFound,
    StoreDenied,
    StoreUnavailable,
)

PART_BYTES = 8 << 20
THREE_PARTS_BYTES = 2 * PART_BYTES + 12_345
# `printf abc | b3sum`, and of no bytes, from BLAKE3's test vectors.
ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


@pytest.fixture
def store(s3_url: str) -> ObjectStore:
    return open_store(s3_url)


class Server:
    """The same objects, seen without Perdure."""

    def __init__(self, weed: Weed, url: str) -> None:
        keys = weed.environment
        self.client = Minio(
            f"127.0.0.1:{weed.port}",
            keys["AWS_ACCESS_KEY_ID"],
            keys["AWS_SECRET_ACCESS_KEY"],
            secure=False,
        )
        self.prefix = url.rpartition("/")[2]
        if not self.client.bucket_exists("perdure"):
            self.client.make_bucket("perdure")

    def put(self, key: str, data: bytes, **metadata: str) -> None:
        stream = io.BytesIO(data)
        name = f"{self.prefix}/{key}"
        self.client.put_object("perdure", name, stream, len(data), metadata=metadata)  # type: ignore[arg-type]

    def parts(self, key: str) -> int:
        """Of how many parts an object was made: its ETag says so."""
        etag = self.client.stat_object("perdure", f"{self.prefix}/{key}").etag or ""
        return int(etag.partition("-")[2] or 1)

    def names(self) -> list[str]:
        found = self.client.list_objects("perdure", f"{self.prefix}/", recursive=True)
        return [each.object_name or "" for each in found]


@pytest.fixture
def server(weed: Weed, s3_url: str) -> Server:
    return Server(weed, s3_url)


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [stored.key for stored in store.list(prefix)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def data() -> bytes:
    return os.urandom(THREE_PARTS_BYTES)


class TestLargeObjects:
    def test_a_large_file_goes_and_comes_in_parts(self, store, server, data, tmp_path):
        (tmp_path / "source").write_bytes(data)

        stored = store.put_file("large", tmp_path / "source")

        assert stored == StoredObject("large", blake3(data).hexdigest(), THREE_PARTS_BYTES)
        assert server.parts("large") == 3
        assert store.stat("large") == stored
        assert store.get_file("large", tmp_path / "copy") == stored
        assert (tmp_path / "copy").read_bytes() == data
        assert store.get_bytes("large", digest=stored.digest) == data

    def test_a_large_stream_is_stored_and_one_past_its_bound_is_not(self, store, server, data):
        stored = store.put_stream("large", io.BytesIO(data), max_bytes=len(data))
        with pytest.raises(InvalidInput, match=f"more than {len(data) - 1} bytes"):
            store.put_stream("larger", io.BytesIO(data), max_bytes=len(data) - 1)

        assert stored == StoredObject("large", blake3(data).hexdigest(), len(data))
        assert store.get_bytes("large") == data
        assert [name.rpartition("/")[2] for name in server.names()] == ["large"]

    def test_an_opened_object_can_be_read_from_anywhere(self, store, data):
        store.put_bytes("large", data)

        with store.open("large") as opened:
            assert opened.read(10) == data[:10]
            opened.seek(PART_BYTES)
            assert opened.read(1000) == data[PART_BYTES : PART_BYTES + 1000]
            opened.seek(-5, os.SEEK_END)
            assert opened.read() == data[-5:]
            assert opened.read(1) == b""

    def test_a_large_copy_is_made_by_the_server_and_keeps_its_digest(
        self, store, server, data, monkeypatch
    ):
        monkeypatch.setattr(s3_writes, "COPY_PART_BYTES", 5 << 20)
        stored = store.put_bytes("source", data)
        downloads = count_reads(monkeypatch)

        copied = store.copy("source", "target")

        assert (copied.digest, copied.size_bytes) == (stored.digest, len(data))
        assert server.parts("target") == 4
        assert store.stat("target") == copied
        assert downloads == []
        store.delete("source")
        assert store.get_bytes("target", digest=stored.digest) == data

    def test_a_file_that_changes_meanwhile_is_stored_under_the_digest_of_what_was_sent(
        self, store, data, tmp_path, monkeypatch
    ):
        path = tmp_path / "source"
        path.write_bytes(data)
        change_after_measuring(path, monkeypatch, times=1)

        stored = store.put_file("large", path)

        assert path.read_bytes() != data
        assert stored.digest == blake3(path.read_bytes()).hexdigest()
        assert store.get_bytes("large") == path.read_bytes()

    def test_a_file_that_changes_all_the_time_is_not_stored(
        self, store, server, data, tmp_path, monkeypatch
    ):
        path = tmp_path / "source"
        path.write_bytes(data)
        change_after_measuring(path, monkeypatch, times=1000)

        with pytest.raises(DamagedObject, match=r"large was not stored.*nothing writes"):
            store.put_file("large", path)

        assert server.names() == []


def change_after_measuring(path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    measure = s3_writes._measure
    left = times

    def changing(key, file):
        nonlocal left
        measured = measure(key, file)
        if left > 0:
            left -= 1
            with path.open("r+b") as changed:
                changed.seek(PART_BYTES)
                changed.write(os.urandom(16))
        return measured

    monkeypatch.setattr(s3_writes, "_measure", changing)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fills with the keys of objects whose bytes are fetched."""
    fetched: list[str] = []
    opened = ObjectReader.__init__

    def counting(self, address, key, fetch):
        fetched.append(key)
        opened(self, address, key, fetch)

    monkeypatch.setattr(ObjectReader, "__init__", counting)
    return fetched


class TestObjectsPutThereByHand:
    def test_they_are_read_and_their_digest_is_computed(self, store, server, tmp_path):
        server.put("by-hand", b"abc")

        assert store.stat("by-hand") == StoredObject("by-hand", ABC, 3)
        assert list(store.list("")) == [StoredObject("by-hand", ABC, 3)]
        assert store.get_bytes("by-hand") == b"abc"
        assert store.get_file("by-hand", tmp_path / "copy", digest=ABC).digest == ABC
        with pytest.raises(DamagedObject, match=f"but {EMPTY} was asked for"):
            store.get_bytes("by-hand", digest=EMPTY)

    def test_a_copy_of_one_carries_the_digest(self, store, server, monkeypatch):
        server.put("by-hand", b"abc")

        store.copy("by-hand", "copy")

        downloads = count_reads(monkeypatch)
        assert store.stat("copy") == StoredObject("copy", ABC, 3)
        assert downloads == []

    def test_names_that_are_no_keys_are_passed_over(self, store, server):
        for name in ("with space", "ünlike", "a@b", "key"):
            server.put(name, b"abc")

        assert len(server.names()) == 4
        assert keys(store) == ["key"]
        assert list(store.sizes("")) == [("key", 3)]

    def test_bytes_that_are_not_those_that_were_stored_are_noticed(self, store, server, tmp_path):
        server.put("key", b"abd", **{"perdure-blake3": ABC, "perdure-size": "3"})

        with pytest.raises(DamagedObject, match=r"key has digest .* but 6437b3.* it was stored"):
            store.get_bytes("key")
        with pytest.raises(DamagedObject):
            store.get_file("key", tmp_path / "copy")
        assert files(tmp_path) == []

    def test_an_object_that_is_shorter_than_it_was_is_damaged(self, store, server):
        server.put("key", b"ab", **{"perdure-blake3": ABC, "perdure-size": "3"})

        for look in (store.stat, store.get_bytes, store.open):
            with pytest.raises(DamagedObject, match="key has 2 bytes, but 3 were stored"):
                look("key")


class TestLists:
    def test_more_objects_than_a_page_holds_come_in_the_order_of_their_keys(self, store):
        names = [f"n/{i:04d}{end}" for i in range(350) for end in ("-z", ".z", "/z", "z")]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put_bytes(key, b""), names))

        # '-' < '.' < '/' < letters: as they were made
        assert list(store.sizes("n/")) == [(name, 0) for name in names]
        assert keys(store, "n/01") == [name for name in names if name.startswith("n/01")]

    def test_objects_that_vanish_meanwhile_are_passed_over(self, store):
        for number in range(200):
            store.put_bytes(f"n/{number:03d}", b"abc")

        listing = store.list("n/")
        first = next(listing)
        store.delete("n/199")

        assert [first.key, *(stored.key for stored in listing)] == [
            f"n/{number:03d}" for number in range(199)
        ]

    def test_sizes_ask_for_no_object(self, store, monkeypatch):
        store.put_bytes("a", b"abc")
        monkeypatch.setattr(store, "_look_up", lambda key: pytest.fail(f"looked up {key}"))

        assert list(store.sizes("")) == [("a", 3)]


class TestKeysAndBuckets:
    @pytest.fixture
    def bucket_url(self, weed: Weed, s3_url: str) -> str:
        return f"s3+http://127.0.0.1:{weed.port}/bucket-{uuid.uuid4().hex}"

    def test_the_bucket_is_made_at_the_first_use_whoever_is_first(self, bucket_url, server):
        bucket = bucket_url.rpartition("/")[2]
        stores = [open_store(bucket_url) for _ in range(4)]
        assert not server.client.bucket_exists(bucket)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: stores[number].put_bytes(f"{number}", b"abc"), range(4)))

        assert keys(open_store(bucket_url)) == ["0", "1", "2", "3"]

    def test_a_store_whose_bucket_is_gone_makes_it_again(self, bucket_url, server, tmp_path):
        store = open_store(bucket_url)
        store.put_bytes("key", b"abc")
        server.client.remove_object(store._bucket.name, "key")
        server.client.remove_bucket(store._bucket.name)

        with pytest.raises(NotFound, match="key"):
            store.get_bytes("key")
        (tmp_path / "large").write_bytes(bytes(PART_BYTES + 1))
        store.put_file("large", tmp_path / "large")

        assert keys(store) == ["large"]

    @pytest.mark.parametrize("wrong", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
    def test_wrong_keys_are_named_and_not_shown(self, s3_url, tmp_path, monkeypatch, caplog, wrong):
        monkeypatch.setenv(wrong, "not-the-right-one")
        caplog.set_level("DEBUG")
        store = open_store(s3_url)

        for attempt in (
            lambda: store.put_bytes("key", b"abc"),
            lambda: store.get_bytes("key"),
            lambda: store.stat("key"),
            lambda: list(store.list("")),
            lambda: store.copy("key", "copy"),
            lambda: store.delete("key"),
        ):
            with pytest.raises(StoreDenied, match="see that AWS_ACCESS_KEY_ID and") as denied:
                attempt()
            shown = f"{denied.value} {denied.value.__cause__!r} {store!r} {caplog.text}"
            for secret in ("not-the-right-one", "the-secret-key", "the-access-key"):
                assert secret not in shown


@pytest.mark.crash
class TestAServerThatDies:
    """Each test has a server of its own."""

    @pytest.fixture
    def mortal(self, tmp_path_factory, monkeypatch) -> Iterator[Weed]:
        server = Weed(tmp_path_factory.mktemp("mortal"), None, "key", "secret")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.start()
        yield server
        server.kill()

    def test_a_store_can_be_opened_before_its_server(self, monkeypatch, tmp_path_factory):
        server = Weed(tmp_path_factory.mktemp("late"), free_port(), "key", "secret")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)

        store = open_store(server.url)
        with monkeypatch.context() as patched:
            give_up_soon(patched)
            with pytest.raises(StoreUnavailable, match=r"Connection refused.*PERDURE_STORE_URL"):
                store.put_bytes("key", b"abc")
        server.start()
        try:
            assert store.put_bytes("key", b"abc").digest == ABC
        finally:
            server.kill()

    def test_a_put_that_it_did_not_survive_leaves_nothing_and_succeeds_later(
        self, mortal, data, tmp_path, monkeypatch
    ):
        store = open_store(mortal.url)
        (tmp_path / "source").write_bytes(data)
        store.put_bytes("large", b"before")
        with monkeypatch.context() as patched:
            give_up_soon(patched)
            at_part(patched, 2, mortal.kill)
            with pytest.raises(StoreUnavailable, match="storing large"):
                store.put_file("large", tmp_path / "source")

        mortal.start()

        assert store.get_bytes("large") == b"before"
        assert list(store.sizes("")) == [("large", 6)]
        store.put_file("large", tmp_path / "source")
        assert store.get_bytes("large") == data

    def test_a_put_goes_on_when_the_server_is_soon_back(self, mortal, data, tmp_path, monkeypatch):
        store = open_store(mortal.url)
        (tmp_path / "source").write_bytes(data)

        def bounce() -> None:
            mortal.kill()
            mortal.start()

        at_part(monkeypatch, 2, bounce)
        store.put_file("large", tmp_path / "source")

        assert store.get_bytes("large") == data

    def test_a_get_that_it_did_not_survive_leaves_no_file_and_succeeds_later(
        self, mortal, tmp_path, monkeypatch
    ):
        store, data = open_store(mortal.url), os.urandom(3 * THREE_PARTS_BYTES)
        store.put_bytes("large", data)
        target = tmp_path / "target"
        target.write_bytes(b"before")
        with monkeypatch.context() as patched:
            give_up_soon(patched)
            at_chunk(patched, 2, mortal.kill)
            with pytest.raises(StoreUnavailable, match="reading large"):
                store.get_file("large", target)

        assert (files(tmp_path), target.read_bytes()) == (["target"], b"before")
        mortal.start()
        store.get_file("large", target)
        assert target.read_bytes() == data

    def test_a_read_goes_on_where_it_was_when_the_server_is_back(self, mortal):
        store, data = open_store(mortal.url), os.urandom(3 * THREE_PARTS_BYTES)
        store.put_bytes("large", data)

        with store.open("large") as opened:
            first = opened.read(1 << 20)
            mortal.kill()
            mortal.start()
            assert first + opened.read() == data

    def test_what_it_confirmed_it_has_kept(self, mortal):
        store = open_store(mortal.url)
        stored = [store.put_bytes(f"n/{number}", os.urandom(1000)) for number in range(10)]
        mortal.kill()
        mortal.start()

        for each in stored:
            assert len(store.get_bytes(each.key, digest=each.digest)) == 1000


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_transport, "RETRY_FOR_S", 1.0)


def at_part(monkeypatch: pytest.MonkeyPatch, number: int, act) -> None:
    """Call `act` once, when part `number` of a file is about to be read and sent."""
    read = s3_writes._MeasuredFile.read
    parts = 0

    def reading(self, size):
        nonlocal parts
        parts += 1
        if parts == number:
            act()
        return read(self, size)

    monkeypatch.setattr(s3_writes._MeasuredFile, "read", reading)


def at_chunk(monkeypatch: pytest.MonkeyPatch, number: int, act) -> None:
    """Call `act` once, when chunk `number` of an object is about to be read."""
    read = ObjectReader._next
    chunks = 0

    def reading(self, size):
        nonlocal chunks
        chunks += 1
        if chunks == number:
            act()
        return read(self, size)

    monkeypatch.setattr(ObjectReader, "_next", reading)


class TestAddresses:
    @pytest.fixture(autouse=True)
    def _keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")

    @pytest.mark.parametrize(
        ("url", "named"),
        [
            ("s3+http://127.0.0.1:9/bucket", "http://127.0.0.1:9/bucket"),
            ("s3+https://s3.example.com/bucket/", "https://s3.example.com/bucket"),
            ("s3+https://s3.example.com/a.b-c/far/off", "https://s3.example.com/a.b-c/far/off"),
            ("s3+https://[::1]:9/bucket?region=eu-west-1", "https://[::1]:9/bucket"),
        ],
    )
    def test_a_store_is_opened_without_its_server(self, url, named):
        assert str(open_store(url)._bucket.address) == named

    @pytest.mark.parametrize(
        "url",
        [
            "s3+http://host:9",
            "s3+http://host:9/",
            "s3+http:///bucket",
            "s3+http://host:0/bucket",
            "s3+http://host:99999/bucket",
            "s3+http://host:x/bucket",
            "s3+http://ho st:9/bucket",
            "s3+http://host:9/Bucket",
            "s3+http://host:9/b",
            "s3+http://host:9/a..b",
            "s3+http://host:9/bucket/../up",
            "s3+http://host:9/bucket//a",
            "s3+http://host:9/bucket?regio=x",
            "s3+http://host:9/bucket?region=x&region=y",
            "s3+http://host:9/bucket?region=X Y",
            "s3+http://host:9/bucket#a",
            "s3+http://[::1/bucket",
            "s3://host:9/bucket",
        ],
    )
    def test_an_address_that_is_none_is_refused(self, url):
        with pytest.raises(InvalidSetting, match=r"s3\+http://HOST:PORT/BUCKET"):
            open_store(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3+http://alice:hunter2@host:9/bucket",
            "s3+https://hunter2@host/bucket",
            "s3+http://alice:hun/hunter2@host:9/bucket",
            "s3://alice:hunter2@host/bucket",
            "s3+http://host:9/bucket?secret=hunter2",
            "file://alice:hunter2@host/folder",
        ],
    )
    def test_keys_in_an_address_are_refused_and_not_shown(self, url):
        with pytest.raises(InvalidSetting) as refused:
            open_store(url)

        assert "hunter2" not in f"{refused.value} {refused.value.__cause__}"

    def test_whoever_put_keys_into_the_address_is_told_where_they_belong(self):
        with pytest.raises(InvalidSetting, match=r"holds keys: take them out, and set AWS_ACCESS"):
            open_store("s3+http://alice:hunter2@host:9/bucket")

    def test_keys_can_be_printed_without_their_secret(self, monkeypatch):
        monkeypatch.setenv("AWS_SESSION_TOKEN", "the-token")

        assert repr(read_credentials()) == "Credentials(access_key='the-key')"

    def test_a_file_with_a_key_that_cannot_be_read_is_named(self, monkeypatch, tmp_path):
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY_FILE", str(tmp_path / "none"))

        with pytest.raises(InvalidSetting, match=r"AWS_SECRET_ACCESS_KEY_FILE names .*none"):
            open_store("s3+http://127.0.0.1:9/bucket")

    @pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
    def test_missing_keys_are_named(self, monkeypatch, missing):
        monkeypatch.delenv(missing)

        with pytest.raises(InvalidSetting, match=f"{missing} is not set"):
            open_store("s3+http://127.0.0.1:9/bucket")

    def test_a_key_too_long_for_its_prefix_is_refused(self):
        store = open_store(f"s3+http://127.0.0.1:9/bucket/{'p' * 100}")

        with pytest.raises(InvalidInput, match="prefix"):
            store.put_bytes("/".join(["x" * 99] * 10), b"")
