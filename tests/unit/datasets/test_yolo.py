import pytest

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Finding, Findings
from perdure.datasets.formats.yolo import read_yolo
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import read_tree
from tests.builders.datasets import ROW, write_files, yolo_files

BOX = (0, 0.5, 0.5, 0.2, 0.4)


@pytest.fixture
def read(tmp_path):
    def read(files: dict[str, str | bytes]) -> tuple[Annotations, list[Finding]]:
        findings = Findings()
        annotations = read_yolo(
            read_tree(write_files(tmp_path / "set", files), findings), ImportRules(), findings
        )
        return annotations, list(findings)

    return read


def splits(annotations: Annotations) -> dict[str, str | None]:
    return {image.path: image.split for image in annotations.images}


def codes(findings: list[Finding]) -> list[str]:
    return [found.code for found in findings]


def test_a_folder_with_data_yaml_is_read(read):
    annotations, findings = read(yolo_files(2))

    assert annotations.format == "yolo"
    assert annotations.classes == ("bird",)
    assert [(image.path, image.boxes, image.split) for image in annotations.images] == [
        ("images/0.jpg", (BOX,), "train"),
        ("images/1.jpg", (BOX,), "train"),
    ]
    assert findings == []


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("images/train", "images/val"),
        ("images/Train", "images/validation"),
        ("train/images", "valid/images"),
        ("images/train2017", "images/val2017"),
        ("train", "val"),
    ],
)
def test_split_folders_are_known_without_data_yaml(read, train, val):
    annotations, findings = read(
        {
            "classes.txt": "bird\nfox\n",
            f"{train}/a.jpg": b"",
            f"{train.replace('images', 'labels')}/a.txt": ROW,
            f"{val}/b.jpg": b"",
            f"{val.replace('images', 'labels')}/b.txt": ROW.replace("0", "1", 1),
        }
    )

    assert splits(annotations) == {f"{train}/a.jpg": "train", f"{val}/b.jpg": "val"}
    assert annotations.classes == ("bird", "fox")
    assert all(image.boxes for image in annotations.images)
    assert findings == []


def test_names_are_made_up_with_a_warning_where_there_are_none(read):
    annotations, findings = read({"images/a.jpg": b"", "labels/a.txt": "2 0.5 0.5 0.1 0.1"})

    assert annotations.classes == ("class0", "class1", "class2")
    assert codes(findings) == ["classes.unnamed", "classes.unused"]


def test_one_wrapping_folder_is_looked_through(read):
    annotations, findings = read({f"my set/{name}": data for name, data in yolo_files(2).items()})

    assert splits(annotations) == {"images/0.jpg": "train", "images/1.jpg": "train"}
    assert findings == []


def test_list_files_name_images_relative_to_themselves_or_to_the_set(read):
    annotations, findings = read(
        yolo_files(3)
        | {
            "data.yaml": "train: lists/train.txt\nval: [lists/val.txt]\nnames: [bird]",
            "lists/train.txt": "../images/0.jpg\r\n\r\nimages\\1.jpg\r\n",
            "lists/val.txt": "images/2.jpg",
        }
    )

    assert splits(annotations) == {
        "images/0.jpg": "train",
        "images/1.jpg": "train",
        "images/2.jpg": "val",
    }
    assert findings == []


def test_list_files_cannot_name_files_elsewhere(read):
    _, findings = read(
        yolo_files(1)
        | {
            "data.yaml": "train: train.txt\nnames: [bird]",
            "train.txt": "images/0.jpg\n../../x.jpg\n/etc/x.jpg\nC:\\x.jpg\nimages/9.jpg\n",
        }
    )

    assert [(found.code, found.file, found.line) for found in findings] == [
        ("files.path-escape", "train.txt", 2),
        ("files.path-escape", "train.txt", 3),
        ("files.path-escape", "train.txt", 4),
        ("files.missing-image", "train.txt", 5),
    ]


