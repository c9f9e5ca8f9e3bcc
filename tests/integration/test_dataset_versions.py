"""perdure dataset diff and export, with the routes that they need, on a real port."""

from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

from perdure.client import Client
from perdure.contracts.v1 import events_pb2
from perdure.datasets.check import check
from perdure.datasets.manifest import Manifest
from perdure.datasets.snapshot import blob_key, store_images, store_manifest
from perdure.errors import DamagedObject, NotFound
from tests.builders.datasets import picture, write_files, yolo_files
from tests.builders.gateway import ServerThread, dataset_imported

CHANGED = {
    "images/3.jpg": picture(9),
    "labels/1.txt": "0 0.25 0.5 0.2 0.4\n",
    "images/9.jpg": picture(10),
    "labels/9.txt": "",
}


def imported(server: ServerThread, folder: Path) -> Manifest:
    """Let the server know the version of a folder, as data-prep and scheduler do."""
    manifest = check(folder).manifest
    facts = dataset_imported(manifest.version)
    world = server.world
    facts.manifest.CopyFrom(events_pb2.Blob(**asdict(store_manifest(world.store, manifest))))
    server.run(world.append(f"dataset-{manifest.version}", facts))
    return manifest


def test_versions_and_folders_are_compared(server, perdure, tmp_path):
    one = write_files(tmp_path / "one", yolo_files(5))
    two = write_files(tmp_path / "two", yolo_files(5) | CHANGED)
    (two / "images/4.jpg").unlink()
    (two / "labels/4.txt").unlink()
    before, after = imported(server, one), imported(server, two)

    ran = perdure("dataset", "diff", before.version[:12], after.version[:12])
    assert ran.code == 0
    assert ran.out.splitlines() == [
        f"from {before.version[:12]} to {after.version[:12]}",
        "1 image added:",
        "  images/9.jpg",
        "1 image removed:",
        "  images/4.jpg",
        "1 image with other pixels:",
        "  images/3.jpg",
        "1 image relabelled:",
        "  images/1.jpg",
    ]
    as_json = perdure("dataset", "diff", before.version, str(two), "--json").json
    assert (as_json["from"], as_json["to"], as_json["same"]) == (
        before.version,
        after.version,
        False,
    )
    assert as_json["relabelled"] == ["images/1.jpg"]

    same = perdure("dataset", "diff", str(one), before.version)
    assert (same.code, same.out.splitlines()[1:]) == (0, ["the two are the same"])


def test_what_cannot_be_compared_is_said(server, perdure, tmp_path):
    folder = write_files(tmp_path / "one", yolo_files(3) | {"labels/0.txt": "x"})
    ran = perdure("dataset", "diff", str(folder), str(folder))
    assert ran.code == 1
    assert "cannot be compared: correct the errors" in ran.err

    ran = perdure("dataset", "diff", "nowhere/x", str(folder))
    assert (ran.code, "no such folder" in ran.err) == (2, True)

    ran = perdure("dataset", "diff", "ab" * 32, str(folder))
    assert ran.code != 0
    assert "ab" * 32 in ran.err


def test_a_version_is_exported_and_comes_back_the_same(server, perdure, tmp_path):
    folder = write_files(tmp_path / "one", yolo_files(4) | {"classes.txt": "bird\n"})
    (folder / "data.yaml").unlink()
    result = check(folder)
    manifest = imported(server, folder)
    store_images(server.world.store, manifest, result.files, lambda _done, _total: None)

    ran = perdure("dataset", "export", manifest.version[:8], "--format", "yolo", "--out", "out")
    assert (ran.code, ran.out) == (0, "out: 4 images, 4 boxes, 1 class: bird\n")
    assert check(Path("out")).manifest.version == manifest.version

    ran = perdure("dataset", "export", str(folder), "--format", "coco", "--out", "coco", "--json")
    assert ran.json["version"] == manifest.version
    again = check(Path("coco"))
    assert (again.format, again.boxes, again.errors) == ("coco", 4, 0)

    full = perdure("dataset", "export", str(folder), "--format", "coco", "--out", "coco")
    assert (full.code, "not empty" in full.err) == (1, True)


def test_a_damaged_image_is_not_exported(server, perdure, tmp_path):
    folder = write_files(tmp_path / "one", yolo_files(3))
    manifest = imported(server, folder)
    store_images(server.world.store, manifest, check(folder).files, lambda _done, _total: None)
    server.world.store.put_bytes(blob_key(manifest.images[1].digest), b"other")

    ran = perdure("dataset", "export", manifest.version, "--format", "yolo", "--out", "out")
    assert ran.code != 0
    assert manifest.images[1].digest in ran.err
    assert not Path("out").exists()

    server.world.store.delete(blob_key(manifest.images[1].digest))
    ran = perdure("dataset", "export", manifest.version, "--format", "yolo", "--out", "out")
    assert "push the data set again" in ran.err


def test_a_manifest_travels_with_its_digest_and_damage_is_seen(server, tmp_path):
    manifest = imported(server, write_files(tmp_path / "one", yolo_files(3)))
    url = f"{server.url}/v1/datasets/{manifest.version}/manifest"
    answer = httpx.get(url)
    assert answer.text == manifest.text
    assert answer.headers["Perdure-Digest"] == manifest.version
    assert httpx.get(f"{server.url}/v1/datasets/{'ab' * 32}/manifest").status_code == 404

    with Client(server.url) as client:
        assert client.manifest(manifest.version) == manifest
        with pytest.raises(NotFound):
            client.manifest("ab" * 32)
        key = f"datasets/manifests/{manifest.version}.json"
        server.world.store.put_bytes(key, manifest.text.replace("bird", "fish").encode())
        with pytest.raises(DamagedObject, match="push the data set again"):
            client.manifest(manifest.version)
