"""Which image of the data set a name means, and that none means anything else."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.datasets.findings import Finding, Findings
from perdure.datasets.image_names import ImageNames
from perdure.datasets.tree import Tree

ROOT = Path("/data/set")
IMAGES = (
    "a.jpg",
    "train/b.jpg",
    "train/c.jpg",
    "val/c.jpg",
    "my photos/d e.jpg",
    "100%2e.jpg",
    "labels/a.jpg",
)


def tree(names: tuple[str, ...] = IMAGES) -> Tree:
    return Tree(ROOT, {name: ROOT / name for name in (*names, "labels/notes.txt")})


def find(name: str, file: str = "labels.json") -> tuple[str | None, list[Finding]]:
    findings = Findings()
    found = ImageNames(tree()).find(name, file, findings, line=3, pointer="/images/0")
    return found, list(findings)


@pytest.mark.parametrize(
    ("name", "file", "image"),
    [
        ("a.jpg", "labels.json", "a.jpg"),
        ("a.jpg", "labels/x.json", "labels/a.jpg"),  # beside the label file comes first
        ("a.jpg", "train/x.json", "a.jpg"),
        ("b.jpg", "labels.json", "train/b.jpg"),
        ("train/c.jpg", "labels/x.json", "train/c.jpg"),
        ("train\\c.jpg", "labels/x.json", "train/c.jpg"),
        ("./train//c.jpg", "x.json", "train/c.jpg"),
        ("../train/c.jpg", "labels/x.json", "train/c.jpg"),
        ("..\\train\\c.jpg", "labels/x.json", "train/c.jpg"),
        ("../../a.jpg", "labels/deep/x.json", "a.jpg"),
        ("photos/../b.jpg", "x.json", "train/b.jpg"),
        ("d e.jpg", "x.json", "my photos/d e.jpg"),
        ("100%2e.jpg", "x.json", "100%2e.jpg"),
    ],
)
def test_a_name_is_looked_for_beside_the_labels_then_from_the_root_then_as_an_end(
    name, file, image
):
    assert find(name, file) == (image, [])


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../a.jpg", "x.json"),
        ("..\\a.jpg", "x.json"),
        ("..\\..\\a.jpg", "labels/x.json"),
        ("train/../../a.jpg", "x.json"),
        ("..", "x.json"),
        ("../..", "labels/x.json"),
        ("/a.jpg", "x.json"),
        ("/data/set/a.jpg", "x.json"),
        ("\\a.jpg", "x.json"),
        ("\\\\server\\share\\a.jpg", "x.json"),
        ("C:\\a.jpg", "x.json"),
        ("c:a.jpg", "x.json"),
        ("./C:/a.jpg", "x.json"),
        ("a.jpg\0", "x.json"),
    ],
)
def test_a_name_that_leaves_the_data_set_is_an_error(name, file):
    """Row 31 of the cases."""
    found, [finding] = find(name, file)
    assert found is None
    assert (finding.code, finding.severity) == ("files.path-escape", "error")
    assert (finding.file, finding.line, finding.pointer) == (file, 3, "/images/0")
    assert finding.value == name


@pytest.mark.parametrize(
    "name",
    [
        "z.jpg",
        "",
        ".",
        "train",
        "notes.txt",
        "%2e%2e/a.jpg",  # nothing is decoded
        "train%2Fb.jpg",
        "100..jpg",
        "ain/b.jpg",
        "A.JPG",
        "https://example.org/a.png",
    ],
)
def test_a_name_that_means_no_image_is_an_error(name):
    found, [finding] = find(name)
    assert found is None
    assert (finding.code, finding.severity, finding.value) == ("files.missing-image", "error", name)


def test_a_name_that_means_several_images_is_an_error_that_names_them():
    found, [finding] = find("c.jpg")
    assert found is None
    assert (finding.code, finding.severity) == ("files.image-ambiguous", "error")
    assert "train/c.jpg, val/c.jpg" in finding.rule
    assert find("c.jpg", "val/x.json") == ("val/c.jpg", [])


def test_of_several_images_the_preferred_one_is_meant_and_only_of_several():
    def lookup(name: str, prefer: Callable[[str], bool]) -> str | None:
        return ImageNames(tree()).find(name, "x.json", Findings(), prefer=prefer)

    assert lookup("c.jpg", lambda image: image.startswith("val/")) == "val/c.jpg"
    assert lookup("c.jpg", lambda image: image.endswith(".jpg")) is None
    assert lookup("c.jpg", lambda image: False) is None
    assert lookup("b.jpg", lambda image: False) == "train/b.jpg"


def test_spellings_are_looked_for_one_after_the_other_and_the_name_is_what_a_finding_says():
    def lookup(*spellings: str) -> tuple[str | None, list[str]]:
        findings = Findings()
        found = ImageNames(tree()).find("said", "x.json", findings, spellings=spellings)
        return found, [f"{finding.code} {finding.value}" for finding in findings]

    assert lookup("z.jpg", "b.jpg", "a.jpg") == ("train/b.jpg", [])
    assert lookup("z.jpg", "y.jpg") == (None, ["files.missing-image said"])
    # Nothing is guessed once a spelling leads out or means several.
    assert lookup("../a.jpg", "b.jpg") == (None, ["files.path-escape said"])
    assert lookup("c.jpg", "b.jpg") == (None, ["files.image-ambiguous said"])


PART = st.sampled_from(
    ["..", ".", "", "a.jpg", "train", "labels", "c.jpg", "C:", "\0", "%2e%2e", "%2F", "~", "nul"]
) | st.text(max_size=5)
NAME = st.lists(PART | st.sampled_from(["/", "\\"]), max_size=9).map("".join) | st.lists(
    PART, max_size=9
).flatmap(lambda parts: st.sampled_from("/\\").map(lambda mark: mark.join(parts)))
FILE = st.sampled_from(["x.json", "labels/x.json", "labels/deep/x.json", "train/x.csv"])


@given(NAME, FILE)
@example("..\\..\\..\\etc\\passwd", "labels/x.json")
@example("....//....//a.jpg", "x.json")
@example("\udcff", "x.json")
@example("//a.jpg", "labels/x.json")
@example("c.jpg/a.jpg/..", "train/x.csv")
def test_whatever_the_name_it_gives_an_image_of_the_tree_or_one_error(name, file):
    found, findings = find(name, file)

    if found is None:
        assert [finding.severity for finding in findings] == ["error"]
        return
    assert findings == []
    assert found in IMAGES
    plain = name.replace("\\", "/")
    assert not plain.startswith("/")
    assert plain[1:2] != ":"
    assert "\0" not in name
    # What is left of the name without its detours is how the image's path ends, and going the way
    # that it says never leaves the root.
    depth, kept = file.count("/"), []
    for part in plain.split("/"):
        if part == "..":
            depth -= 1
            del kept[-1:]
        elif part not in ("", "."):
            depth += 1
            kept.append(part)
    assert depth >= 0
    assert ("/" + found).endswith("/" + "/".join(kept))
