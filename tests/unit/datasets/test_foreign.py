"""Data sets in other formats, and folders that are only a part of one."""

import json
from pathlib import Path

import pytest

from perdure.datasets.check import check
from perdure.datasets.findings import Finding
from perdure.datasets.formats.foreign import data_set_around
from tests.builders.datasets import ROW, picture, write_files, write_zip, yolo_files

VOC = (
    '<?xml version="1.0"?>\n<annotation verified="yes">\n<filename>a.jpg</filename></annotation>\n'
)
COCO = {
    "info": {"description": "birds"},
    "images": [{"id": 1, "file_name": "a.jpg"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 1, "name": "bird"}],
}
# As the tools write them: what tells the format lies megabytes apart.
LABELME = {"version": "5.0", "shapes": [], "imageData": "x" * 3_000_000, "imagePath": "a.jpg"}
LARGE_COCO = {"images": [{"file_name": "x" * 3_000_000}], "annotations": [], "categories": []}
PICTURES = {"JPEGImages/a.jpg": picture(1), "JPEGImages/b.jpg": picture(2)}


def findings(path: Path) -> list[Finding]:
    return list(check(path).findings)


@pytest.mark.parametrize(
    ("files", "name", "format_"),
    [
        ({"Annotations/a.xml": VOC}, "Pascal VOC", "pascal-voc"),
        ({"Annotations/a.XML": VOC, "more.xml": "<x/>"}, "Pascal VOC", "pascal-voc"),
        ({"annotations/instances.json": json.dumps(COCO)}, "COCO", "coco"),
        ({"annotations/a.json": json.dumps(LARGE_COCO)}, "COCO", "coco"),
        ({"_annotations.coco.json": json.dumps(COCO, indent=1)}, "COCO", "coco"),
        ({"JPEGImages/a.json": json.dumps(LABELME)}, "LabelMe", "labelme"),
        (
            {"b.csv": "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,1,1,b,0,0,1,1\n"},
            "a CSV table of boxes",
            "csv",
        ),
        ({"b.csv": "filename,region_shape_attributes\n"}, "a CSV table of boxes", "csv"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_other_formats_are_called_by_their_name(tmp_path, files, name, format_, zipped):
    files = PICTURES | files
    path = write_zip(tmp_path / "s.zip", files) if zipped else write_files(tmp_path / "set", files)
    result = check(path)

    assert result.format == format_
    assert [(found.code, found.severity) for found in result.findings] == [
        ("format.unsupported", "error")
    ]
    [found] = result.findings
    assert f"this looks like {name}, with 2 images" in found.problem
    assert "labels/NAME.txt" in found.advice
    assert "class cx cy w h" in found.advice


@pytest.mark.parametrize(
    "files",
    [
        {"a.xml": "<note>annotation</note>"},
        {"a.json": json.dumps({"images": [], "licence": ""})},
        {"a.json": json.dumps({"shapes": 3})},
        {"a.csv": "image,taken\na.jpg,2024\n"},
    ],
)
def test_other_files_are_not_taken_for_labels(tmp_path, files):
    codes = {found.code for found in findings(write_files(tmp_path / "set", PICTURES | files))}
    assert "format.unsupported" not in codes
    assert "files.labels-missing" in codes


def test_left_over_files_beside_yolo_labels_do_not_matter(tmp_path):
    files = yolo_files(2) | {"Annotations/a.xml": VOC, "coco.json": json.dumps(COCO)}
    assert findings(write_files(tmp_path / "set", files)) == []


@pytest.mark.parametrize("inner", ["images", "labels", "images/train"])
def test_a_folder_inside_of_a_data_set_is_known_for_what_it_is(tmp_path, inner):
    files = {"images/train/a.jpg": picture(1), "labels/train/a.txt": ROW}
    whole = write_files(tmp_path / "birds", files)
    [found] = findings(whole / inner)

    assert (found.code, found.severity) == ("files.not-the-top", "error")
    assert found.advice == f"give the folder {whole}"


def test_a_whole_data_set_may_lie_in_a_folder_called_images(tmp_path):
    outer = write_files(tmp_path, {"images/x.jpg": picture(1), "labels/x.txt": ROW})
    assert findings(write_files(outer / "images" / "birds", yolo_files(2))) == []
    assert data_set_around(tmp_path) is None
