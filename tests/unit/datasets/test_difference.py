import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.difference import Difference, difference
from perdure.datasets.manifest import Manifest, ManifestImage, manifest_of

BIRD = (0, 0.5, 0.5, 0.25, 0.25)
CAT = (1, 0.5, 0.5, 0.25, 0.25)
SAME = Difference((), (), (), (), (), (), (), (), classes_renumbered=False)


def image(path: str, content: str = "", boxes=(BIRD,), split=None, group="") -> ManifestImage:
    return ManifestImage(path, content or path, 10, 8, 8, boxes, split, group)


def of(*images: ManifestImage, classes: tuple[str, ...] = ("bird", "cat")) -> Manifest:
    return manifest_of(classes, images)


BEFORE = of(image("a"), image("b"), image("c", boxes=(CAT,)))


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (BEFORE, {}),
        (of(*BEFORE.images, image("d")), {"added": ("d",)}),
        (of(*BEFORE.images[:2]), {"removed": ("c",)}),
        (of(*BEFORE.images[:2], image("z", "c", (CAT,))), {"moved": (("c", "z"),)}),
        (
            of(*BEFORE.images[:2], image("z", "c")),
            {"moved": (("c", "z"),), "relabelled": ("z",)},
        ),
        (of(image("a", "new"), *BEFORE.images[1:]), {"replaced": ("a",)}),
        (of(image("a", boxes=(CAT,)), *BEFORE.images[1:]), {"relabelled": ("a",)}),
        (of(image("a", boxes=()), *BEFORE.images[1:]), {"relabelled": ("a",)}),
        (of(image("a", split="val"), *BEFORE.images[1:]), {"resplit": ("a",)}),
        (of(image("a", group="g"), *BEFORE.images[1:]), {"resplit": ("a",)}),
        # The copy of a that stays is no move.
        (of(*BEFORE.images, image("z", "a")), {"added": ("z",)}),
        (
            of(*BEFORE.images, classes=("bird", "cat", "fox")),
            {"classes_added": ("fox",)},
        ),
        (
            of(
                *(image(name, boxes=(CAT,)) for name in "ab"),
                image("c"),
                classes=("cat", "bird"),
            ),
            {"classes_renumbered": True},  # the boxes mean what they meant
        ),
        (
            of(*BEFORE.images, classes=("bird", "dog")),
            {"classes_added": ("dog",), "classes_removed": ("cat",), "relabelled": ("c",)},
        ),
    ],
)
def test_what_changed_is_named(after, changes):
    found = difference(BEFORE, after)
    assert found == Difference(**(vars(SAME) | changes))
    assert found.is_empty == (not changes) == (after.version == BEFORE.version)


paths = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("xyz"), max_size=6)


@given(paths, paths)
def test_there_and_back_is_the_opposite(old, new):
    one, two = (of(*(image(p, c) for p, c in pairs.items())) for pairs in (old, new))
    there, back = difference(one, two), difference(two, one)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert len(there.moved) == len(back.moved)
    assert len(one.images) + len(there.added) - len(there.removed) == len(two.images)
    assert there.is_empty == (one == two)
