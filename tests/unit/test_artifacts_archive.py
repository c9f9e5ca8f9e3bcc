import io
import shutil
import stat
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.artifacts.archive import ArchiveLimits, unpack
from perdure.errors import UnsafeArchive
from tests.builders.archives import DEFLATED, Entry, archive_of, overlapping
from tests.builders.datasets import write_zip


def entry(name: str, **fields) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def zip_of(path: Path, *entries: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return path


def renamed(path: Path, old: bytes, new: bytes) -> Path:
    """Replace a name in the raw bytes, in the local header and in the directory."""
    assert len(old) == len(new)
    path.write_bytes(path.read_bytes().replace(old, new))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "sandbox" / "target"


def assert_refused(archive: Path, target: Path, code: str, **limits) -> None:
    before = {path for path in archive.parent.rglob("*") if path != target.parent}
    with pytest.raises(UnsafeArchive) as caught:
        unpack(archive, target, limits=ArchiveLimits(**limits))
    assert caught.value.details["code"] == code
    assert caught.value.message
    assert not target.exists()
    assert {path for path in archive.parent.rglob("*") if path != target.parent} == before


def test_files_are_unpacked_and_litter_is_not(tmp_path, target):
    archive = write_zip(
        tmp_path / "a.zip",
        {
            "set/images/a.jpg": b"abc",
            "set\\labels\\a.txt": b"0",
            "./set/b.txt": b"",
            "__MACOSX/set/._a.jpg": b"x",
            "set/.DS_Store": b"x",
        },
    )
    seen = []

    assert unpack(archive, target, progress=lambda done, total: seen.append((done, total))) == 3

    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert found == {"set/images/a.jpg", "set/labels/a.txt", "set/b.txt"}
    assert (target / "set/images/a.jpg").read_bytes() == b"abc"
    assert seen[0] == (0, 5)


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/x", "..\\..\\x", "\\x", "C:\\x", "c:/x", "a/b/..", "a\nb", "a\x7f"],
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, target, name):
    archive = zip_of(tmp_path / "a.zip", ("good.txt", b"good"), (entry(name), b"bad"))
    assert_refused(archive, target, "archive.path-escape")


@pytest.mark.parametrize("name", ["x" * 256, "/".join("abcdefghij" * 4), "y/" * 30 + "z" * 250 * 4])
def test_names_that_no_disk_takes_are_refused(tmp_path, target, name):
    assert_refused(zip_of(tmp_path / "a.zip", (name, b"")), target, "archive.path-escape")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_and_special_files_are_refused(tmp_path, target, kind):
    link = entry("link", external_attr=(kind | 0o777) << 16)
    archive = zip_of(tmp_path / "a.zip", (link, b"/etc"), ("link/x", b"through"))
    assert_refused(archive, target, "archive.link")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "names", [("a.txt", "a.txt"), ("a.txt", "./a.txt"), ("d\\a", "d/a"), ("a", "a/b"), ("a/", "a")]
)
def test_two_entries_of_one_name_are_refused(tmp_path, target, names):
    archive = zip_of(tmp_path / "a.zip", *((name, b"") for name in names))
    assert_refused(archive, target, "archive.duplicate-name")


def test_more_entries_than_allowed_are_refused_before_they_are_read(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", {f"{number}.txt": b"" for number in range(11)})

    assert_refused(archive, target, "archive.too-many-entries", max_entries=10)
    assert unpack(archive, target, limits=ArchiveLimits(max_entries=11)) == 11


def test_the_number_in_the_end_record_is_not_believed(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", {f"{number}.txt": b"" for number in range(11)})
    data = bytearray(archive.read_bytes())
    struct.pack_into("<HH", data, len(data) - 14, 1, 1)
    archive.write_bytes(data)

    assert_refused(archive, target, "archive.too-many-entries", max_entries=10)


def test_a_million_entries_are_refused_by_default(tmp_path, target):
    header = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 9, 1, *[0] * 6) + b"a"
    directory = header * 1_000_000
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0, 0, len(directory), 0, 0)
    archive = tmp_path / "a.zip"
    archive.write_bytes(directory + end)

    assert_refused(archive, target, "archive.too-many-entries")


def test_an_archive_with_64_bit_records_is_counted(tmp_path, target):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for number in range(70_000):  # more than 16 bits hold
            opened.writestr(f"{number}", b"")

    assert_refused(archive, target, "archive.too-many-entries", max_entries=69_999)


