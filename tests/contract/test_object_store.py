"""What every object store does, and what a folder does besides."""

import io
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.artifacts import ObjectStore, StoredObject, open_store
from perdure.errors import DamagedObject, InvalidInput, InvalidSetting, NotFound, StoreUnavailable

# `printf abc | b3sum`, and the empty input of the BLAKE3 test vectors.
ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
EMPTY = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store((tmp_path / "store").as_uri())
    return open_store(request.getfixturevalue("s3_url"))


def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [stored.key for stored in store.list(prefix)]


def test_bytes_come_back_with_digest_and_size(store):
    stored = store.put_bytes("a/b/c.bin", b"abc")

    assert stored == StoredObject("a/b/c.bin", ABC, 3)
    assert store.stat("a/b/c.bin") == stored
    assert store.get_bytes("a/b/c.bin") == b"abc"
    assert store.get_bytes("a/b/c.bin", digest=ABC) == b"abc"


def test_an_empty_object_is_an_object(store):
    assert store.put_bytes("empty", b"") == StoredObject("empty", EMPTY, 0)
    assert store.get_bytes("empty") == b""


def test_files_and_streams_are_stored_as_bytes_are(store, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"abc")

    assert store.put_file("from-file", source) == StoredObject("from-file", ABC, 3)
    stored = store.put_stream("from-stream", io.BytesIO(b"abc"), max_bytes=3)
    assert stored == StoredObject("from-stream", ABC, 3)
    with store.open("from-stream") as opened:
        assert opened.read() == b"abc"


def test_get_file_writes_a_checked_copy(store, tmp_path):
    store.put_bytes("key", b"abc")
    target = tmp_path / "copy"
    target.write_bytes(b"before")

    assert store.get_file("key", target) == StoredObject("key", ABC, 3)
    assert target.read_bytes() == b"abc"


def test_a_wrong_digest_gives_no_bytes_and_no_file(store, tmp_path):
    store.put_bytes("key", b"abc")

    with pytest.raises(DamagedObject, match="key"):
        store.get_bytes("key", digest=EMPTY)
    with pytest.raises(DamagedObject):
        store.get_file("key", tmp_path / "copy", digest=EMPTY)
    assert [path.name for path in tmp_path.iterdir() if path.name != "store"] == []


def test_a_stream_past_its_bound_stores_nothing_and_keeps_what_was_there(store):
    store.put_bytes("key", b"before")

    with pytest.raises(InvalidInput, match="more than 3 bytes"):
        store.put_stream("key", io.BytesIO(b"abcd"), max_bytes=3)

    assert store.get_bytes("key") == b"before"


def test_a_stream_that_breaks_off_stores_nothing(store):
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise InvalidInput("the sender went away")

    with pytest.raises(InvalidInput, match="went away"):
        store.put_stream("key", Broken(), max_bytes=10)

    assert store.stat("key") is None
    assert keys(store, "") == []


def test_putting_again_replaces(store):
    store.put_bytes("key", b"long before")
    store.put_bytes("key", b"abc")

    assert store.get_bytes("key") == b"abc"
    assert keys(store, "") == ["key"]


@pytest.mark.parametrize("read", ["get_bytes", "open"])
def test_reading_what_is_not_there_is_not_found(store, read):
    store.put_bytes("a/b", b"abc")

    for key in ("missing", "a", "a/b/c"):
        with pytest.raises(NotFound, match=key):
            getattr(store, read)(key)
    assert store.stat("missing") is None


def test_list_gives_keys_in_order_by_prefix(store):
    for key in ("b", "a/b", "a-b", "a/a/z", "a.b", "ab"):
        store.put_bytes(key, b"abc")

    # '-' < '.' < '/' < letters, as S3 orders UTF-8 bytes
    assert keys(store, "") == ["a-b", "a.b", "a/a/z", "a/b", "ab", "b"]
    assert keys(store, "a/") == ["a/a/z", "a/b"]
    assert keys(store, "a/a") == ["a/a/z"]
    assert keys(store, "a") == ["a-b", "a.b", "a/a/z", "a/b", "ab"]
    assert keys(store, "nothing/") == []


def test_sizes_are_those_of_the_listed_objects(store):
    for key in ("b", "a/b", "a-b"):
        store.put_bytes(key, b"abc" * len(key))

    assert list(store.sizes("a")) == [("a-b", 9), ("a/b", 9)]
    assert list(store.sizes("")) == [("a-b", 9), ("a/b", 9), ("b", 3)]
    assert list(store.sizes("nothing/")) == []


def test_a_key_may_begin_another_key(store):
    store.put_bytes("a", b"one")
    store.put_bytes("a/b", b"two")
    assert (store.get_bytes("a"), store.get_bytes("a/b")) == (b"one", b"two")

    store.delete("a")
    store.delete("a")
    assert keys(store, "") == ["a/b"]


def test_an_opened_object_is_read_from_where_one_wants(store):
    store.put_bytes("key", b"0123456789")

    with store.open("key") as opened:
        opened.seek(7)
        assert opened.read(2) == b"78"
        opened.seek(0)
        assert opened.read() == b"0123456789"
        assert opened.read() == b""


def test_a_copy_outlives_its_source(store):
    store.put_bytes("source", b"abc")

    assert store.copy("source", "far/target") == StoredObject("far/target", ABC, 3)
    store.delete("source")
    assert store.get_bytes("far/target") == b"abc"
    with pytest.raises(NotFound):
        store.copy("source", "other")


