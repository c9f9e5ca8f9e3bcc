"""Whatever lies in the cache where a folder or a file belongs: it is replaced by what belongs
there, nothing outside is changed, and nobody waits for ever.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.artifacts.places import clear_for_file, clear_for_folder, open_file
from perdure.datasets.cache import load_local
from perdure.datasets.cache_room import evict, make_room
from perdure.errors import DamagedObject
from tests.builders.cached_datasets import IMAGES, World, whole
from tests.builders.misplaced import (
    WRONG,
    WRONG_FOR_FILES,
    WRONG_FOR_FOLDERS,
    listed,
    outside_folder,
    put,
)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return outside_folder(tmp_path)


def an_image(world: World) -> Path:
    return next((world.target / "images").rglob("*.jpg"))


def left_by_a_copy(world: World) -> Path:
    an_image(world).unlink()  # it is looked for while something is fetched
    return world.target / "images/train/.x.tmp"


PLACES: dict[str, tuple[Callable[[World], Path], list[str]]] = {
    "the entry": (lambda world: world.target, WRONG_FOR_FOLDERS),
    "images": (lambda world: world.target / "images", WRONG_FOR_FOLDERS),
    "images/train": (lambda world: world.target / "images/train", WRONG_FOR_FOLDERS),
    "an image": (an_image, WRONG_FOR_FILES),
    "manifest": (lambda world: world.target / "manifest.json", WRONG_FOR_FILES),
    "split": (lambda world: world.target / "split.json", WRONG_FOR_FILES),
    "in-use": (lambda world: world.target / "in-use", WRONG_FOR_FILES),
    "left by a copy": (left_by_a_copy, WRONG_FOR_FILES),
}
CASES = [(place, kind) for place, (_, kinds) in PLACES.items() for kind in kinds]


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_what_is_misplaced_in_an_entry_is_put_right(world, outside, monkeypatch, place, kind):
    world.materialise().pin.release()
    before = listed(outside)
    put(kind, PLACES[place][0](world), outside, monkeypatch)

    assert whole(world, world.materialise())

    assert listed(outside) == before
    assert [path.name for path in world.root.iterdir()] == [world.target.name]
    assert whole(world, load_local(world.target))


BUILDING: dict[str, tuple[Callable[[World], Path], list[str]]] = {
    "building": (lambda world: world.building, WRONG_FOR_FOLDERS),
    "its images": (lambda world: world.building / "images", WRONG_FOR_FOLDERS),
    "its in-use": (lambda world: world.building / "in-use", WRONG_FOR_FILES),
    "its reservation": (lambda world: world.building / "reserved", WRONG_FOR_FILES),
    "its lock": (lambda world: world.root / f".{world.target.name}.lock", WRONG_FOR_FILES),
    "the room's lock": (lambda world: world.root / ".room.lock", WRONG_FOR_FILES),
}
BUILDING_CASES = [(place, kind) for place, (_, kinds) in BUILDING.items() for kind in kinds]


@pytest.mark.parametrize(("place", "kind"), BUILDING_CASES)
def test_what_is_misplaced_where_an_entry_is_built_does_not_stop_it(
    world, outside, monkeypatch, place, kind
):
    before = listed(outside)
    put(kind, BUILDING[place][0](world), outside, monkeypatch)

    assert whole(world, world.materialise())

    assert listed(outside) == before
    assert [path.name for path in world.root.iterdir()] == [world.target.name]


@pytest.mark.parametrize("kind", WRONG)
def test_what_was_evicted_goes_whatever_it_is(tmp_path, outside, monkeypatch, kind):
    before, root = listed(outside), tmp_path / "cache"
    put(kind, root / ".0123.evicted", outside, monkeypatch)
    assert make_room(root, 0)
    assert list(root.iterdir()) == []
    assert listed(outside) == before


@pytest.mark.parametrize("kind", WRONG_FOR_FOLDERS)
def test_nothing_but_a_folder_is_an_entry_that_could_be_evicted(
    tmp_path, outside, monkeypatch, kind
):
    before, root = listed(outside), tmp_path / "cache"
    put(kind, root / "entry", outside, monkeypatch)
    assert make_room(root, 0)
    assert evict(root / "entry")  # there is none
    assert os.path.lexists(root / "entry")
    assert listed(outside) == before


def test_a_split_that_is_nested_without_end_is_damage(world):
    world.materialise().pin.release()
    (world.target / "split.json").write_text("[" * 100_000)
    with pytest.raises(DamagedObject, match=r"split\.json is missing or has changed"):
        load_local(world.target)
    assert whole(world, world.materialise())


def test_the_cache_itself_may_be_a_link(world, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    world.root.symlink_to(tmp_path / "elsewhere")
    local = world.materialise()
    assert whole(world, local)
    assert (tmp_path / "elsewhere" / world.target.name).is_dir()
    local.pin.release()
    assert make_room(world.root, 0)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert world.root.is_symlink()


@pytest.mark.parametrize("kind", WRONG_FOR_FILES)
def test_only_a_regular_file_is_opened(tmp_path, outside, monkeypatch, kind):
    path = tmp_path / "here" / "path"
    put(kind, path, outside, monkeypatch)
    with pytest.raises(OSError, match=r"path|regular"):
        open_file(path)


def test_what_belongs_where_it_lies_stays(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder/x").mkdir(parents=True)
    clear_for_file(tmp_path / "file")
    clear_for_folder(tmp_path / "folder")
    clear_for_file(tmp_path / "nothing")
    clear_for_folder(tmp_path / "file/nothing")
    assert listed(tmp_path) == [("file", "x"), ("folder", ""), ("folder/x", "")]
    clear_for_folder(tmp_path / "file")
    clear_for_file(tmp_path / "folder")
    assert listed(tmp_path) == []


def test_all_images_may_be_misplaced_at_once(world, outside, monkeypatch):
    world.materialise().pin.release()
    before = listed(outside)
    images = sorted((world.target / "images").rglob("*.jpg"))
    assert len(images) == IMAGES
    for kind, image in zip(WRONG_FOR_FILES, images, strict=True):
        put(kind, image, outside, monkeypatch)
    assert whole(world, world.materialise())
    assert listed(outside) == before
