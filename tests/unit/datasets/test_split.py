from collections.abc import Iterable

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.datasets.split import Split, make_split, parse_split
from perdure.errors import DamagedObject, InvalidDataset, InvalidInput


def image(
    path: str,
    content: object = None,
    split: str | None = None,
    *,
    group: str = "",
    classes: Iterable[int] = (),
) -> ManifestImage:
    digest = blake3(str(path if content is None else content).encode()).hexdigest()
    boxes = tuple((index, 0.5, 0.5, 0.1, 0.1) for index in classes)
    return ManifestImage(path, digest, 10, 8, 8, boxes, split, group)


def manifest(*images: ManifestImage) -> Manifest:
    return manifest_of(("bird",), images)


def numbered(count: int) -> list[ManifestImage]:
    return [image(f"images/{number}.jpg") for number in range(count)]


def test_given_splits_are_respected():
    given_splits = manifest(
        image("a", split="train"), image("b", split="val"), image("c", split=None)
    )

    split = make_split(given_splits, seed=1, val_ratio=0.5)

    assert (split.train, split.val) == (("a", "c"), ("b",))
    assert (split.seed, split.val_ratio) == (None, None)
    assert make_split(given_splits, seed=2, val_ratio=0.1).split_id == split.split_id


@pytest.mark.parametrize("only", ["train", "val", None])
def test_one_given_side_is_split_anew(only):
    split = make_split(
        manifest(*(image(str(number), split=only) for number in range(50))), seed=1, val_ratio=0.2
    )
    assert split.train
    assert split.val
    assert split.seed == 1


def test_a_made_split_follows_its_rule():
    made = make_split(manifest(*numbered(40)), seed=7, val_ratio=0.3)

    def score(image: ManifestImage) -> float:
        hashed = blake3(f"7:{image.digest}".encode()).digest()
        return int.from_bytes(hashed[:8], "big") / 2**64

    expected = sorted(image.path for image in numbered(40) if score(image) < 0.3)
    assert list(made.val) == expected
    assert sorted(made.train + made.val) == sorted(image.path for image in numbered(40))


def test_the_share_is_met_on_average():
    sizes = [
        len(make_split(manifest(*numbered(200)), seed=s, val_ratio=0.2).val) for s in range(30)
    ]
    assert 36 <= sum(sizes) / len(sizes) <= 44  # 40, with a standard error of about 1


def test_seeds_give_different_splits():
    data = manifest(*numbered(100))
    ids = {make_split(data, seed=seed, val_ratio=0.2).split_id for seed in range(10)}
    assert len(ids) == 10
    assert make_split(data, seed=1, val_ratio=0.2) == make_split(data, seed=1, val_ratio=0.2)


contents = st.lists(st.integers(0, 12), min_size=2, max_size=30).filter(lambda c: len(set(c)) > 1)
ratio = st.floats(0.001, 0.999)


@given(contents, ratio, st.integers(0, 2**53 - 1))
def test_no_content_is_on_both_sides_and_no_side_is_empty(contents, val_ratio, seed):
    images = [image(f"{place}", content) for place, content in enumerate(contents)]
    split = make_split(manifest(*images), seed=seed, val_ratio=val_ratio)
    digest = {image.path: image.digest for image in images}

    assert sorted(split.train + split.val) == sorted(digest)
    assert not {digest[path] for path in split.train} & {digest[path] for path in split.val}
    assert split.train
    assert split.val
    assert parse_split(split.text, split.split_id) == split


@given(st.integers(50, 80), st.integers(1, 40))
def test_images_keep_their_side_when_others_are_added(count, more):
    before = make_split(manifest(*numbered(count)), seed=3, val_ratio=0.25)
    after = make_split(manifest(*numbered(count + more)), seed=3, val_ratio=0.25)

    assert set(before.train) <= set(after.train)
    assert set(before.val) <= set(after.val)


labelled = st.lists(
    st.tuples(st.frozensets(st.integers(0, 5), max_size=3), st.integers(0, 8)),
    min_size=2,
    max_size=60,
)


def labelled_images(drawn: list[tuple[frozenset[int], int]]) -> list[ManifestImage]:
    """Images with these classes; those with the same number above 3 are of one group."""
    return [
        image(str(place), classes=classes, group=f"g{group}" if group > 3 else "")
        for place, (classes, group) in enumerate(drawn)
    ]


@given(labelled, st.floats(0.05, 0.5), st.integers(0, 1000))
def test_groups_stay_together(drawn, val_ratio, seed):
    images = labelled_images(drawn)
    try:
        split = make_split(manifest(*images), seed=seed, val_ratio=val_ratio)
    except InvalidDataset:
        assert len({image.group or image.path for image in images}) == 1
        return
    in_val = set(split.val)
    sides: dict[str, set[bool]] = {}
    for one in images:
        sides.setdefault(one.group or one.path, set()).add(one.path in in_val)
    assert all(len(found) == 1 for found in sides.values())


