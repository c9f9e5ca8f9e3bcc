"""Packing a data set's folder for an upload."""

import io
import zipfile

import pytest

from perdure.artifacts.archive import unpack
from perdure.errors import InvalidInput
from tests.builders.datasets import write_files
from tests.builders.packing import pack_folder


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
