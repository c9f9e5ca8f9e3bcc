import errno
import fcntl
import logging
import os
import shutil
from pathlib import Path

import pytest

from perdure.datasets.cache import load_local, materialise
from perdure.datasets.cache_room import evict, make_room
from perdure.datasets.check import check
from perdure.datasets.snapshot import blob_key, store_split
from perdure.datasets.split import make_split
from perdure.errors import AttemptError, DamagedObject
from tests.builders.cached_datasets import IMAGES, World, whole
from tests.builders.datasets import write_files, yolo_files

DEADLINE_S = 60


MATERIALISE = "materialise(store, version, split_id, root)"
USE = "data = load_local(target); print('used', flush=True); sys.stdin.read()"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_identical_images_are_stored_once(world):
    assert len(list(world.store.list("datasets/blobs/"))) == IMAGES - 1
    assert world.progress[-1] == (IMAGES - 1, IMAGES - 1)


def test_the_cache_holds_original_bytes_and_boxes_come_from_the_manifest(world):
    local = world.materialise()

    assert (local.root, local.version) == (world.target, world.manifest.version)
    assert (local.split_id, local.classes) == (world.split.split_id, ("bird",))
    assert [image.sample_id for image in local.train] == list(world.split.train)
    assert [image.sample_id for image in local.val] == list(world.split.val)
    for side, images in (("train", local.train), ("val", local.val)):
        for image in images:
            assert image.path.parent == world.target / "images" / side
            assert (image.width, image.height) == (32, 24)
            background = image.sample_id == "images/1.jpg"
            assert image.boxes == (() if background else ((0, 0.5, 0.5, 0.2, 0.4),))
    assert whole(world, local)
    assert names_in(world.target) == {"images", "manifest.json", "split.json", "in-use"}
    assert names_in(world.root) == {world.target.name}


def test_a_second_call_copies_nothing_and_needs_no_store(world, tmp_path):
    first = world.materialise()
    shutil.rmtree(tmp_path / "store")

    assert world.materialise() == first
    assert load_local(world.target) == first


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, Path.unlink], ids=lambda f: f.__name__)
def test_a_damaged_image_is_fetched_again_alone_and_told(world, damage, caplog):
    first = world.materialise()
    image = first.train[1]
    damage(image.path)
    world.store.copied.clear()

    with caplog.at_level(logging.WARNING):
        again = world.materialise()

    digest = next(each.digest for each in world.manifest.images if each.path == image.sample_id)
    assert world.store.copied == [blob_key(digest)]
    assert again == first
    assert whole(world, again)
    (line,) = [record.message for record in caplog.records]
    assert f"1 of {IMAGES + 2} files" in line
    assert f"({image.sample_id})" in line


@pytest.mark.parametrize("damage", [truncate, Path.unlink], ids=lambda f: f.__name__)
def test_what_has_lost_bytes_is_not_read_without_a_check_either(world, damage):
    image = world.materialise().train[0]
    damage(image.path)
    with pytest.raises(DamagedObject, match=image.path.name):
        load_local(world.target)


@pytest.mark.parametrize("name", ["manifest.json", "split.json"])
@pytest.mark.parametrize(
    "damage",
    [flip_a_bit, Path.unlink, lambda path: path.write_text("{}"), lambda p: p.write_bytes(b"\xff")],
)
def test_a_damaged_manifest_or_split_is_written_again_and_no_image_copied(
    world, name, damage, caplog
):
    first = world.materialise()
    damage(world.target / name)
    world.store.copied.clear()

    with pytest.raises(DamagedObject, match=r"manifest|split"):
        load_local(world.target)
    assert world.materialise() == first
    assert load_local(world.target) == first
    assert world.store.copied == []
    assert f"({name})" in caplog.text


def a_folder_instead_of(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "x").write_text("")