@given(st.integers(2, 40), st.integers(0, 1000), st.floats(0.05, 0.5))
def test_a_class_with_two_images_trains_and_validates(count, seed, val_ratio):
    # Many images of one class, and `count` of another: by hashes alone a side would often lack it.
    images = [image(f"a{number}", classes=[0]) for number in range(60)]
    images += [image(f"b{number}", classes=[1]) for number in range(count)]
    split = make_split(manifest(*images), seed=seed, val_ratio=val_ratio)
    for names in (split.train, split.val):
        assert any(path.startswith("b") for path in names)


def test_classes_are_near_their_share():
    images = [image(f"{c}-{number}", classes=[c]) for c in range(8) for number in range(10 + 5 * c)]
    for seed in range(50):
        split = make_split(manifest(*images), seed=seed, val_ratio=0.2)
        for c in range(8):
            count = 10 + 5 * c
            found = sum(path.startswith(f"{c}-") for path in split.val)
            # 1.5 standard deviations, or one image: by hashes alone 13 % would be farther away
            assert abs(found - 0.2 * count) <= max(1.5 * (count * 0.2 * 0.8) ** 0.5, 1)


def test_a_class_on_one_image_trains():
    for seed in range(30):
        images = [*numbered(10), image("rare", classes=[3])]
        assert "rare" in make_split(manifest(*images), seed=seed, val_ratio=0.5).train


def test_classes_on_one_image_each_leave_images_to_validate():
    # 100 images with a class in common, and another one of its own on each.
    images = [image(str(number), classes=[0, number + 1]) for number in range(100)]
    for seed in range(10):
        split = make_split(manifest(*images), seed=seed, val_ratio=0.2)
        assert 14 <= len(split.val) <= 26  # 20, and one and a half standard deviations


@given(st.integers(40, 90), st.integers(1, 30), st.integers(0, 100))
def test_only_what_crossed_the_border_may_move_when_images_are_added(count, more, seed):
    images = [image(str(number), classes=[number % 3]) for number in range(count + more)]
    before = make_split(manifest(*images[:count]), seed=seed, val_ratio=0.25)
    after = make_split(manifest(*images), seed=seed, val_ratio=0.25)

    def by_hash(path: str) -> bool:
        hashed = blake3(f"{seed}:{blake3(path.encode()).hexdigest()}".encode()).digest()
        return int.from_bytes(hashed[:8], "big") / 2**64 < 0.25

    def crossed(split: Split) -> set[str]:
        sides = {path: path in split.val for path in (*split.train, *split.val)}
        return {path for path, validates in sides.items() if validates != by_hash(path)}

    moved = set(before.train) & set(after.val) | set(before.val) & set(after.train)
    assert moved <= crossed(before) | crossed(after)


def test_contents_join_their_groups():
    one = [image("a", group="x"), image("b", "same", group="x")]
    other = [image("c", "same", group="y"), image("d", group="y")]
    for seed in range(20):
        split = make_split(manifest(*one, *other, *numbered(4)), seed=seed, val_ratio=0.5)
        assert {path in split.val for path in "abcd"} in ({True}, {False})


def test_one_group_cannot_be_split():
    with pytest.raises(InvalidDataset, match="parted"):
        make_split(manifest(image("a", group="x"), image("b", group="x")), seed=0, val_ratio=0.5)


@pytest.mark.parametrize("val_ratio", [0, 1, -0.1, 1.5, float("nan")])
def test_a_ratio_that_is_no_share_is_refused(val_ratio):
    with pytest.raises(InvalidInput, match="val_ratio"):
        make_split(manifest(*numbered(5)), seed=0, val_ratio=val_ratio)


@pytest.mark.parametrize("seed", [-1, 2**53])
def test_a_seed_that_json_cannot_hold_is_refused(seed):
    with pytest.raises(InvalidInput, match="seed"):
        make_split(manifest(*numbered(5)), seed=seed, val_ratio=0.5)


def test_one_content_cannot_be_split():
    with pytest.raises(InvalidDataset, match="two different images"):
        make_split(manifest(image("a", 1), image("b", 1)), seed=0, val_ratio=0.5)


def test_a_snapshot_that_changed_is_damage():
    split = make_split(manifest(*numbered(5)), seed=0, val_ratio=0.5)

    with pytest.raises(DamagedObject, match="has changed"):
        parse_split(split.text + " ", split.split_id)
