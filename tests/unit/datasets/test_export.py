"""Round trips: what is exported and imported again is the same data set."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.datasets.check import check
from perdure.datasets.export import EXPORT_FORMATS, export
from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.errors import Conflict, InvalidInput
from tests.builders.datasets import picture, write_files

CLASSES = ("bird", "no", "1.0", "a: b")  # as YAML, some would become something else


def exported(manifest: Manifest, pictures: dict[str, bytes], format_: str, out: Path) -> Path:
    export(
        manifest,
        format_,
        lambda image, target: target.write_bytes(pictures[image.digest]),
        out,
        lambda _done, _total: None,
    )
    return out


share = st.integers(1, 999).map(lambda n: n / 1000)
box = st.tuples(st.integers(0, 3), share, share, share, share).filter(
    lambda b: all(b[i + 2] / 2 <= b[i] <= 1 - b[i + 2] / 2 for i in (1, 2))
)
names = st.lists(
    st.sampled_from(["images/a.jpg", "images/sub/a.jpg", "b.jpg", "JPEGImages/c.jpg", "Ä ö.jpg"]),
    min_size=2,
    max_size=5,
    unique=True,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names, st.data(), st.sampled_from(EXPORT_FORMATS), st.booleans())
def test_a_round_trip_gives_the_same_boxes(tmp_path, names, data, format_, split):
    pictures = {f"{number:064}": picture(number) for number in range(len(names))}
    images = [
        ManifestImage(
            name,
            f"{number:064}",
            len(pictures[f"{number:064}"]),
            32,
            24,
            tuple(data.draw(st.lists(box, min_size=1, max_size=4, unique=True))),
            ("train", "val")[number % 2] if split else None,
        )
        for number, name in enumerate(names)
    ]
    manifest = manifest_of(CLASSES, tuple(images))
    out = exported(manifest, pictures, format_, tmp_path / "out")
    try:
        again = check(out).manifest
    finally:
        shutil.rmtree(out)

    assert again.classes == CLASSES
    found = {image.path.removeprefix("images/"): image for image in again.images}
    assert len(found) == len(manifest.images)
    for other in manifest.images:
        one = found[other.path.removeprefix("images/")]
        assert one.split == other.split
        if format_ == "yolo":
            assert one.boxes == other.boxes
        else:
            assert len(one.boxes) == len(other.boxes)
            for again_box, expected in zip(sorted(one.boxes), sorted(other.boxes), strict=True):
                assert again_box == pytest.approx(expected, abs=1e-6)


def test_a_version_that_went_out_and_in_again_is_the_same(tmp_path):
    files = {
        "data.yaml": "train: images/train\nval: images/val\nnames: [bird, cat]\n",
        "images/train/a.jpg": picture(1),
        "labels/train/a.txt": "0 0.1234567890123 0.5 0.1 0.3\n1 0.5 0.5 1 1\n",
        "images/val/b.jpg": picture(2),
        "labels/val/b.txt": "",
        "images/val/c.jpg": picture(3),
        "labels/val/c.txt": "1 0.5 0.5 0.5 0.5\n",
    }
    before = check(write_files(tmp_path / "set", files))
    out = tmp_path / "out"
    export(
        before.manifest,
        "yolo",
        lambda image, target: shutil.copyfile(before.files[image.path], target),
        out,
        lambda _done, _total: None,
    )
    again = check(out)
    assert [found.text() for found in again.findings] == []
    assert again.manifest.version == before.manifest.version


def of(*paths: str) -> Manifest:
    images = (ManifestImage(path, f"{n:064}", 1, 8, 8, (), None) for n, path in enumerate(paths))
    return manifest_of(("bird",), tuple(images))


def pictures_of(manifest: Manifest) -> dict[str, bytes]:
    return {image.digest: picture(number) for number, image in enumerate(manifest.images)}


@pytest.mark.parametrize("path", ["../x.jpg", "/x.jpg", "a/../../x.jpg", "a\0.jpg"])
def test_a_manifest_leads_nowhere_else(tmp_path, path):
    manifest = of("a.jpg", path)
    with pytest.raises(InvalidInput, match="leads out"):
        exported(manifest, pictures_of(manifest), "yolo", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_images_that_would_share_a_label_file_or_break_a_list_are_renamed(tmp_path):
    manifest = of("images/a.jpg", "images/a.png", "images/b\nc.jpg", "train.jpg")
    out = exported(manifest, pictures_of(manifest), "yolo", tmp_path / "out")
    labels = [path for path in out.rglob("*.txt") if path.name != "classes.txt"]
    assert len(labels) == 4
    assert (out / "images/a.jpg").exists()
    assert not (out / "images/a.png").exists()


def test_nothing_is_written_over_and_nothing_half(tmp_path):
    manifest = of("a.jpg", "b.jpg")
    out = write_files(tmp_path / "out", {"mine.txt": "x"})
    with pytest.raises(Conflict, match="not empty"):
        exported(manifest, pictures_of(manifest), "coco", out)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]

    def fail(_image: ManifestImage, _target: Path) -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        export(manifest, "yolo", fail, tmp_path / "new", lambda _done, _total: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
