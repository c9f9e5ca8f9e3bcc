"""The images of a data set version, by their digests: those of that version, and no others."""

from pathlib import Path

import pytest

from perdure.artifacts import hashing
from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.datasets.snapshot import blob_key, manifest_key, store_manifest
from perdure_gateway import version_images
from perdure_gateway.version_images import KEPT_VERSIONS, VersionImages
from tests.builders.gateway import World, digest_of

OURS, THEIRS = b"an image", b"an image of another version"


def image(path: str, content: bytes) -> ManifestImage:
    return ManifestImage(path, digest_of(content), len(content), 32, 24, (), None)


def stored(world: World, *images: ManifestImage, classes: tuple[str, ...] = ("bird",)) -> Manifest:
    manifest = manifest_of(classes, images)
    store_manifest(world.store, manifest)
    return manifest


async def imported(world: World, *contents: bytes) -> str:
    """The version of a data set of these images, which the store holds."""
    for content in contents:
        world.store.put_bytes(blob_key(digest_of(content)), content)
    images = [image(f"{number}.jpg", content) for number, content in enumerate(contents)]
    version = stored(world, *images).version
    await world.import_dataset(version)
    return version


async def test_a_version_gives_its_own_images_only(world, http):
    ours, theirs = await imported(world, OURS), await imported(world, THEIRS)
    given = await http.get(f"/v1/datasets/{ours}/images/{digest_of(OURS)}")
    assert (given.status_code, given.content) == (200, OURS)
    assert given.headers["Perdure-Digest"] == digest_of(OURS)
    for version, digest in [(ours, digest_of(THEIRS)), (theirs, digest_of(OURS)), (ours, ours)]:
        refused = await http.get(f"/v1/datasets/{version}/images/{digest}")
        assert (refused.status_code, refused.json()["code"]) == (404, "not-found")
        assert "has no image" in refused.json()["detail"]


async def test_an_image_that_was_lost_or_changed_in_the_store_is_said_to_be_so(world, http):
    version = await imported(world, OURS)
    url = f"/v1/datasets/{version}/images/{digest_of(OURS)}"
    world.store.put_bytes(blob_key(digest_of(OURS)), b"something else")
    changed = await http.get(url)
    assert (changed.status_code, changed.json()["code"]) == (500, "store.object-damaged")
    world.store.delete(blob_key(digest_of(OURS)))
    lost = await http.get(url)
    assert lost.status_code == 404
    assert all("push the data set again" in given.json()["detail"] for given in (changed, lost))


async def test_without_its_manifest_a_version_gives_nothing(world, http):
    version = await imported(world, OURS)
    url = f"/v1/datasets/{version}/images/{digest_of(OURS)}"
    text = world.store.get_bytes(manifest_key(version))
    world.store.put_bytes(manifest_key(version), text.replace(b"bird", b"fish"))
    assert (await http.get(url)).status_code == 500
    world.store.delete(manifest_key(version))
    assert (await http.get(url)).status_code == 404
    world.store.put_bytes(manifest_key(version), text)
    assert (await http.get(url)).content == OURS


@pytest.mark.parametrize("chunk_bytes", [1, 7, 78, 200, hashing.CHUNK_BYTES])
async def test_all_digests_of_a_manifest_are_found_and_nothing_else(
    world, monkeypatch, chunk_bytes
):
    """Also where one lies across two chunks, and where names look like digests."""
    monkeypatch.setattr(version_images, "CHUNK_BYTES", chunk_bytes)
    false = "ab" * 32
    sly = f'x","digest":"{false}","y'
    manifest = stored(
        world, image("a.jpg", OURS), image(f"{sly}.jpg", THEIRS), classes=("digest", false, sly)
    )
    images = VersionImages(world.store)
    for content in (OURS, THEIRS):
        assert await images.hold(manifest.version, digest_of(content))
    assert not await images.hold(manifest.version, false)


async def test_a_manifest_is_read_once_and_only_some_are_kept(world, monkeypatch):
    manifests = [stored(world, image(f"{n}.jpg", OURS)) for n in range(KEPT_VERSIONS + 1)]
    opened: list[str] = []
    real = world.store.open

    def counted(key: str):
        opened.append(Path(key).stem)
        return real(key)

    monkeypatch.setattr(world.store, "open", counted)
    images = VersionImages(world.store)
    first, *others = (manifest.version for manifest in manifests)
    for version in [first, first, *others[:-1], first, others[-1], first]:
        assert await images.hold(version, digest_of(OURS))
    assert opened == [first, *others]  # the first one was asked for since the second was
    assert await images.hold(others[0], digest_of(OURS))
    assert opened[-1] == others[0]