def test_more_bytes_than_allowed_are_refused(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", {"a": b"x" * 60, "b": b"x" * 41})

    assert_refused(archive, target, "archive.too-large", max_bytes=100)
    assert unpack(archive, target, limits=ArchiveLimits(max_bytes=101)) == 2


def test_a_bomb_is_refused(tmp_path, target):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("zeros", bytes(1_000_000))

    assert_refused(archive, target, "archive.bomb", ratio_free_bytes=100_000)
    assert unpack(archive, target) == 1  # a megabyte of zeros harms nobody


def test_an_entry_that_gives_more_than_it_declares_is_refused(tmp_path, target):
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("zeros", bytes(5_000_000))
    size = struct.pack("<L", 5_000_000)
    archive.write_bytes(archive.read_bytes().replace(size, struct.pack("<L", 10)))

    assert_refused(archive, target, "archive.broken")


def test_an_encrypted_entry_is_refused(tmp_path, target):
    archive = zip_of(tmp_path / "a.zip", ("a.txt", b"abc"))
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(data)

    assert_refused(archive, target, "archive.encrypted")


def test_other_compressions_are_refused(tmp_path, target):
    archive = zip_of(tmp_path / "a.zip", (entry("a.txt", compress_type=zipfile.ZIP_LZMA), b"abc"))
    assert_refused(archive, target, "archive.compression")


def test_names_that_are_not_utf8_are_refused(tmp_path, target):
    gbk = renamed(zip_of(tmp_path / "gbk.zip", ("xxxx.txt", b"")), b"xxxx", "鸟类".encode("gbk"))
    assert_refused(gbk, target, "archive.name-encoding")

    flagged = zip_of(tmp_path / "flagged.zip", ("ää.txt", b""))
    assert_refused(
        renamed(flagged, "ää".encode(), b"\xff\xfe\xfd\xfc"), target, "archive.name-encoding"
    )


def test_utf8_names_without_the_flag_are_taken_as_macos_writes_them(tmp_path, target):
    archive = renamed(zip_of(tmp_path / "a.zip", ("xxxx.txt", b"")), b"xxxx", "ää".encode())

    unpack(archive, target)

    assert [path.name for path in target.iterdir()] == ["ää.txt"]


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + bytes(100), b"PK\x05\x06"])
def test_what_is_no_zip_is_refused(tmp_path, target, content):
    archive = tmp_path / "a.zip"
    archive.write_bytes(content)
    assert_refused(archive, target, "archive.broken")


def test_a_truncated_or_damaged_archive_is_refused_whole(tmp_path, target):
    archive = write_zip(tmp_path / "a.zip", {"a": b"a" * 1000, "b": b"b" * 1000})
    data = archive.read_bytes()
    cut = tmp_path / "cut.zip"
    cut.write_bytes(data[:-30])
    assert_refused(cut, target, "archive.broken")

    headless = tmp_path / "headless.zip"
    headless.write_bytes(data[5:])
    assert_refused(headless, target, "archive.broken")

    rotten = tmp_path / "rotten.zip"
    rotten.write_bytes(data.replace(b"b" * 1000, b"b" * 999 + b"c"))
    assert_refused(rotten, target, "archive.broken")


def refused(archive: Path, content: bytes, **limits) -> list[tuple[str, str]]:
    """Code and entry of all faults of an archive; nothing of it is left on disk."""
    archive.write_bytes(content)
    target = archive.parent / "target"
    with pytest.raises(UnsafeArchive) as caught:
        unpack(archive, target, limits=ArchiveLimits(**limits))
    assert {path.name for path in archive.parent.iterdir()} == {archive.name}
    return [(fault.code, fault.entry) for fault in caught.value.details["faults"]]


def test_all_bad_entries_are_named_at_once(tmp_path):
    content = archive_of(
        Entry(b"good.txt", b"good"),
        Entry(b"../x", b"bad"),
        Entry(b"link", b"/etc", mode=stat.S_IFLNK | 0o777),
        Entry(b"secret.txt", b"?", flags=1),
        Entry(b"odd.txt", b"?", method=14),
        Entry(b"good.txt", b"again"),
    )
    assert refused(tmp_path / "a.zip", content) == [
        ("archive.path-escape", "../x"),
        ("archive.link", "link"),
        ("archive.encrypted", "secret.txt"),
        ("archive.compression", "odd.txt"),
        ("archive.duplicate-name", "good.txt"),
    ]


def test_a_thousand_faults_are_enough(tmp_path):
    content = archive_of(*(Entry(b"../%d" % number) for number in range(1500)))
    assert len(refused(tmp_path / "a.zip", content)) == 1000


