"""Inputs met in the wild that a reader passes over, or takes for something else, in silence."""

import errno
import json
from pathlib import Path

import pytest

from perdure.datasets.check import check, check_folder
from perdure.datasets.findings import Finding
from perdure.errors import InvalidInput, Unavailable
from tests.builders.datasets import ROW, write_files, write_zip, yolo_files

BOX = (0, 0.5, 0.5, 0.2, 0.4)


def found(folder: Path) -> list[tuple[str, str, str, int | None]]:
    return [place(finding) for finding in check_folder(folder).findings]


def place(finding: Finding) -> tuple[str, str, str, int | None]:
    return finding.code, finding.severity, finding.file, finding.line


@pytest.mark.parametrize(
    ("val", "files"),
    [
        ("empty", {"empty/README.md": "none yet"}),
        ("val.txt", {"val.txt": "\r\n\r\n"}),
        ("[images/val, empty]", {"empty/README.md": "none yet"}),
    ],
)
def test_a_split_without_images_is_refused_and_not_made_anew(tmp_path, val, files):
    config = f"names: [bird]\ntrain: images\nval: {val}\n".replace("images/val, ", "")
    folder = write_files(tmp_path, yolo_files(3) | files | {"data.yaml": config})
    assert found(folder) == [("yaml.path", "error", "data.yaml", 3)]


def test_a_data_yaml_that_says_only_what_validates_is_refused(tmp_path):
    config = {"data.yaml": "val: images\nnames: [bird]\n"}
    folder = write_files(tmp_path, yolo_files(3) | config)
    assert [code for code, *_ in found(folder)] == ["yaml.path"]


def test_folders_that_do_not_exist_are_found_with_their_line(tmp_path):
    config = "path: /mnt/birds\ntrain:\n- images\n- more\nval: pictures\nnames: [bird]\n"
    result = check_folder(write_files(tmp_path, yolo_files(3) | {"data.yaml": config}))

    assert [(f.severity, f.line, f.value) for f in result.findings if f.code == "yaml.path"] == [
        ("error", 4, "/mnt/birds/more"),
        ("error", 5, "/mnt/birds/pictures"),
        ("info", 3, "/mnt/birds/images"),
    ]


def test_keypoints_are_left_out_where_data_yaml_says_that_there_are_some(tmp_path):
    files = yolo_files(2) | {
        "data.yaml": "train: images\nkpt_shape: [2, 2]\nnames: [bird]\n",
        "labels/0.txt": f"{ROW} 0.1 0.1 0.9 0.9\n",
    }
    result = check_folder(write_files(tmp_path, files))

    assert result.manifest.images[0].boxes == (BOX,)
    assert [place(f) for f in result.findings] == [
        ("label.keypoints-dropped", "info", "labels/0.txt", 1)
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf\xef\xbb\xbf" + ROW.encode(),
        f"{ROW}\n\ufeff0 0.1 0.1 0.1 0.1".encode(),
        ROW.encode("utf-16-le"),
        ROW.encode("utf-16-be"),
    ],
    ids=["two marks", "mark inside", "little endian, no mark", "big endian, no mark"],
)
def test_marks_and_utf16_are_recognised_wherever_they_come_from(tmp_path, data):
    result = check_folder(write_files(tmp_path, yolo_files(2) | {"labels/0.txt": data}))

    assert BOX in result.manifest.images[0].boxes
    assert [place(f) for f in result.findings] == [("text.encoding", "info", "labels/0.txt", None)]


@pytest.mark.parametrize("name", ["écureuil", "café", "Zürich"])
def test_western_text_in_one_byte_a_letter_is_not_taken_for_chinese(tmp_path, name):
    config = f"train: images\nnames: [{name}]\n".encode("cp1252")
    result = check_folder(write_files(tmp_path, yolo_files(2) | {"data.yaml": config}))

    assert [place(f) for f in result.findings] == [("text.encoding", "error", "data.yaml", None)]
    assert "UTF-8" in result.findings[0].advice