def a_file_instead_of(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


@pytest.mark.parametrize(
    "damage",
    [
        lambda world: a_folder_instead_of(world.target / "manifest.json"),
        lambda world: a_folder_instead_of(next((world.target / "images").rglob("*.jpg"))),
        lambda world: a_file_instead_of(world.target / "images"),
        lambda world: a_file_instead_of(world.target),
        lambda world: shutil.rmtree(world.target / "images"),
    ],
)
def test_files_and_folders_that_changed_places_are_put_right(world, damage):
    first = world.materialise()
    damage(world)
    assert world.materialise() == first
    assert whole(world, load_local(world.target))
    assert names_in(world.root) == {world.target.name}


def test_progress_counts_images_as_they_are_copied_and_as_they_are_checked(world):
    seen = []
    world.materialise(lambda *step: seen.append(step))
    assert seen == [(done, IMAGES) for done in range(1, IMAGES + 1)]
    seen.clear()
    world.materialise(lambda *step: seen.append(step))
    assert seen == [(done, IMAGES) for done in range(1, IMAGES + 1)]


def store_damaged(world: World, match: str, **ids: str) -> None:
    ids = {"version": world.manifest.version, "split_id": world.split.split_id} | ids
    with pytest.raises(AttemptError, match=match) as caught:
        materialise(world.store, **ids, root=world.root)
    assert caught.value.failure == "store_damaged"


@pytest.mark.parametrize("damaged", [b"other bytes", None])
def test_a_blob_that_the_store_changed_or_lost_gives_no_cache_and_is_sent_again(world, damaged):
    image = world.manifest.images[0]
    key = blob_key(image.digest)
    world.store.delete(key) if damaged is None else world.store.put_bytes(key, damaged)

    store_damaged(world, image.digest)
    assert not world.target.exists()
    assert world.store.stat(key) is None  # the next push sends it
    world.store.put_file(key, world.source / image.path)
    assert whole(world, world.materialise())


def test_a_missing_version_or_split_is_not_found(world):
    store_damaged(world, "manifests", version="ab" * 32)
    store_damaged(world, "splits", split_id="ab" * 32)


def test_a_split_of_another_version_is_refused(world, tmp_path):
    files = yolo_files(3)
    other = check(write_files(tmp_path / "other", files)).manifest
    split = make_split(other, seed=1, val_ratio=0.4)
    store_split(world.store, split)

    store_damaged(world, "belongs to", split_id=split.split_id)


class Interrupted(Exception):
    pass


def interrupt(done: int, _total: int) -> None:
    if done == 3:
        raise Interrupted


def test_a_stop_is_heard_while_files_are_checked(world):
    world.materialise()
    with pytest.raises(Interrupted):
        world.materialise(interrupt)


def test_what_was_copied_before_an_error_is_not_copied_again(world):
    def lose_the_store(copied: int) -> None:
        if copied >= 4:
            raise ConnectionError

    world.store.fail = lose_the_store
    with pytest.raises(ConnectionError):
        world.materialise()
    assert not world.target.exists()
    world.store.fail = lambda _copied: None

    assert whole(world, world.materialise())
    assert len(world.store.copied) == IMAGES


@pytest.mark.crash
@pytest.mark.parametrize(("point", "copied"), [("cache.copied:3", 3), ("cache.built", IMAGES)])
def test_another_process_finishes_what_a_killed_one_has_begun(world, point, copied):
    died = world.start(MATERIALISE, PERDURE_CRASH_AT=point)
    assert died.wait(DEADLINE_S) == -9
    assert not world.target.exists()
    whole_before = [path for path in world.building.rglob("*.jpg") if path.suffix == ".jpg"]
    assert len(whole_before) >= copied
    (world.building / "images/train/.0123.tmp").write_bytes(b"half")  # as a copy leaves it
    flip_a_bit(whole_before[0])  # as a power loss leaves it

    local = world.materialise()

    assert whole(world, local)
    assert len(world.store.copied) == IMAGES - len(whole_before) + 1
    assert names_in(world.root) == {world.target.name}


@pytest.mark.crash
def test_two_processes_at_once_make_one_cache(world):
    processes = [world.start(MATERIALISE) for _ in range(2)]
    try:
        assert [process.wait(DEADLINE_S) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait(DEADLINE_S)

    assert names_in(world.root) == {world.target.name}
    assert whole(world, load_local(world.target))


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


# Six small images and two texts, a block of 4096 bytes each.
ENTRY_BYTES = (IMAGES + 2) * 4096


def test_the_least_recently_used_data_set_goes_when_room_is_short(world, tmp_path):
    other = World(tmp_path / "other", world.root, images=IMAGES + 1)
    world.materialise(max_bytes=3 * ENTRY_BYTES).pin.release()

    local = other.materialise(max_bytes=2 * ENTRY_BYTES)

    assert names_in(world.root) == {other.target.name}
    assert whole(other, local)


def test_a_data_set_in_use_is_not_evicted_for_another_one(world, tmp_path):
    other = World(tmp_path / "other", world.root, images=IMAGES + 1)
    local = world.materialise()

    with pytest.raises(AttemptError, match=r"needs 0\.0 MB more .* may hold 0\.1 MB") as caught:
        other.materialise(max_bytes=2 * ENTRY_BYTES)

    assert caught.value.failure == "disk_full"
    assert whole(world, local)
    assert names_in(world.root) == {world.target.name}
    local.pin.release()
    assert whole(other, other.materialise(max_bytes=2 * ENTRY_BYTES))


def test_a_data_set_that_can_never_fit_evicts_nothing(world, tmp_path):
    other = World(tmp_path / "other", world.root, images=IMAGES + 1)
    world.materialise().pin.release()

    with pytest.raises(AttemptError, match="PERDURE_CACHE_MAX_BYTES"):
        other.materialise(max_bytes=ENTRY_BYTES)

    assert names_in(world.root) == {world.target.name}


@pytest.mark.crash
def test_what_a_process_loaded_stays_until_it_is_killed(world):
    world.materialise().pin.release()
    user = world.start(USE)
    try:
        assert user.stdout.readline() == b"used\n"
        assert not make_room(world.root, 0)
        assert not evict(world.target)
        assert world.target.is_dir()
    finally:
        user.kill()
        user.wait(DEADLINE_S)

    assert make_room(world.root, 0)
    assert names_in(world.root) == set()


def full_disk(world: World, *, times: int) -> None:
    left = [times]

    def fail(copied: int) -> None:
        if copied >= 2 and left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")

    world.store.fail = fail


def test_a_disk_that_fills_up_meanwhile_costs_what_nobody_uses(world, tmp_path):
    other = World(tmp_path / "other", world.root, images=IMAGES + 1)
    world.materialise().pin.release()
    full_disk(other, times=1)

    assert whole(other, other.materialise())
    assert names_in(world.root) == {other.target.name}


def test_a_disk_that_stays_full_ends_the_attempt_and_nothing_is_left_on_it(world):
    full_disk(world, times=1000)

    with pytest.raises(AttemptError, match="Free some space") as caught:
        world.materialise()

    assert caught.value.failure == "disk_full"
    assert names_in(world.root) == set()