def test_a_name_is_not_told_at_any_length(tmp_path):
    content = archive_of(Entry(b"../" + b"x" * 65_000))
    [(code, entry)] = refused(tmp_path / "a.zip", content)
    assert (code, entry) == ("archive.path-escape", "../" + "x" * 1020 + "\u2026")


@pytest.mark.parametrize(
    "name", ["NUL", "aux.jpg", "images/Con/a.jpg", "com1", "LPT9.txt", "nul .txt", "COM\u00b9.png"]
)
def test_names_of_devices_are_refused(tmp_path, name):
    content = archive_of(Entry(name.encode(), flags=0x800))
    assert refused(tmp_path / "a.zip", content) == [("archive.path-escape", name)]


@pytest.mark.parametrize("name", ["null.jpg", "auxiliary.txt", "com10.txt", "a.nul", "console/a"])
def test_names_that_only_look_like_devices_are_not(tmp_path, target, name):
    assert unpack(zip_of(tmp_path / "a.zip", (name, b"")), target) == 1


def test_a_nul_in_a_name_does_not_end_it(tmp_path):
    content = archive_of(Entry(b"a.jpg\0/../../x"))
    assert refused(tmp_path / "a.zip", content) == [("archive.path-escape", "a.jpg\0/../../x")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A.jpg", "a.JPG"),
        ("\u00e9.jpg", "e\u0301.jpg"),  # one code point, and two
        ("\u00c9.jpg", "e\u0301.JPG"),
        ("a.jpg", "a.jpg."),  # Windows drops what stands at the end
        ("a.jpg", "A.jpg. ."),
        ("images/a.jpg", "images /a.jpg"),
    ],
)
def test_names_that_some_systems_take_for_one_are_refused(tmp_path, one, other):
    content = archive_of(*(Entry(name.encode(), flags=0x800) for name in (one, other)))
    assert refused(tmp_path / "a.zip", content) == [("archive.duplicate-name", other)]


@pytest.mark.parametrize(("file", "folder"), [("Images", "images"), ("images", "Images")])
def test_a_file_and_a_folder_that_some_systems_take_for_one_are_refused(tmp_path, file, folder):
    content = archive_of(Entry(file.encode()), Entry(f"{folder}/a.jpg".encode()))
    assert refused(tmp_path / "a.zip", content) == [("archive.duplicate-name", file)]


@pytest.mark.parametrize("name", ["...", "a/.../b.jpg", ".. /x.jpg", " /x.jpg", "a/. ."])
def test_names_of_dots_and_spaces_are_refused(tmp_path, name):
    """Windows takes ".. " for the folder above."""
    content = archive_of(Entry(name.encode()))
    assert refused(tmp_path / "a.zip", content) == [("archive.path-escape", name)]


def test_a_folder_may_be_told_by_a_backslash(tmp_path, target):
    archive = tmp_path / "a.zip"
    archive.write_bytes(archive_of(Entry(b"images\\"), Entry(b"images\\a.jpg", b"abc")))
    assert unpack(archive, target) == 1
    assert (target / "images/a.jpg").read_bytes() == b"abc"


def test_few_files_in_many_folders_are_refused(tmp_path, target):
    """Ten files in 200 folders and the top: each folder costs the disk more than its entry."""
    archive = tmp_path / "a.zip"
    deep = [Entry(b"%d" % number + b"/a" * 19 + b"/b.txt") for number in range(10)]
    archive.write_bytes(archive_of(*deep))
    assert_refused(archive, target, "archive.too-many-entries", max_entries=200)
    assert unpack(archive, target, limits=ArchiveLimits(max_entries=201)) == 10


def test_names_that_differ_in_letters_are_two(tmp_path, target):
    archive = zip_of(tmp_path / "a.zip", ("stra\u00dfe.jpg", b""), ("strasse.jpg", b""))
    assert unpack(archive, target) == 2


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    content = overlapping(3, b"x" * 100)
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        assert [info.file_size for info in opened.infolist()] == [176, 138, 100]
    assert refused(tmp_path / "a.zip", content) == [
        ("archive.overlap", "0000.txt"),
        ("archive.overlap", "0001.txt"),
    ]


def test_many_overlapping_entries_are_refused_without_reading_them(tmp_path):
    content = overlapping(2000, b"x" * 1000)  # would unpack to 78 MB
    assert len(content) < 250_000
    assert {code for code, _ in refused(tmp_path / "a.zip", content)} == {"archive.overlap"}


def test_an_entry_that_reaches_into_the_directory_is_refused(tmp_path):
    content = archive_of(Entry(b"a.txt", b"abc", packed_bytes=200, size_bytes=200))
    assert refused(tmp_path / "a.zip", content) == [("archive.overlap", "a.txt")]