@pytest.mark.parametrize(
    "config",
    [
        "train: ../images\n",
        "path: ../datasets/birds\ntrain: images\n",
        "path: /home/somebody/birds\ntrain: images\n",
        "train: /content/birds/images\n",
        "train: ..\\images\n",
    ],
)
def test_a_path_from_another_machine_is_replaced_by_what_exists(read, config):
    annotations, findings = read(yolo_files(2) | {"data.yaml": config + "names: [bird]"})

    assert len(annotations.images) == 2
    assert codes(findings) == ["yaml.path"]
    assert "images was read instead" in findings[0].advice
    assert (findings[0].file, findings[0].line) == ("data.yaml", config.count("\n"))


def test_paths_that_exist_nowhere_or_twice_are_errors(read):
    _, nowhere = read(yolo_files(2) | {"data.yaml": "train: pictures\nnames: [bird]"})
    assert codes(nowhere) == ["yaml.path"]
    assert "images lie in images" in nowhere[0].advice

    files = {"data.yaml": "path: ../birds\ntrain: images\nnames: [bird]", "birds/images/9.jpg": b""}
    _, twice = read(yolo_files(2) | files)
    assert codes(twice) == ["yaml.path"]
    assert twice[0].problem == "this could mean birds/images or images"


def test_the_same_images_in_train_and_val_are_leakage(read):
    _, findings = read(yolo_files(2) | {"data.yaml": "train: images\nval: images\nnames: [bird]\n"})
    assert codes(findings) == ["split.leakage"] * 2


def test_test_images_are_left_out(read):
    files = yolo_files(2) | {"images/test/9.jpg": b"", "labels/test/9.txt": ROW}
    del files["data.yaml"]
    annotations, findings = read(files | {"classes.txt": "bird"})

    assert splits(annotations) == {"images/0.jpg": None, "images/1.jpg": None}
    assert (annotations.left_out, findings) == (1, [])


def test_every_bad_row_of_every_file_is_listed_with_file_and_line(read):
    annotations, findings = read(
        yolo_files(2)
        | {
            "labels/0.txt": f"\n{ROW}\n5 0.5 0.5 0.1 0.1\n0 nan 0.5 0.1 0.1\n",
            "labels/1.txt": "0 0.5 0.5 0.2 0.2 0.9\r\n0 0.5 0.5 0 0.1\r\n",
        }
    )

    assert [(found.code, found.file, found.line) for found in findings] == [
        ("label.class-out-of-range", "labels/0.txt", 3),
        ("label.not-finite", "labels/0.txt", 4),
        ("label.extra-field", "labels/1.txt", 1),
        ("label.degenerate-box", "labels/1.txt", 2),
    ]
    assert annotations.images[0].boxes == (BOX,)
    for found in findings:
        assert all((found.value, found.rule, found.advice))


def test_a_row_that_occurs_twice_is_read_once(read):
    annotations, findings = read(
        yolo_files(1) | {"labels/0.txt": f"{ROW}\n{ROW.replace('0.5', '0.50')}\n"}
    )

    assert annotations.images[0].boxes == (BOX,)
    assert [(found.code, found.severity, found.line) for found in findings] == [
        ("label.duplicate", "info", 2)
    ]


def test_images_without_labels_are_background_and_labels_without_images_are_named(read):
    files = yolo_files(3) | {"labels/0.txt": "", "labels/9.txt": ROW, "labels/classes.txt": "bird"}
    del files["labels/1.txt"]
    annotations, findings = read(files)

    assert [image.boxes for image in annotations.images] == [(), (), (BOX,)]
    assert [(found.code, found.file, found.value) for found in findings] == [
        ("files.background", "images/1.jpg", "1 of 3 images"),
        ("files.label-without-image", "labels/9.txt", ""),
    ]


@pytest.mark.parametrize(
    ("unlabelled", "code", "severity"),
    [(2, "files.background", "warning"), (3, "files.labels-missing", "error")],
)
def test_more_than_half_of_the_images_without_a_label_file_is_an_error(
    read, unlabelled, code, severity
):
    files = yolo_files(4)
    for number in range(unlabelled):
        del files[f"labels/{number}.txt"]
    _, findings = read(files)

    assert [(found.code, found.severity, found.value) for found in findings] == [
        (code, severity, f"{unlabelled} of 4 images")
    ]