@pytest.mark.parametrize("name", ["鸟类", "朱镕基", "bird 鸟, fox 狐"])
def test_chinese_text_in_gb18030_is_read_also_with_its_rarer_characters(tmp_path, name):
    names = [part.strip() for part in name.split(",")]
    config = f"train: images\nnames: [{name}]\n".encode("gb18030")
    result = check_folder(write_files(tmp_path, yolo_files(2) | {"data.yaml": config}))
    assert list(result.classes) == names


def test_label_files_in_upper_case_are_read(tmp_path):
    files = yolo_files(2) | {"labels/0.TXT": ROW}
    del files["labels/0.txt"]
    result = check_folder(write_files(tmp_path, files))

    assert (result.boxes, result.background, len(result.findings)) == (2, 0, 0)


def test_folders_may_be_called_images_and_labels_in_upper_case(tmp_path):
    files = {
        name.replace("images/", "Images/").replace("labels/", "Labels/"): data
        for name, data in yolo_files(2).items()
    }
    files["data.yaml"] = "names: [bird]\n"
    result = check_folder(write_files(tmp_path, files))

    assert (result.boxes, len(result.findings)) == (2, 0)


def test_labels_that_lie_among_the_images_are_named(tmp_path):
    files = yolo_files(2) | {"images/0.txt": ROW}
    del files["labels/0.txt"]
    result = check_folder(write_files(tmp_path, files))

    assert [place(f)[:3] for f in result.findings] == [
        ("files.background", "warning", "images/0.jpg"),
        ("files.label-without-image", "warning", "images/0.txt"),
    ]
    assert "labels/0.txt" in result.findings[1].advice


def test_pictures_in_other_formats_are_named(tmp_path):
    folder = write_files(tmp_path, yolo_files(2) | {"images/a.HEIC": b"x", "images/b.jfif": b"x"})
    assert found(folder) == [
        ("files.unsupported-image", "warning", "images/a.HEIC", None),
        ("files.unsupported-image", "warning", "images/b.jfif", None),
    ]


def test_a_licence_beside_the_wrapping_folder_does_not_matter(tmp_path):
    files = {f"set/{name}": data for name, data in yolo_files(2).items()}
    result = check_folder(write_files(tmp_path, files | {"LICENSE": "x", "README.txt": "x"}))
    assert (result.classes, len(result.findings)) == (("bird",), 0)


def test_data_yaml_below_the_top_is_not_passed_over(tmp_path):
    files = {f"{top}/{name}": data for top in "ab" for name, data in yolo_files(2).items()}
    result = check_folder(write_files(tmp_path, files))

    assert [place(f)[:3] for f in result.findings if f.severity == "error"] == [
        ("yaml.not-at-top", "error", "a/data.yaml"),
        ("yaml.not-at-top", "error", "b/data.yaml"),
    ]


def test_the_data_yaml_that_was_named_is_the_one_that_is_read(tmp_path):
    files = yolo_files(2) | {"fox.yaml": "train: images\nnames: [fox]\n"}
    folder = write_files(tmp_path, files)

    assert check(folder / "fox.yaml").classes == ("fox",)
    assert check(folder).classes == ("bird",)


def test_links_that_lead_nowhere_are_errors_and_linked_folders_are_named(tmp_path):
    folder = write_files(tmp_path, yolo_files(2) | {"pictures/9.jpg": b""})
    (folder / "images/a.jpg").symlink_to("gone.jpg")
    (folder / "images/b.jpg").symlink_to("c.jpg")
    (folder / "images/c.jpg").symlink_to("b.jpg")
    (folder / "images/more").symlink_to("../pictures")

    assert found(folder) == [
        ("files.broken-link", "error", "images/a.jpg", None),
        ("files.broken-link", "error", "images/b.jpg", None),
        ("files.broken-link", "error", "images/c.jpg", None),
        ("files.linked-folder", "warning", "images/more", None),
    ]


def test_files_that_cannot_be_read_are_findings(tmp_path, monkeypatch):
    folder = write_files(tmp_path, yolo_files(3))
    read_bytes = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name in ("0.jpg", "1.txt"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)

    assert found(folder) == [
        ("files.unreadable", "error", "images/0.jpg", None),
        ("files.unreadable", "error", "labels/1.txt", None),
    ]


