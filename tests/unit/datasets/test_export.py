"""Round trips: what is exported and imported again is the same data set."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.annotation import Box
from perdure.datasets.check import check
from perdure.datasets.export import EXPORT_FORMATS, export
from perdure.datasets.findings import Severity
from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.datasets.rules import ImportRules
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
        assert one.boxes == other.boxes


@st.composite
def any_box(draw) -> Box:
    """A box inside the image with all the digits that floats have."""
    (left, right), (top, bottom) = (
        sorted(draw(st.lists(st.floats(0, 1), min_size=2, max_size=2))) for _ in range(2)
    )
    assume(min(right - left, bottom - top) > 1e-6)
    return (
        draw(st.integers(0, 3)),
        (left + right) / 2,
        (top + bottom) / 2,
        right - left,
        bottom - top,
    )


# A group is what a user's rule finds in a path, or what somebody wrote into a label file.
groups = st.sampled_from(["", "site 1", " a,b", '"', "p\\/", "Ä", "no", "1.0"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(groups, st.lists(any_box(), max_size=3, unique=True)), min_size=2),
    any_box(),
    st.sampled_from(EXPORT_FORMATS),
    st.sampled_from([(None,), ("train", "val"), ("val", "train", "train")]),
    st.sampled_from(["images/{}.jpg", "{}.jpg", "a/Ä ö {}.jpg", "images/train/{}.jpg"]),
)
def test_any_version_comes_back(tmp_path, contents, first_box, format_, splits, name):
    assume(splits != (None,) or "train" not in name)  # the folder would say the split
    pictures = {f"{number:064}": picture(number) for number in range(len(contents))}
    digests = [digest_bytes(data) for data in pictures.values()]
    images = tuple(
        ManifestImage(
            name.format(number),
            digests[number],
            len(pictures[f"{number:064}"]),
            32,
            24,
            tuple({*boxes, first_box} if number == 0 else boxes),
            splits[number % len(splits)],
            group if number else "",  # one group that is all cannot be split
        )
        for number, (group, boxes) in enumerate(contents)
    )
    manifest = manifest_of(CLASSES, images)
    data = dict(zip(digests, pictures.values(), strict=True))
    out = exported(manifest, data, format_, tmp_path / "out")
    try:
        again = check(out)
    finally:
        shutil.rmtree(out)

    assert [found.text() for found in again.findings if found.severity == "error"] == []
    assert again.manifest == manifest
    assert again.manifest.version == manifest.version


def grouped_files() -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {"data.yaml": "names: [bird]\n"}
    for number in range(6):
        name = f"site{number % 3}_{number}"
        files[f"images/{name}.jpg"] = picture(number)
        files[f"labels/{name}.txt"] = f"0 0.5 0.{3 + number}123456789 0.2 0.1\n"
    return files


@pytest.mark.parametrize("format_", EXPORT_FORMATS)
def test_groups_that_a_rule_made_go_out_and_come_back_without_the_rule(tmp_path, format_):
    before = check(
        write_files(tmp_path / "set", grouped_files()), ImportRules(group_by=r"(site\d)_")
    )
    assert {image.group for image in before.manifest.images} == {"site0", "site1", "site2"}
    out = tmp_path / "out"
    export(
        before.manifest,
        format_,
        lambda image, target: shutil.copyfile(before.files[image.path], target),
        out,
        lambda _done, _total: None,
    )
    assert check(out).manifest.version == before.manifest.version
    # What the user says goes before what the files say.
    other = check(out, ImportRules(group_by=r"_(\d)")).manifest
    assert [image.group for image in other.images] == ["0", "3", "1", "4", "2", "5"]


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


@pytest.mark.parametrize("format_", EXPORT_FORMATS)
def test_a_set_of_validation_images_alone_is_told_and_comes_back(tmp_path, format_):
    files: dict[str, str | bytes] = {f"images/{number}.jpg": picture(number) for number in range(3)}
    images = [{"id": n, "file_name": f"{n}.jpg", "width": 32, "height": 24} for n in range(3)]
    boxes = [{"id": n, "image_id": n, "category_id": 0, "bbox": [1, 2, 9, 9]} for n in range(3)]
    categories = [{"id": 0, "name": "bird"}]
    value = {"images": images, "annotations": boxes, "categories": categories}
    files["annotations/instances_val2017.json"] = json.dumps(value)

    first = check(write_files(tmp_path / "set", files))

    told = [(found.code, found.severity, found.value) for found in first.findings]
    assert told == [("split.only-val", "warning", "3 images")]
    assert first.manifest is not None
    assert {image.split for image in first.manifest.images} == {None}
    pictures = {
        image.digest: first.files[image.path].read_bytes() for image in first.manifest.images
    }
    again = check(exported(first.manifest, pictures, format_, tmp_path / "out"))
    assert again.manifest == first.manifest
    assert again.findings.codes(Severity.WARNING) == {}


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
