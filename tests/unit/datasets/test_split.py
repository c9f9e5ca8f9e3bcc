import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of
from perdure.datasets.split import make_split, parse_split
from perdure.errors import DamagedObject, InvalidDataset, InvalidInput


def image(path: str, content: object = None, split: str | None = None) -> ManifestImage:
    digest = blake3(str(path if content is None else content).encode()).hexdigest()
    return ManifestImage(path, digest, 10, 8, 8, (), split)


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
