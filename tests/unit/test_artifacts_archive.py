import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from perdure.artifacts.archive import ArchiveLimits, pack_folder, unpack
from perdure.errors import InvalidInput, UnsafeArchive
from tests.builders.datasets import write_files, write_zip


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


def test_packing_is_deterministic_and_takes_what_belongs_to_a_data_set(tmp_path):
    files = {
        "data.yaml": "names: [bird]\n",
        "images/b.JPG": b"\xff\xd8",
        "images/a.png": b"\x89PNG",
        "labels/a.txt": "0 0.5 0.5 1 1\n" * 50,
        "labels/a.cache": b"x",
        "annotations.json": "{}",
        "Annotations/a.XML": "<a/>",
        "boxes.csv": "a,b\n",
        ".git/config.txt": b"x",
        "run.py": "print()",
    }
    one = write_files(tmp_path / "one", files)
    two = write_files(tmp_path / "two", dict(reversed(files.items())))
    (two / "labels/a.txt").chmod(0o600)

    first = pack_folder(one, tmp_path / "one.zip")
    second = pack_folder(two, tmp_path / "two.zip")

    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert archive.namelist() == sorted(archive.namelist())
        methods = {info.filename: info.compress_type for info in archive.infolist()}
    assert methods == {
        "Annotations/a.XML": zipfile.ZIP_DEFLATED,
        "annotations.json": zipfile.ZIP_DEFLATED,
        "boxes.csv": zipfile.ZIP_DEFLATED,
        "data.yaml": zipfile.ZIP_DEFLATED,
        "images/a.png": zipfile.ZIP_STORED,
        "images/b.JPG": zipfile.ZIP_STORED,
        "labels/a.txt": zipfile.ZIP_DEFLATED,
    }
    assert unpack(first, tmp_path / "back") == 7
    assert (tmp_path / "back/labels/a.txt").read_text() == files["labels/a.txt"]


def test_packing_refuses_links_out_of_the_folder_and_empty_folders(tmp_path):
    folder = write_files(tmp_path / "set", {"images/a.jpg": b"x"})
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "labels").mkdir()
    (folder / "labels/a.txt").symlink_to(secret)

    with pytest.raises(InvalidInput, match=r"a\.txt is a link"):
        pack_folder(folder, tmp_path / "a.zip")
    with pytest.raises(InvalidInput, match="no images"):
        pack_folder(write_files(tmp_path / "empty", {"run.py": ""}), tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_packing_takes_links_within_the_folder(tmp_path):
    folder = write_files(tmp_path / "set", {"images/a.jpg": b"abc"})
    (folder / "images/b.jpg").symlink_to(folder / "images/a.jpg")

    with zipfile.ZipFile(
        io.BytesIO(pack_folder(folder, tmp_path / "a.zip").read_bytes())
    ) as packed:
        assert packed.read("images/b.jpg") == b"abc"
