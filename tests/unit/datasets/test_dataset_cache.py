import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.artifacts import ObjectStore, open_store
from perdure.datasets.cache import LocalDataset, load_local, materialise
from perdure.datasets.check import check
from perdure.datasets.snapshot import blob_key, store_images, store_manifest, store_split
from perdure.datasets.split import make_split
from perdure.errors import DamagedObject, NotFound
from tests.builders.datasets import picture, write_files, yolo_files

IMAGES = 6


class World:
    """A data set of six images in a store; images 0 and 5 are byte-identical."""

    def __init__(self, folder: Path) -> None:
        files = yolo_files(IMAGES) | {"images/5.jpg": picture(0), "labels/1.txt": ""}
        checked = check(write_files(folder / "set", files))
        assert checked.manifest is not None
        self.url = (folder / "store").as_uri()
        self.store: ObjectStore = open_store(self.url)
        self.manifest = checked.manifest
        self.split = make_split(self.manifest, seed=1, val_ratio=0.4)
        self.progress: list[tuple[int, int]] = []
        store_images(
            self.store, self.manifest, checked.files, lambda *step: self.progress.append(step)
        )
        store_manifest(self.store, self.manifest)
        store_split(self.store, self.split)
        self.root = folder / "cache"
        self.target = self.root / f"{self.manifest.version}-{self.split.split_id[:16]}"

    def materialise(self, progress=None) -> LocalDataset:
        return materialise(
            self.store, self.manifest.version, self.split.split_id, self.root, progress
        )

    def command(self, *extra: str) -> list[str]:
        code = (
            "import os, sys; from pathlib import Path; from perdure.artifacts import open_store; "
            "from perdure.datasets.cache import materialise; "
            f"materialise(open_store({self.url!r}), {self.manifest.version!r}, "
            f"{self.split.split_id!r}, Path({str(self.root)!r}), {', '.join(extra) or None})"
        )
        return [sys.executable, "-c", code]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if not path.name.endswith(".lock")}


def test_identical_images_are_stored_once(world):
    assert len(list(world.store.list("datasets/blobs/"))) == IMAGES - 1
    assert world.progress[-1] == (IMAGES - 1, IMAGES - 1)


def test_the_cache_holds_original_bytes_and_yolo_labels(world, tmp_path):
    local = world.materialise()

    assert (local.root, local.version) == (world.target, world.manifest.version)
    assert (local.split_id, local.classes) == (world.split.split_id, ("bird",))
    assert [image.sample_id for image in local.train] == list(world.split.train)
    assert [image.sample_id for image in local.val] == list(world.split.val)
    for side, images in (("train", local.train), ("val", local.val)):
        for image in images:
            assert image.path.parent == world.target / "images" / side
            assert image.path.read_bytes() == (tmp_path / "set" / image.sample_id).read_bytes()
            assert (image.width, image.height) == (32, 24)
            labels = world.target / "labels" / side / f"{image.path.stem}.txt"
            background = image.sample_id == "images/1.jpg"
            assert labels.read_text() == ("" if background else "0 0.5 0.5 0.2 0.4\n")
            assert image.boxes == (() if background else ((0, 0.5, 0.5, 0.2, 0.4),))


def test_a_second_call_copies_nothing_and_needs_no_store(world, tmp_path):
    first = world.materialise()
    shutil.rmtree(tmp_path / "store")

    assert world.materialise() == first
    assert load_local(world.target) == first


def a_file(world: World) -> Path:
    return next((world.target / "images").rglob("*.jpg"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda world: a_file(world).write_bytes(b"short"),
        lambda world: a_file(world).unlink(),
        lambda world: next((world.target / "labels").rglob("*.txt")).unlink(),
        lambda world: (world.target / "manifest.json").unlink(),
        lambda world: (world.target / "manifest.json").write_text("{}"),
        lambda world: (world.target / "manifest.json").write_bytes(b"\xff"),
        lambda world: (world.target / "split.json").write_text("{}"),
        lambda world: shutil.rmtree(world.target / "images"),
    ],
)
def test_a_damaged_cache_is_never_used_and_built_again(world, damage):
    first = world.materialise()
    damage(world)

    with pytest.raises(DamagedObject, match=r"manifest|split|missing"):
        load_local(world.target)
    assert world.materialise() == first
    assert load_local(world.target) == first
    assert names_in(world.root) == {world.target.name}


def a_folder_instead_of(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_file_instead_of(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


@pytest.mark.parametrize(
    "damage",
    [
        lambda world: a_folder_instead_of(world.target / "manifest.json"),
        lambda world: a_file_instead_of(world.target / "images"),
        lambda world: a_file_instead_of(world.target),
    ],
)
def test_a_cache_whose_files_and_folders_changed_places_is_built_again(world, damage):
    first = world.materialise()
    damage(world)
    assert world.materialise() == first
    assert load_local(world.target) == first


def test_progress_counts_images(world):
    seen = []
    world.materialise(lambda *step: seen.append(step))
    assert seen == [(done, IMAGES) for done in range(1, IMAGES + 1)]


def test_a_blob_that_changed_in_the_store_gives_no_cache(world):
    image = world.manifest.images[0]
    world.store.put_bytes(blob_key(image.digest), b"other bytes")

    with pytest.raises(DamagedObject, match=image.digest):
        world.materialise()
    assert names_in(world.root) == set()


def test_a_missing_version_or_split_is_not_found(world, tmp_path):
    with pytest.raises(NotFound):
        materialise(world.store, "ab" * 32, world.split.split_id, tmp_path / "cache")
    with pytest.raises(NotFound):
        materialise(world.store, world.manifest.version, "ab" * 32, tmp_path / "cache")


def test_a_split_of_another_version_is_refused(world, tmp_path):
    files = yolo_files(3)
    other = check(write_files(tmp_path / "other", files)).manifest
    split = make_split(other, seed=1, val_ratio=0.4)
    store_split(world.store, split)

    with pytest.raises(DamagedObject, match="belongs to"):
        materialise(world.store, world.manifest.version, split.split_id, world.root)


def test_an_error_in_the_middle_leaves_nothing_behind(world):
    class Interrupted(Exception):
        pass

    def interrupt(done: int, _total: int) -> None:
        if done == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        world.materialise(interrupt)
    assert names_in(world.root) == set()


@pytest.mark.crash
def test_what_a_killed_process_leaves_is_cleared_away(world):
    died = subprocess.run(
        world.command("lambda done, total: done == 3 and os.kill(os.getpid(), 9)"), timeout=60
    )
    assert died.returncode == -9
    assert names_in(world.root) == {f".{world.target.name}.building"}

    world.materialise()

    assert names_in(world.root) == {world.target.name}


@pytest.mark.crash
def test_two_processes_at_once_make_one_cache(world):
    processes = [subprocess.Popen(world.command()) for _ in range(2)]
    try:
        assert [process.wait(timeout=60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait(timeout=10)

    assert names_in(world.root) == {world.target.name}
    assert len(load_local(world.target).train) == len(world.split.train)


def test_waiting_for_another_process_is_reported(world):
    world.root.mkdir()
    held = os.open(world.root / f".{world.target.name}.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    seen = []

    def release_at_first(*step: int) -> None:
        if not seen:
            os.close(held)
        seen.append(step)

    world.materialise(release_at_first)

    assert seen[0] == (0, IMAGES)
    assert seen[-1] == (IMAGES, IMAGES)