def test_delete_removes_and_may_be_repeated(store):
    store.put_bytes("a/b", b"abc")
    store.delete("a/b")
    store.delete("a/b")

    assert store.stat("a/b") is None
    assert keys(store, "") == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../../up",
        "a/./b",
        "a//b",
        "a/",
        ".",
        "..",
        "a\\b",
        "a\0b",
        "a b",
        "a@b",
        "a\n",
        "ä",
        "C:x",
        "x" * 201,
        "/".join(["x" * 100] * 11),
    ],
)
def test_hostile_keys_are_refused_by_every_method(store, key, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"abc")
    store.put_bytes("good", b"abc")

    for attempt in (
        lambda: store.put_bytes(key, b"abc"),
        lambda: store.put_file(key, source),
        lambda: store.put_stream(key, io.BytesIO(b"abc"), max_bytes=9),
        lambda: store.get_bytes(key),
        lambda: store.get_file(key, tmp_path / "target"),
        lambda: store.open(key),
        lambda: store.stat(key),
        lambda: store.copy(key, "target"),
        lambda: store.copy("good", key),
        lambda: store.delete(key),
    ):
        with pytest.raises(InvalidInput, match="key"):
            attempt()
    assert keys(store, "") == ["good"]


@pytest.mark.parametrize("prefix", ["../", "/", "a/../", "./a", "a\\", "a b"])
def test_hostile_prefixes_are_refused(store, prefix):
    for listing in (store.list, store.sizes):
        with pytest.raises(InvalidInput, match="prefix"):
            list(listing(prefix))


def test_readers_see_whole_objects_while_writers_replace_them(store):
    contents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    store.put_bytes("key", contents[0])
    done = threading.Event()

    def write(content: bytes) -> None:
        for _ in range(25):
            store.put_bytes("key", content)

    def read() -> int:
        reads = 0
        while not done.is_set():
            assert store.get_bytes("key") in contents
            assert store.stat("key").size_bytes == 100_000
            store.copy("key", "copy")
            assert store.get_bytes("copy") in contents
            reads += 1
        return reads

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writers = [pool.submit(write, content) for content in contents]
        try:
            for writer in writers:
                writer.result(timeout=60)
        finally:
            done.set()
        assert all(reader.result(timeout=60) > 0 for reader in readers)
    assert store.get_bytes("key") in contents


class TestFolder:
    """What holds for the folder in particular."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    @pytest.fixture
    def store(self, root: Path) -> ObjectStore:
        return open_store(root.as_uri())

    def data_files(self, root: Path) -> list[Path]:
        return [path for path in (root / "data").rglob("*") if path.is_file()]

    def test_another_instance_sees_the_objects(self, store, root):
        store.put_bytes("key", b"abc")

        assert open_store(root.as_uri()).get_bytes("key") == b"abc"

    def test_replaced_and_deleted_bytes_leave_the_disk(self, store, root):
        store.put_bytes("key", b"before")
        store.put_bytes("key", b"abc")
        store.copy("key", "copy")
        store.delete("key")

        assert [path.read_bytes() for path in self.data_files(root)] == [b"abc"]
        assert list((root / "tmp").iterdir()) == []

    def test_bytes_that_changed_on_disk_are_noticed(self, store, root, tmp_path):
        store.put_bytes("key", b"abc")
        self.data_files(root)[0].write_bytes(b"abd")

        with pytest.raises(DamagedObject, match="store it again"):
            store.get_bytes("key")
        with pytest.raises(DamagedObject):
            store.get_file("key", tmp_path / "copy")
        assert not (tmp_path / "copy").exists()

    def test_bytes_that_are_gone_are_damage_and_not_absence(self, store, root):
        store.put_bytes("key", b"abc")
        self.data_files(root)[0].unlink()

        for read in (store.get_bytes, store.stat, store.open):
            with pytest.raises(DamagedObject, match="gone"):
                read("key")

    def test_a_moved_store_still_holds_its_objects(self, store, root, tmp_path):
        store.put_bytes("a/b", b"abc")
        root.rename(tmp_path / "moved")

        assert open_store((tmp_path / "moved").as_uri()).get_bytes("a/b") == b"abc"

    def test_a_disk_that_fails_is_unavailable_and_says_what_to_do(self, store, root):
        (root / "tmp").rmdir()
        (root / "tmp").write_text("in the way")

        with pytest.raises(StoreUnavailable, match=r"storing key.*writable"):
            store.put_bytes("key", b"abc")

    def test_what_killed_processes_left_is_removed_after_a_day(self, store, root):
        for name, age_s in (("old", 90_000), ("fresh", 80_000)):
            (root / "tmp" / name).write_bytes(b"half")
            os.utime(root / "tmp" / name, (time.time() - age_s,) * 2)

        open_store(root.as_uri())

        assert [path.name for path in (root / "tmp").iterdir()] == ["fresh"]

    def test_bytes_and_names_are_on_disk_before_a_put_returns(self, store, root, monkeypatch):
        synced = []
        monkeypatch.setattr(
            "os.fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        )

        store.put_bytes("a/b", b"abc")

        # New folders are made durable in between; in the end: bytes, their name, the key's name.
        data = root / "data" / ABC[:2]
        last = [
            path
            for path in synced
            if path.parent == root / "tmp" or path in (data, root / "keys/a")
        ]
        assert [path.parent for path in last] == [root / "tmp", root / "data", root / "keys"]

    def test_a_full_disk_leaves_the_old_object(self, store, monkeypatch):
        store.put_bytes("key", b"before")

        def full(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("perdure.artifacts.folder.os.fsync", full)
            with pytest.raises(StoreUnavailable, match="free some space"):
                store.put_bytes("key", b"abc")

        assert store.get_bytes("key") == b"before"


@pytest.mark.parametrize(
    "url", ["", "/plain/path", "s3://bucket", "file://host/path", "file:relative", "file:///a?b"]
)
def test_urls_that_name_no_store_are_refused(url):
    with pytest.raises(InvalidSetting, match="file:///"):
        open_store(url)
