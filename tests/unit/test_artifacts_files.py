from pathlib import Path

import pytest

from perdure.artifacts.files import make_folder, new_folder, write_bytes, write_text
from perdure.artifacts.hashing import digest_bytes, digest_file, is_digest

# `printf abc | b3sum`
ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_whole(tmp_path):
    target = tmp_path / "file"
    write_text(target, "before")
    write_bytes(target, b"abc")

    assert target.read_bytes() == b"abc"
    assert names_in(tmp_path) == ["file"]


def test_a_write_that_fails_changes_nothing(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_text(target, "before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(target, "after")

    assert target.read_text() == "before"
    assert names_in(tmp_path) == ["file"]


def test_a_folder_appears_when_it_is_full(tmp_path):
    target = tmp_path / "folder"

    with new_folder(target) as building:
        (building / "sub").mkdir()
        (building / "sub" / "a").write_text("a")
        assert not target.exists()

    assert (target / "sub" / "a").read_text() == "a"
    assert names_in(tmp_path) == ["folder"]


def test_a_folder_whose_filling_fails_never_appears(tmp_path):
    def fill_and_fail() -> None:
        with new_folder(tmp_path / "folder") as building:
            (building / "a").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill_and_fail()

    assert names_in(tmp_path) == []


def test_a_folder_that_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")

    with pytest.raises(OSError), new_folder(tmp_path / "folder"):
        pass

    assert names_in(tmp_path) == ["folder"]
    assert names_in(tmp_path / "folder") == ["mine"]


def test_missing_parents_are_made_and_made_durable(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        "os.fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )

    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")

    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path, tmp_path / "a"]


def test_digests_are_blake3(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    large = b"x" * (3 << 20)
    (tmp_path / "large").write_bytes(large)

    assert digest_bytes(b"abc") == ABC == digest_file(tmp_path / "abc")
    assert digest_file(tmp_path / "large") == digest_bytes(large)
    assert is_digest(ABC)
    for text in ("", ABC[1:], ABC + "0", ABC.upper(), ABC + "\n"):
        assert not is_digest(text)