def test_what_stands_before_the_first_entry_is_refused(tmp_path):
    good = archive_of(Entry(b"a.txt", b"abc"))
    alone = [("archive.prepended", "")]
    assert refused(tmp_path / "a.zip", b"#!/bin/sh\n" + good) == alone
    assert refused(tmp_path / "a.zip", archive_of(Entry(b"lost.txt")) + good) == alone


def test_archives_in_an_archive_are_files_like_others(tmp_path, target):
    inner = archive_of(Entry(b"../x", b"bad"))
    archive = tmp_path / "a.zip"
    archive.write_bytes(archive_of(Entry(b"inner.zip", inner)))

    assert unpack(archive, target) == 1
    assert (target / "inner.zip").read_bytes() == inner


@pytest.mark.parametrize(
    ("sizes", "extra", "code"),
    [
        # 0xffffffff says that the size stands in the extra field 1: at most 2^64 - 1.
        ((0xFFFFFFFF, 3), struct.pack("<2HQ", 1, 8, (1 << 64) - 1), "archive.too-large"),
        ((3, 0xFFFFFFFF), struct.pack("<2HQ", 1, 8, (1 << 64) - 1), "archive.overlap"),
        ((0xFFFFFFFF, 3), struct.pack("<2HL", 1, 4, 7), "archive.broken"),  # cut off
        ((0xFFFFFFFF, 3), b"", "archive.bomb"),
    ],
)
def test_lies_in_64_bit_sizes_are_refused(tmp_path, sizes, extra, code):
    size_bytes, packed_bytes = sizes
    entry = Entry(b"a", b"abc", size_bytes=size_bytes, packed_bytes=packed_bytes, extra=extra)
    assert [code for code, _ in refused(tmp_path / "a.zip", archive_of(entry))] == [code]


def test_an_entry_that_lies_beyond_the_file_is_refused(tmp_path):
    far = struct.pack("<2HQ", 1, 8, (1 << 63) + 5)
    entry = Entry(b"a", b"abc", offset=0xFFFFFFFF, extra=far)
    assert refused(tmp_path / "a.zip", archive_of(entry)) == [("archive.prepended", "")]
    two = archive_of(Entry(b"b"), entry)
    assert refused(tmp_path / "a.zip", two) == [("archive.overlap", "a")]


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2000])
def test_every_kind_of_encryption_is_named(tmp_path, flag):
    content = archive_of(Entry(b"a.txt", b"abc", flags=flag))
    assert refused(tmp_path / "a.zip", content) == [("archive.encrypted", "a.txt")]


NAMES = st.lists(
    st.sampled_from(
        [
            "..",
            ".",
            "",
            "a",
            "b.txt",
            "/",
            "\\",
            "C:",
            "\0",
            "%2e%2e",
            "\u202e",
            "~",
            "nul",
            "\u00e9",
        ]
    ),
    max_size=6,
).flatmap(lambda parts: st.sampled_from(["/", "\\", ""]).map(lambda mark: mark.join(parts)))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(NAMES, st.text(max_size=12)), min_size=1, max_size=4), st.booleans())
def test_no_name_leaves_the_folder(tmp_path, names, flagged):
    """Whatever entries are called: they lie in the folder, or the archive is refused."""
    raw = [name.encode(errors="surrogatepass") for name in names]
    archive = tmp_path / "a.zip"
    archive.write_bytes(
        archive_of(*(Entry(name, b"x", flags=0x800 if flagged else 0) for name in raw))
    )
    target = tmp_path / "sandbox" / "target"
    try:
        unpack(archive, target)
    except UnsafeArchive:
        assert not target.exists()
    else:
        assert all(path.resolve().is_relative_to(target) for path in target.rglob("*"))
    shutil.rmtree(target, ignore_errors=True)
    assert {path.name for path in tmp_path.iterdir()} <= {"a.zip", "sandbox"}
    assert not list((tmp_path / "sandbox").glob("*"))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_gives_anything_but_a_refusal_or_whole_files(tmp_path, data):
    """Bytes of a good archive overwritten at random: no other error, and nothing left behind."""
    packed = zlib.compress(b"abc" * 50, wbits=-15)
    good = archive_of(
        Entry(b"a.txt", b"abc"),
        Entry(b"b.txt", packed, DEFLATED, crc=zlib.crc32(b"abc" * 50), size_bytes=150),
    )
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    archive, target = tmp_path / "a.zip", tmp_path / "target"
    archive.write_bytes(content[: data.draw(st.integers(0, len(good)))])
    with suppress(UnsafeArchive):
        unpack(archive, target)
        shutil.rmtree(target)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]
