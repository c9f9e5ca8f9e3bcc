"""Completing a thin archive: what it names is hostile, and so may be what lies beside."""

import json
from pathlib import Path

import pytest

from perdure.artifacts import ObjectStore, open_store
from perdure.artifacts.archive import ArchiveLimits
from perdure.datasets.snapshot import blob_key
from perdure.datasets.thin_archive import IMAGES_FILE
from perdure.errors import NotFound, UnsafeArchive
from perdure_data_prep.thin_archive import complete_folder
from tests.builders.datasets import write_files
from tests.builders.gateway import digest_of

DATA = b"the bytes of an image"
DIGEST = digest_of(DATA)
GOOD = {"digest": DIGEST, "size_bytes": len(DATA)}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = open_store((tmp_path / "store").as_uri())
    store.put_bytes(blob_key(DIGEST), DATA)
    return store


def complete(store: ObjectStore, folder: Path, named: object, **limits: int) -> set[str]:
    write_files(folder, {IMAGES_FILE: json.dumps(named), "labels/a.txt": b"0 0.5 0.5 1 1"})
    seen: list[tuple[str, int, int]] = []
    digests = complete_folder(
        store, folder, 100, lambda *step: seen.append(step), limits=ArchiveLimits(**limits)
    )
    assert isinstance(named, dict)
    assert seen == [("collecting", done, len(named)) for done in range(len(named) + 1)]
    return digests


def refused(store: ObjectStore, folder: Path, named: object, **limits: int) -> str:
    """The code; nothing was fetched."""
    with pytest.raises(UnsafeArchive) as caught:
        complete(store, folder, named, **limits)
    assert [path for path in folder.rglob("*") if path.suffix == ".jpg"] == []
    return str(caught.value.details["code"])


def test_what_is_named_is_put_where_it_belongs(store, tmp_path):
    folder = tmp_path / "unpacked"
    assert complete(store, folder, {"a/b.jpg": GOOD, "c.jpg": GOOD}) == {DIGEST}
    assert (folder / "a/b.jpg").read_bytes() == (folder / "c.jpg").read_bytes() == DATA
    assert not (folder / IMAGES_FILE).exists()


def test_an_archive_with_all_its_images_is_left_alone(store, tmp_path):
    folder = write_files(tmp_path / "unpacked", {"a.jpg": DATA})
    assert complete_folder(store, folder, 100, lambda *_: pytest.fail("nothing to do")) == set()


@pytest.mark.parametrize("name", ["labels/a.txt/b.jpg", "../a.jpg", "/a.jpg", "labels.jpg/../x"])
def test_names_that_lead_elsewhere_or_into_a_file_are_refused(store, tmp_path, name):
    code = refused(store, tmp_path / "unpacked", {name: GOOD})
    assert code in ("archive.duplicate-name", "archive.path-escape")
    assert not (tmp_path / "a.jpg").exists()


def test_a_name_that_is_there_already_is_refused(store, tmp_path):
    folder = write_files(tmp_path / "unpacked", {"a.jpg": b"there"})
    with pytest.raises(UnsafeArchive) as caught:
        complete(store, folder, {"a.jpg": GOOD})
    assert caught.value.details["code"] == "archive.duplicate-name"
    assert (folder / "a.jpg").read_bytes() == b"there"
    write_files(tmp_path / "other", {"a.jpg/x.txt": b""})
    with pytest.raises(UnsafeArchive, match="a file and a folder"):
        complete(store, tmp_path / "other", {"a.jpg": GOOD})
    doubled = write_files(
        tmp_path / "doubled",
        {IMAGES_FILE: f'{{"b.jpg": {json.dumps(GOOD)}, "b.jpg": {json.dumps(GOOD)}}}'},
    )
    with pytest.raises(UnsafeArchive, match="two entries"):
        complete_folder(store, doubled, 100, lambda *_: None)


def test_more_files_or_bytes_than_an_archive_may_have_are_refused(store, tmp_path):
    named = {f"{number}.jpg": GOOD for number in range(3)}
    total_bytes = 3 * len(DATA) + 13
    folder = tmp_path / "unpacked"
    assert refused(store, folder, named, max_entries=3) == "archive.too-many-entries"
    assert refused(store, folder, named, max_bytes=total_bytes - 1) == "archive.too-large"
    complete(store, folder, named, max_entries=4, max_bytes=total_bytes)


def test_few_images_in_many_folders_are_refused(store, tmp_path):
    named = {f"{number}{'/a' * 19}/b.jpg": GOOD for number in range(10)}
    folder = tmp_path / "unpacked"
    assert refused(store, folder, named, max_entries=201) == "archive.too-many-entries"
    complete(store, folder, named, max_entries=202)  # with the top, and the one for labels


def test_one_image_under_a_thousand_names_is_a_bomb(store, tmp_path):
    named = {f"{number}.jpg": GOOD for number in range(1000)}
    code = refused(store, tmp_path / "one", named, ratio_free_bytes=0)
    assert code == "archive.bomb"


def test_a_false_size_is_refused_and_what_came_is_not_kept(store, tmp_path):
    named = {"a.jpg": GOOD | {"size_bytes": 1}}
    assert refused(store, tmp_path / "unpacked", named) == "archive.broken"


def test_nothing_but_images_is_read_from_the_store(store, tmp_path):
    secret = store.put_bytes("models/m/model.onnx", b"secret")
    named = {"a.jpg": {"digest": secret.digest, "size_bytes": 6}}
    with pytest.raises(NotFound, match=r"1 of 1 images .*a\.jpg"):
        complete(store, tmp_path / "unpacked", named)
