import json

import pytest
from PIL import Image

from perdure.datasets.check import check
from perdure.datasets.rules import ImportRules
from perdure.errors import InvalidInput, NotFound
from tests.builders.datasets import ROW, encoded, picture, write_files, write_zip, yolo_files


def found(result) -> list[tuple[str, str, str]]:
    return [(finding.code, finding.severity, finding.file) for finding in result.findings]


def test_a_good_folder_and_its_zip_give_the_same_version(tmp_path):
    files = yolo_files(4)
    folder = check(write_files(tmp_path / "set", files))
    renamed = check(write_files(tmp_path / "other name", files))
    wrapped = check(
        write_zip(tmp_path / "set.zip", {f"set/{n}": data for n, data in files.items()})
    )
    config = check(tmp_path / "set" / "data.yaml")

    assert folder.ok
    assert (folder.images, folder.boxes, folder.background, folder.skipped) == (4, 4, 0, 0)
    assert folder.manifest.images[0].width == 32
    assert folder.manifest.images[0].height == 24
    versions = {result.manifest.version for result in (folder, renamed, wrapped, config)}
    assert len(versions) == 1


def test_row_order_and_spelling_do_not_change_the_version_but_a_box_does(tmp_path):
    def version(name: str, labels: str) -> str:
        return check(
            write_files(tmp_path / name, yolo_files(2) | {"labels/0.txt": labels})
        ).manifest.version

    one = version("a", "0 0.5 0.5 0.2 0.4\n0 0.1 0.1 0.1 0.1\n")
    assert version("b", "0 0.10 .1 1e-1 0.1\r\n0 0.5 0.5 0.2 0.4") == one
    assert version("c", "0 0.5 0.5 0.2 0.4\n0 0.1 0.1 0.1 0.100001\n") != one


def test_all_faults_of_all_files_are_listed_at_once(tmp_path):
    result = check(
        write_files(
            tmp_path / "set",
            yolo_files(3)
            | {
                "data.yaml": "train: images\nnc: 2\nnames: [bird]\n",
                "labels/0.txt": "1 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1\n",
                "images/1.jpg": picture(1)[:200],
            },
        )
    )

    assert not result.ok
    assert result.manifest is None
    assert found(result) == [
        ("yaml.nc-mismatch", "error", "data.yaml"),
        ("image.undecodable", "error", "images/1.jpg"),
        ("label.class-out-of-range", "error", "labels/0.txt"),
        ("label.field-count", "error", "labels/0.txt"),
    ]
    assert (
        result.findings[2].text().startswith("labels/0.txt:1: error: label.class-out-of-range: '1'")
    )


def test_the_json_form_counts_and_lists(tmp_path):
    result = check(
        write_files(tmp_path / "set", yolo_files(2) | {"labels/0.txt": f"{ROW}\n{ROW}\nx"})
    )

    form = json.loads("".join(result.json_text()))

    assert form["format"] == "yolo"
    assert form["version"] is None
    assert form["counts"] == {
        "errors": 1,
        "warnings": 0,
        "infos": 1,
        "by_code": {"label.field-count": 1, "label.duplicate": 1},
        "images": 2,
        "boxes": 2,
        "background": 0,
        "skipped": 0,
        "left_out": 0,
    }
    assert form["findings"][0] == {
        "code": "label.field-count",
        "severity": "error",
        "file": "labels/0.txt",
        "line": 3,
        "pointer": None,
        "value": "x",
        "problem": "a row has the wrong number of fields",
        "rule": "a row must have 5 fields, or a class and at least 3 points; this one has 1",
        "advice": "write: class centre-x centre-y width height",
    }


@pytest.mark.parametrize(("broken", "ok"), [(1, True), (2, False)])
def test_one_per_cent_of_broken_images_is_skipped_and_more_is_refused(tmp_path, broken, ok):
    files = yolo_files(100)
    for number in range(broken):
        files[f"images/{number}.jpg"] = picture(number)[:-100]

    result = check(write_files(tmp_path / "set", files))

    assert result.ok is ok
    assert (result.images, result.skipped) == (100 - broken, broken)
    severity = "warning" if ok else "error"
    assert found(result) == [
        ("image.undecodable", severity, f"images/{number}.jpg") for number in range(broken)
    ]
    if ok:
        assert "images/0.jpg" not in {image.path for image in result.manifest.images}


def test_a_split_whose_only_image_is_skipped_is_refused_and_not_made_anew(tmp_path):
    files = yolo_files(100) | {
        "data.yaml": "train: images\nval: val/images\nnames: [bird]\n",
        "val/images/v.jpg": picture(200)[:-100],
        "val/labels/v.txt": ROW,
    }
    result = check(write_files(tmp_path / "set", files))

    assert found(result) == [
        ("split.too-few-images", "error", ""),
        ("image.undecodable", "warning", "val/images/v.jpg"),
    ]


