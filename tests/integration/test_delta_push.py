"""A push sends what changed, and nothing else; what the store damaged is mended."""

import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from perdure.artifacts.port import StoredObject
from perdure.client import Client, blobs
from perdure.datasets.check import check
from perdure.datasets.rules import ImportRules
from perdure.datasets.snapshot import blob_key
from perdure.datasets.thin_archive import IMAGES_FILE
from perdure.errors import DamagedObject, InvalidInput, NotFound, StoreUnavailable
from perdure_data_prep.importing import Imported, import_archive
from tests.builders.datasets import picture, write_files, yolo_files
from tests.builders.formats import in_format
from tests.builders.gateway import ServerThread, World, digest_of
from tests.builders.packing import pack_folder


@dataclass
class Wire(httpx.BaseTransport):
    """A real connection that notes what went through it."""

    requests: list[tuple[str, str, int]] = field(default_factory=list)
    broken_puts: int = 0  # so many PUTs to come find a server that has no time
    _real: httpx.HTTPTransport = field(default_factory=httpx.HTTPTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        size_bytes = int(request.headers.get("content-length", 0))
        self.requests.append((request.method, request.url.path, size_bytes))
        if request.method == "PUT" and self.broken_puts:
            self.broken_puts -= 1
            raise httpx.RemoteProtocolError("the server went away")
        return self._real.handle_request(request)

    def close(self) -> None:
        self._real.close()

    def puts(self) -> list[str]:
        return [path for method, path, _ in self.requests if method == "PUT"]


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def client(world, wire):
    with ServerThread(world) as server, Client(server.url, transport=wire) as client:
        yield client


@pytest.fixture
def each_apart(monkeypatch):
    """Every image is one that travels in a request of its own."""
    monkeypatch.setattr(blobs, "SMALL_BYTES", 0)


def push(client: Client, world: World, path: Path, work_dir: Path) -> str:
    """Upload and import; gives the version."""
    upload = client.upload(path)
    work_dir.mkdir(exist_ok=True)
    done = import_archive(
        world.store,
        StoredObject(**upload),
        "birds",
        rules=ImportRules(),
        val_ratio=0.4,
        seed=7,
        work_dir=work_dir,
        progress=lambda _phase, _step, _steps: None,
    )
    assert isinstance(done, Imported), done
    assert list(work_dir.iterdir()) == []
    return done.prepared.dataset_version


def archived(world: World, upload: dict) -> list[str]:
    """The names in an uploaded archive."""
    with world.store.open(upload["key"]) as stored, zipfile.ZipFile(stored) as archive:
        return archive.namelist()


def test_only_the_changed_image_travels(client, world, wire, each_apart, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(5))
    first = push(client, world, folder, tmp_path / "job")
    assert first == check(folder).manifest.version
    assert len(wire.puts()) == 5

    wire.requests.clear()
    changed = picture(77)
    write_files(folder, {"images/3.jpg": changed, "labels/1.txt": "0 0.25 0.5 0.2 0.4\n"})
    second = push(client, world, folder, tmp_path / "job")
    assert second == check(folder).manifest.version
    assert second != first
    puts = [request for request in wire.requests if request[0] == "PUT"]
    assert puts == [("PUT", f"/v1/blobs/{digest_of(changed)}", len(changed))]

    wire.requests.clear()
    folder.rename(tmp_path / "renamed")
    assert push(client, world, tmp_path / "renamed", tmp_path / "job") == second
    assert wire.puts() == []


def test_small_images_go_along_in_the_archive(client, world, wire, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(5) | {"images/4.jpg": picture(0)})
    images = [f"images/{number}.jpg" for number in range(5)]
    upload = client.upload(folder)
    assert [name for name in archived(world, upload) if name.endswith(".jpg")] == images
    assert IMAGES_FILE not in archived(world, upload)
    first = push(client, world, folder, tmp_path / "job")

    write_files(folder, {"images/3.jpg": picture(77)})
    names = archived(world, client.upload(folder))
    assert [name for name in names if name.endswith(".jpg")] == ["images/3.jpg"]
    second = push(client, world, folder, tmp_path / "job")
    assert second == check(folder).manifest.version != first

    folder.rename(tmp_path / "renamed")
    upload = client.upload(tmp_path / "renamed")
    assert [name for name in archived(world, upload) if name.endswith(".jpg")] == []
    assert push(client, world, tmp_path / "renamed", tmp_path / "job") == second
    assert wire.puts() == []


def test_no_more_than_so_much_goes_along(client, world, wire, monkeypatch, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(5))
    size_bytes = (folder / "images/0.jpg").stat().st_size
    monkeypatch.setattr(blobs, "ALONG_MAX_BYTES", size_bytes)
    push(client, world, folder, tmp_path / "job")
    assert len(wire.puts()) == 4


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", ["coco", "voc", "csv", "labelme", "cvat", "label-studio"])
def test_every_format_arrives_as_the_version_it_is(
    client, world, monkeypatch, tmp_path, name, small_bytes
):
    monkeypatch.setattr(blobs, "SMALL_BYTES", small_bytes)
    folder = write_files(tmp_path / "set", in_format(name))
    version = check(folder).manifest.version
    for _ in range(2):
        assert push(client, world, folder, tmp_path / "job") == version


def test_many_are_asked_for_in_pieces_and_equal_ones_sent_once(
    client, world, wire, each_apart, monkeypatch, tmp_path
):
    monkeypatch.setattr(blobs, "ASK_AT_ONCE", 2)
    folder = write_files(tmp_path / "set", yolo_files(5) | {"images/4.jpg": picture(0)})
    seen = []
    client.upload(folder, lambda done, total: seen.append((done, total)))
    assert [path for _, path, _ in wire.requests].count("/v1/blobs/missing") == 3
    assert len(wire.puts()) == 4
    images_bytes = sum(path.stat().st_size for path in (folder / "images").iterdir())
    assert (images_bytes, images_bytes) in seen
    assert seen[-1][0] == seen[-1][1] > images_bytes
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_connection_that_breaks_is_taken_up_again(client, world, wire, each_apart, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(3))
    wire.broken_puts = 2
    assert push(client, world, folder, tmp_path / "job") == check(folder).manifest.version
    assert len(wire.puts()) == 5


def test_a_push_that_broke_off_goes_on_where_it_was(
    client, world, wire, each_apart, monkeypatch, tmp_path
):
    folder = write_files(tmp_path / "set", yolo_files(4))
    put, stored = world.store.put_file, []

    def full_after_two(key, path):
        if len(stored) == 2:
            raise StoreUnavailable("the disk is full")
        stored.append(key)
        return put(key, path)

    monkeypatch.setattr(blobs, "THREADS", 1)
    monkeypatch.setattr("perdure.client.connection.RETRY_DELAYS_S", ())
    monkeypatch.setattr(world.store, "put_file", full_after_two)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        client.upload(folder)
    monkeypatch.setattr(world.store, "put_file", put)
    wire.requests.clear()
    client.upload(folder)
    assert len(wire.puts()) == 2


def test_a_file_that_changes_while_it_is_sent_is_refused(
    client, world, each_apart, monkeypatch, tmp_path
):
    folder = write_files(tmp_path / "set", yolo_files(2))
    ask = blobs._missing

    def meanwhile(new: bytes):
        def missing(connection, digests):
            found = ask(connection, digests)
            (folder / "images/1.jpg").write_bytes(new)
            return found

        monkeypatch.setattr(blobs, "_missing", missing)

    meanwhile(b"x")
    with pytest.raises(InvalidInput, match=r"1\.jpg became shorter"):
        client.upload(folder)
    write_files(folder, {"images/1.jpg": picture(1)})
    meanwhile(b"x" * 100_000)
    with pytest.raises(InvalidInput, match="was changed while it was sent"):
        client.upload(folder)


def test_the_name_of_the_list_is_taken(client, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(2) | {IMAGES_FILE: "{}"})
    with pytest.raises(InvalidInput, match="rename it"):
        client.upload(folder)


DAMAGE = {
    "a byte": lambda content: content[:-1] + b"x",
    "cut off": lambda content: content[:-1],
    "empty": lambda _content: b"",
    "longer": lambda content: content + b"x",
}


@pytest.mark.parametrize("damaged", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_image_is_named_removed_and_sent_again(
    client, world, wire, each_apart, tmp_path, damaged
):
    folder = write_files(tmp_path / "set", yolo_files(4))
    version = push(client, world, folder, tmp_path / "job")
    for number in (1, 2):
        world.damage(picture(number), damaged(picture(number)))
    with pytest.raises(DamagedObject, match=r"2 of 4 images .*images/1\.jpg.* Push the data set"):
        push(client, world, folder, tmp_path / "job")

    wire.requests.clear()
    assert push(client, world, folder, tmp_path / "job") == version
    assert sorted(wire.puts()) == sorted(f"/v1/blobs/{digest_of(picture(n))}" for n in (1, 2))
    for number in (1, 2):
        key = blob_key(digest_of(picture(number)))
        assert world.store.get_bytes(key) == picture(number)


def test_damage_on_the_way_is_no_damage_in_the_store(client, world, monkeypatch, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(3))
    version = push(client, world, folder, tmp_path / "job")
    get, failed = world.store.get_file, []

    def damaged_once(key, path, *, digest=None):
        if "blobs" in key and key not in failed:
            failed.append(key)
            raise DamagedObject(f"object {key} has another digest")
        return get(key, path, digest=digest)

    monkeypatch.setattr(world.store, "get_file", damaged_once)
    assert push(client, world, folder, tmp_path / "job") == version
    assert len(failed) == 3


def test_a_zip_pushed_again_mends_a_damaged_image_too(client, world, wire, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(4))
    archive = pack_folder(folder, tmp_path / "birds.zip")
    version = push(client, world, archive, tmp_path / "job")
    world.damage(picture(2))
    assert push(client, world, archive, tmp_path / "job") == version
    assert world.store.get_bytes(blob_key(digest_of(picture(2)))) == picture(2)
    assert [path for _, path, _ in wire.requests if "blobs" in path] == []


def test_an_image_that_was_lost_is_named(client, world, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(4))
    push(client, world, folder, tmp_path / "job")
    upload = client.upload(folder)
    world.store.delete(blob_key(digest_of(picture(3))))
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "job").mkdir()
    with pytest.raises(NotFound, match=r"1 of 4 images .*images/3\.jpg"):
        import_archive(
            world.store,
            StoredObject(**upload),
            "birds",
            rules=ImportRules(),
            val_ratio=0.4,
            seed=7,
            work_dir=tmp_path / "job",
            progress=lambda _phase, _step, _steps: None,
        )
    assert list((tmp_path / "job").iterdir()) == []