def test_folders_that_cannot_be_read_are_findings(tmp_path, monkeypatch):
    folder = write_files(tmp_path, yolo_files(3))
    monkeypatch.setattr("perdure.datasets.tree.os.walk", walk_refusing("labels"))

    assert ("files.unreadable", "error", "labels", None) in found(folder)


def test_a_folder_that_cannot_be_read_may_have_any_name(tmp_path, monkeypatch):
    folder = write_files(tmp_path, yolo_files(3))
    monkeypatch.setattr("perdure.datasets.tree.os.walk", walk_refusing("a\udcff"))

    assert ("files.unreadable", "error", "a\\udcff", None) in found(folder)


def test_the_data_set_itself_may_be_unreadable(tmp_path, monkeypatch):
    def refusing(path: Path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refusing)
    monkeypatch.setattr("perdure.datasets.tree.os.walk", walk_refusing(""))

    assert [place(f) for f in check_folder(tmp_path).findings if f.file] == [
        ("files.unreadable", "error", ".", None)
    ]


def test_a_zip_that_cannot_be_read_or_unpacked_is_said_so(tmp_path, monkeypatch):
    archive = write_zip(tmp_path / "set.zip", yolo_files(2))

    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("perdure.datasets.check.unpack", full)
    with pytest.raises(Unavailable, match=r"No space left .* TMPDIR"):
        check(archive)
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(InvalidInput, match="cannot be read"):
        check(archive)


def walk_refusing(name: str):
    def walk(root, onerror=None):
        onerror(PermissionError(errno.EACCES, "Permission denied", str(Path(root, name))))
        return iter(())

    return walk


# Objects of 0.1 to 0.3 of the image, all over it: left, top, width, height.
PLACES = [
    (left / 10, top / 10, 0.1 + (left + top) % 3 / 10, 0.1 + left % 3 / 10)
    for left in range(0, 8, 2)
    for top in range(8)
]


@pytest.mark.parametrize(
    ("row", "meaning"),
    [
        (lambda x, y, w, h: (x + w / 2, y + h / 2, w, h), None),
        (lambda x, y, w, h: (x, y, x + w, y + h), "left, top, right, bottom"),
        (lambda x, y, w, h: (x, y, w, h), "left, top, width, height"),
    ],
    ids=["centres", "corners", "upper left"],
)
def test_boxes_that_make_sense_only_when_read_otherwise_are_refused(tmp_path, row, meaning):
    rows = "\n".join(f"0 {' '.join(map(str, row(*place)))}" for place in PLACES)
    result = check_folder(write_files(tmp_path, yolo_files(1) | {"labels/0.txt": rows}))
    suspects = [f for f in result.findings if f.code == "label.box-format-suspect"]

    assert [f.severity for f in suspects] == (["error"] if meaning else [])
    if meaning:
        assert meaning in suspects[0].rule


def test_boxes_that_fill_the_image_or_reach_past_every_border_are_no_reason_to_refuse(tmp_path):
    filling = "\n".join(f"0 0.5 0.5 0.{9000 + n} 0.{8000 + n}" for n in range(40))
    past = "\n".join(f"0 0.0{n} 0.5 0.2 0.2\n0 0.9{n} 0.5 0.2 0.2" for n in range(1, 10))
    for name, rows in (("filling", filling), ("past", past + "\n" + filling)):
        result = check_folder(write_files(tmp_path / name, yolo_files(2) | {"labels/0.txt": rows}))
        assert result.ok
        assert {f.code for f in result.findings} == ({"label.clipped"} if name == "past" else set())


def test_what_utf8_cannot_hold_is_escaped_in_findings(tmp_path):
    folder = write_files(tmp_path, yolo_files(2) | {"data.yaml": 'train: "\\uD800"\nnames: [a]\n'})
    (folder / "images/x.jpg").symlink_to(b"/nowhere/\xff".decode(errors="surrogateescape"))

    text = "".join(check_folder(folder).json_text())

    assert json.loads(text.encode())["counts"]["errors"] == 2