def test_a_picture_of_absurd_size_is_refused(tmp_path):
    huge = bytearray(picture(1, kind="BMP"))
    huge[18:26] = (60_000).to_bytes(4, "little") * 2

    result = check(write_files(tmp_path / "set", yolo_files(200) | {"images/0.jpg": bytes(huge)}))

    assert ("image.too-large", "error", "images/0.jpg") in found(result)


def test_sizes_are_those_of_the_upright_picture(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    turned = picture(0, width=40, height=20, exif=exif)

    result = check(write_files(tmp_path / "set", yolo_files(2) | {"images/0.jpg": turned}))

    assert (result.manifest.images[0].width, result.manifest.images[0].height) == (20, 40)
    assert result.manifest.images[0].boxes == ((0, 0.5, 0.5, 0.2, 0.4),)
    assert found(result) == [("image.exif-orientation", "info", "images/0.jpg")]


def test_conversions_and_misleading_names_are_recorded(tmp_path):
    png = picture(0, kind="PNG")
    result = check(write_files(tmp_path / "set", yolo_files(2) | {"images/0.jpg": png}))
    assert found(result) == [("image.extension-mismatch", "warning", "images/0.jpg")]

    gray = encoded(Image.new("L", (8, 8), 100), "JPEG")
    result = check(write_files(tmp_path / "gray", yolo_files(2) | {"images/0.jpg": gray}))
    assert found(result) == [("image.converted", "info", "images/0.jpg")]


def test_identical_content_in_train_and_val_is_leakage(tmp_path):
    def files(twin: bytes) -> dict[str, str | bytes]:
        return {
            "data.yaml": "train: images/train\nval: images/val\nnames: [bird]",
            "images/train/a.jpg": picture(1),
            "labels/train/a.txt": ROW,
            "images/val/b.jpg": twin,
            "labels/val/b.txt": ROW,
        }

    leaking = check(write_files(tmp_path / "leaking", files(picture(1))))
    assert [(f.code, f.file, f.value) for f in leaking.findings] == [
        ("split.leakage", "images/val/b.jpg", "images/train/a.jpg")
    ]
    assert check(write_files(tmp_path / "clean", files(picture(2)))).ok


@pytest.mark.parametrize(("labels", "differs"), [("0 0.4 0.4 0.2 0.2", True), (ROW, False)])
def test_identical_images_in_one_split_with_different_labels_are_named(tmp_path, labels, differs):
    files = yolo_files(3) | {"images/2.jpg": picture(0), "labels/2.txt": labels}
    result = check(write_files(tmp_path / "set", files))

    twins = [(f.code, f.severity, f.file, f.value) for f in result.findings]
    assert twins == [("label.twin-differs", "warning", "images/2.jpg", "images/0.jpg")] * differs
    assert result.ok


def test_a_single_content_cannot_be_trained_and_validated_on(tmp_path):
    twins = yolo_files(2) | {"images/1.jpg": picture(0)}
    result = check(write_files(tmp_path / "set", twins))
    assert found(result) == [("split.too-few-images", "error", "")]


def test_a_set_of_which_every_image_is_skipped_is_refused(tmp_path):
    files = yolo_files(3) | {f"images/{number}.jpg": b"no image" for number in range(3)}
    result = check(write_files(tmp_path / "set", files), ImportRules(max_skipped=1.0))
    assert found(result)[0] == ("split.too-few-images", "error", "")
    assert [severity for _, severity, _ in found(result)[1:]] == ["warning"] * 3
    assert result.manifest is None


def test_an_unsafe_archive_is_a_finding(tmp_path):
    result = check(write_zip(tmp_path / "set.zip", {"../x": b""}))

    assert found(result) == [("archive.path-escape", "error", "../x")]
    assert result.manifest is None


def test_progress_is_reported_by_phase(tmp_path):
    seen = []
    archive = write_zip(tmp_path / "set.zip", yolo_files(3))

    check(archive, progress=lambda *step: seen.append(step))

    assert seen[0] == ("unpacking", 0, 7)
    assert seen[-3:] == [("checking", 1, 3), ("checking", 2, 3), ("checking", 3, 3)]


def test_what_is_no_data_set_is_said_so(tmp_path):
    with pytest.raises(NotFound, match="nowhere"):
        check(tmp_path / "nowhere")
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(InvalidInput, match="neither a folder nor"):
        check(tmp_path / "a.csv")
