"""The list of images that a thin archive names comes from strangers."""

import json
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.artifacts.archive import MAX_FAULTS
from perdure.datasets import thin_archive
from perdure.datasets.thin_archive import NamedImage, images_text, read_images
from perdure.errors import UnsafeArchive

DIGEST = "ab" * 32
GOOD = {"digest": DIGEST, "size_bytes": 12}


def read(folder: Path, content: str | bytes) -> list[tuple[PurePosixPath, NamedImage]]:
    path = folder / "images.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_images(path)


def refused(folder: Path, content: str | bytes) -> list[str]:
    with pytest.raises(UnsafeArchive) as caught:
        read(folder, content)
    return [fault.code for fault in caught.value.details["faults"]]


def test_the_list_is_sorted_and_comes_back(tmp_path):
    images = {"b/ä.PNG": NamedImage("cd" * 32, 0), "a.jpg": NamedImage(DIGEST, 12)}
    text = images_text(images)
    assert text == (
        '{"a.jpg":{"digest":"' + DIGEST + '","size_bytes":12},'
        '"b/ä.PNG":{"digest":"' + "cd" * 32 + '","size_bytes":0}}'
    )
    assert read(tmp_path, text) == [
        (PurePosixPath("a.jpg"), NamedImage(DIGEST, 12)),
        (PurePosixPath("b/ä.PNG"), NamedImage("cd" * 32, 0)),
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../x.jpg", "archive.path-escape"),
        ("a/../../x.jpg", "archive.path-escape"),
        ("/etc/x.jpg", "archive.path-escape"),
        ("..\\x.jpg", "archive.path-escape"),
        ("C:\\x.jpg", "archive.path-escape"),
        ("a\0.jpg", "archive.path-escape"),
        ("", "archive.path-escape"),
        ("x" * 252 + ".jpg", "archive.path-escape"),
        ("d/" * 40 + "x.jpg", "archive.path-escape"),
        ("\ud800.jpg", "archive.name-encoding"),
        ("data.yaml", "archive.broken"),  # only images are fetched
        (".jpg/x", "archive.broken"),
    ],
)
def test_names_are_judged_as_those_in_an_archive(tmp_path, name, code):
    assert refused(tmp_path, json.dumps({"good.jpg": GOOD, name: GOOD})) == [code]


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "x",
        {},
        {"digest": DIGEST},
        {"size_bytes": 1},
        {"digest": DIGEST.upper(), "size_bytes": 1},
        {"digest": f"../{DIGEST}", "size_bytes": 1},
        {"digest": [DIGEST], "size_bytes": 1},
        {"digest": DIGEST, "size_bytes": -1},
        {"digest": DIGEST, "size_bytes": 1.0},
        {"digest": DIGEST, "size_bytes": True},
        {"digest": DIGEST, "size_bytes": "1"},
    ],
)
def test_an_image_needs_a_digest_and_a_size(tmp_path, form):
    assert refused(tmp_path, json.dumps({"a.jpg": form})) == ["archive.broken"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a.jpg": ' * 100_000,
        b"9" * 5_000,
        b'{"a.jpg": {"digest": "' + DIGEST.encode() + b'", "size_bytes": ' + b"9" * 5_000 + b"}}",
    ],
)
def test_what_is_no_list_is_refused(tmp_path, content):
    assert refused(tmp_path, content) == ["archive.broken"]


def test_a_name_that_is_there_twice_is_given_twice(tmp_path):
    one = json.dumps(GOOD)
    found = read(tmp_path, f'{{"a.jpg": {one}, "a.jpg": {one}}}')
    assert [str(path) for path, _ in found] == ["a.jpg", "a.jpg"]


def test_all_faults_are_told_and_the_size_is_looked_at_first(tmp_path, monkeypatch):
    text = json.dumps({"../x.jpg": GOOD, "b.jpg": {}, "c.txt": GOOD})
    assert refused(tmp_path, text) == ["archive.path-escape", "archive.broken", "archive.broken"]
    monkeypatch.setattr(thin_archive, "MAX_IMAGES_FILE_BYTES", len(text) - 1)
    assert refused(tmp_path, text) == ["archive.too-large"]


def test_a_thousand_faults_are_enough(tmp_path, monkeypatch):
    assert len(refused(tmp_path, "{" + ",".join(['"":0'] * 5000) + "}")) == MAX_FAULTS
    judged: list[str] = []
    judge = thin_archive.checked_path
    monkeypatch.setattr(
        thin_archive, "checked_path", lambda name: judged.append(name) or judge(name)
    )
    refused(tmp_path, "{" + ",".join(['"":0'] * 5000) + "}")
    assert len(judged) == MAX_FAULTS  # and the others are not looked at


@given(st.binary(max_size=200) | st.text().map(lambda name: json.dumps({name: GOOD}).encode()))
def test_whatever_it_holds_it_is_read_or_refused(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("list")
    try:
        found = read(folder, content)
    except UnsafeArchive:
        return
    for path, _image in found:
        assert not path.is_absolute()
        assert ".." not in path.parts