def test_empty_label_files_are_deliberate_however_many(read):
    assert read(yolo_files(4) | {f"labels/{number}.txt": "" for number in range(3)})[1] == []


def test_images_that_share_a_label_file_are_refused(read):
    _, findings = read(yolo_files(1) | {"images/0.png": b""})
    assert [(found.code, found.file) for found in findings] == [
        ("files.stem-collision", "images/0.png")
    ]


@pytest.mark.parametrize(
    ("encoding", "mark", "recorded"),
    [
        ("utf-8", b"", []),
        ("utf-8", b"\xef\xbb\xbf", ["text.encoding"]),
        ("utf-16-le", b"\xff\xfe", ["text.encoding"]),
        ("utf-16-be", b"\xfe\xff", ["text.encoding"]),
    ],
)
def test_encodings_are_recognised(read, encoding, mark, recorded):
    data = mark + f"{ROW}\r\n\r\n".encode(encoding)
    annotations, findings = read(yolo_files(1) | {"labels/0.txt": data})

    assert annotations.images[0].boxes == (BOX,)
    assert codes(findings) == recorded


def test_class_names_in_gb18030_are_recognised(read):
    annotations, findings = read(
        {"images/a.jpg": b"", "labels/a.txt": ROW, "classes.txt": "鸟类\n".encode("gb18030")}
    )
    assert annotations.classes == ("鸟类",)
    assert codes(findings) == ["text.encoding"]


def test_a_label_file_that_is_no_text_is_an_error(read):
    _, findings = read(yolo_files(1) | {"labels/0.txt": b"\x00\x01\xff\xfe\xff"})
    assert [(found.code, found.severity) for found in findings] == [("text.encoding", "error")]


def test_links_out_of_the_folder_are_refused_and_not_followed(read, tmp_path):
    outside = write_files(tmp_path / "outside", {"images/s.jpg": b"secret", "s.txt": ROW})
    inside = write_files(tmp_path / "set", yolo_files(1))
    (inside / "images/s.jpg").symlink_to(outside / "images/s.jpg")
    (inside / "labels/s.txt").symlink_to(outside / "s.txt")
    (inside / "more").symlink_to(outside / "images")

    annotations, findings = read({})

    assert splits(annotations) == {"images/0.jpg": "train"}
    assert [(found.code, found.file) for found in findings] == [
        ("files.path-escape", "images/s.jpg"),
        ("files.path-escape", "labels/s.txt"),
        ("files.path-escape", "more"),
    ]


def test_names_that_are_not_utf8_are_refused(read, tmp_path):
    inside = write_files(tmp_path / "set", yolo_files(1))
    (inside / "images" / b"\xff.jpg".decode(errors="surrogateescape")).write_bytes(b"")

    _, findings = read({})

    assert codes(findings) == ["files.name-encoding"]


def test_upper_case_endings_are_images(read):
    annotations, _ = read(yolo_files(1) | {"images/A.JPG": b"", "images/b.JpEg": b""})
    assert sorted(splits(annotations)) == ["images/0.jpg", "images/A.JPG", "images/b.JpEg"]


def test_classes_without_boxes_and_sets_without_boxes_are_named(read):
    _, unused = read(yolo_files(1) | {"data.yaml": "train: images\nnames: [bird, fox, owl]"})
    assert [(found.code, found.value) for found in unused] == [("classes.unused", "fox, owl")]

    _, none = read(yolo_files(1) | {"labels/0.txt": ""})
    assert [(found.code, found.severity) for found in none] == [("label.none", "error")]


def test_no_images_is_said_unless_it_is_said_already_why_they_were_not_found(read, tmp_path):
    _, gone = read({"data.yaml": "train: pictures\nnames: [bird]"})
    assert codes(gone) == ["files.no-images", "yaml.path"]

    write_files(tmp_path / "set", {"images/test/9.jpg": b"", "labels/test/9.txt": ROW})
    _, kept_for_test = read({"data.yaml": "names: [bird, '']"})
    assert "files.no-images" in codes(kept_for_test)


def test_an_empty_folder_is_an_error(read, tmp_path):
    (tmp_path / "set").mkdir()
    assert codes(read({})[1])[0] == "files.no-images"
