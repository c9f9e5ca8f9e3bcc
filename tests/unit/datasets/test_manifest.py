import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of, parse_manifest
from perdure.errors import DamagedObject

IMAGE = ManifestImage(
    path="images/a.jpg",
    digest="ab" * 32,
    size_bytes=1000,
    width=640,
    height=480,
    boxes=((1, 0.5, 0.25, 1.0, 0.1), (0, 0.5, 0.5, 0.2, 0.2)),
    split="train",
)


def test_the_text_is_canonical_json():
    # Keys in order, no spaces, 1.0 as 1, boxes in order: RFC 8785.
    assert manifest_of(("bird", "füchs"), (IMAGE,)).text == (
        '{"classes":["bird","füchs"],"format":"perdure.manifest/1","images":[{'
        '"boxes":[[0,0.5,0.5,0.2,0.2],[1,0.5,0.25,1,0.1]],"digest":"' + "ab" * 32 + '",'
        '"height":480,"path":"images/a.jpg","size_bytes":1000,"split":"train","width":640}]}'
    )


def test_a_manifest_is_read_back_as_it_was():
    manifest = manifest_of(("bird",), (IMAGE, replace(IMAGE, path="b.png", split=None, boxes=())))

    again = parse_manifest(manifest.text, manifest.version)

    assert again == manifest
    assert all(type(value) is float for box in again.images[1].boxes for value in box[1:])


@pytest.mark.parametrize(
    "change",
    [
        {"path": "images/b.jpg"},
        {"digest": "cd" * 32},
        {"width": 641},
        {"boxes": ((1, 0.5, 0.25, 1.0, 0.1), (0, 0.5, 0.5, 0.2, 0.2000001))},
        {"boxes": IMAGE.boxes[:1]},
        {"split": "val"},
        {"split": None},
    ],
)
def test_every_change_gives_another_version(change):
    before = manifest_of(("bird",), (IMAGE,))
    assert manifest_of(("bird",), (replace(IMAGE, **change),)).version != before.version
    assert manifest_of(("fox",), (IMAGE,)).version != before.version


def test_another_text_than_that_of_the_version_is_damage():
    manifest = manifest_of(("bird",), (IMAGE,))

    with pytest.raises(DamagedObject, match="has changed"):
        parse_manifest(manifest.text.replace("bird", "bard"), manifest.version)


@pytest.mark.parametrize("text", ["{", "[]", '{"format":"perdure.manifest/9"}'])
def test_a_text_that_is_no_manifest_is_damage(text):
    from perdure.artifacts.hashing import digest_bytes

    with pytest.raises(DamagedObject, match="cannot be read"):
        parse_manifest(text, digest_bytes(text.encode()))


share = st.floats(0, 1)
box = st.tuples(st.integers(0, 80), share, share, share, share)
image = st.builds(
    ManifestImage,
    path=st.text(min_size=1, max_size=12),
    digest=st.text("0123456789abcdef", min_size=64, max_size=64),
    size_bytes=st.integers(0, 1 << 40),
    width=st.integers(1, 9999),
    height=st.integers(1, 9999),
    boxes=st.lists(box, max_size=4).map(tuple),
    split=st.sampled_from(["train", "val", None]),
)
images = st.lists(image, max_size=5, unique_by=lambda image: image.path)


@given(images, st.randoms(use_true_random=False))
def test_the_order_of_files_and_rows_does_not_matter(images, random):
    shuffled = [
        replace(image, boxes=tuple(random.sample(image.boxes, len(image.boxes))))
        for image in random.sample(images, len(images))
    ]
    before = manifest_of(("a", "b"), tuple(images))
    assert manifest_of(("a", "b"), tuple(shuffled)).version == before.version


@given(st.lists(st.text(max_size=5), max_size=3), images)
def test_any_manifest_is_read_back(classes, images):
    manifest = manifest_of(tuple(classes), tuple(images))

    again = parse_manifest(manifest.text, manifest.version)

    assert again == manifest
    assert manifest_of(again.classes, again.images).text == manifest.text
    assert isinstance(again, Manifest)
    assert json.loads(manifest.text)["classes"] == classes
