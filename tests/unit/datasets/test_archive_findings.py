"""Row 40 of the cases: archives that are refused, as `check` tells of them."""

import struct
import zipfile

import pytest

from perdure.artifacts.archive import unpack
from perdure.datasets.check import check
from tests.builders.archives import Entry, archive_of, overlapping
from tests.builders.datasets import picture, write_files, write_zip, yolo_files
from tests.builders.packing import pack_folder

GBK = "\u9e1f.jpg".encode("gbk")
LINK = 0o120777


def million_entries() -> bytes:
    header = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 9, 1, *[0] * 6) + b"a"
    directory = header * 1_000_000
    return directory + struct.pack("<4s4H2LH", b"PK\x05\x06", *[0] * 4, len(directory), 0, 0)


ARCHIVES = {
    "climbs": (archive_of(Entry(b"../x")), [("archive.path-escape", "../x")]),
    "absolute": (archive_of(Entry(b"/etc/x")), [("archive.path-escape", "/etc/x")]),
    "drive": (archive_of(Entry(b"C:\\x")), [("archive.path-escape", "C:\\x")]),
    "backslash": (archive_of(Entry(b"..\\..\\x")), [("archive.path-escape", "..\\..\\x")]),
    "device": (archive_of(Entry(b"images/aux.jpg")), [("archive.path-escape", "images/aux.jpg")]),
    "long": (archive_of(Entry(b"n" * 256)), [("archive.path-escape", "n" * 256)]),
    "deep": (archive_of(Entry(b"d/" * 32 + b"x")), [("archive.path-escape", "d/" * 32 + "x")]),
    "link": (archive_of(Entry(b"l", b"/etc", mode=LINK)), [("archive.link", "l")]),
    "twice": (archive_of(Entry(b"a"), Entry(b"a")), [("archive.duplicate-name", "a")]),
    "case": (archive_of(Entry(b"a"), Entry(b"A")), [("archive.duplicate-name", "A")]),
    "file and folder": (archive_of(Entry(b"a"), Entry(b"a/b")), [("archive.duplicate-name", "a")]),
    "names": (archive_of(Entry(GBK)), [("archive.name-encoding", GBK.decode("cp437"))]),
    "encrypted": (archive_of(Entry(b"a", flags=1)), [("archive.encrypted", "a")]),
    "method": (archive_of(Entry(b"a", method=93)), [("archive.compression", "a")]),
    "overlap": (overlapping(2, b"x"), [("archive.overlap", "0000.txt")]),
    "prepended": (b"MZ" + archive_of(Entry(b"a")), [("archive.prepended", "set.zip")]),
    "many": (million_entries(), [("archive.too-many-entries", "set.zip")]),
    "bomb": (
        archive_of(Entry(b"a", bytes(1000), method=8, size_bytes=65 << 20)),
        [("archive.bomb", "set.zip")],
    ),
    "no zip": (b"%PDF-1.7", [("archive.broken", "set.zip")]),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_refused_with_a_finding_for_each_bad_entry(tmp_path, name):
    content, expected = ARCHIVES[name]
    (tmp_path / "set.zip").write_bytes(content)

    result = check(tmp_path / "set.zip")

    assert [(one.code, one.file) for one in result.findings] == expected
    assert {str(one.severity) for one in result.findings} == {"error"}
    assert not result.ok
    assert result.manifest is None
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


@pytest.mark.parametrize(
    ("name", "other", "expected"),
    [
        ("images/a.png", "images/A.png", ("files.name-collision", "images/a.png")),
        ("images/nul.jpg", "x.csv", ("files.name-unusable", "images/nul.jpg")),
        ("images/a\nb.jpg", "x.csv", ("files.name-unusable", "images/a\nb.jpg")),
        ("images/a\\b.jpg", "x.csv", ("files.name-unusable", "images/a\\b.jpg")),
    ],
)
def test_a_folder_that_no_archive_could_hold_is_refused_at_home(tmp_path, name, other, expected):
    files = yolo_files(3) | {name: picture(7, kind="PNG"), other: picture(8, kind="PNG")}
    result = check(write_files(tmp_path / "set", files))

    found = [(one.code, one.file) for one in result.findings if one.severity == "error"]
    assert expected in found


def test_what_is_packed_can_be_unpacked_and_checked_alike(tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(3) | {"NUL": b"", "a.h": b"", "A.h": b""})
    assert check(folder).ok

    archive = pack_folder(folder, tmp_path / "set.zip")

    assert unpack(archive, tmp_path / "back") == 7
    assert check(archive).manifest == check(folder).manifest


def test_an_archive_within_an_archive_is_not_looked_into(tmp_path):
    inner = archive_of(Entry(b"../x"))
    archive = write_zip(tmp_path / "set.zip", yolo_files(3) | {"more/inner.zip": inner})
    with zipfile.ZipFile(archive) as opened:
        assert "more/inner.zip" in opened.namelist()

    assert check(archive).ok
