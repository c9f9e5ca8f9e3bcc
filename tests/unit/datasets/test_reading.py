"""In which format labels are, and folders that are only a part of a data set."""

import json
from pathlib import Path

import pytest

from perdure.datasets.check import check
from perdure.datasets.findings import Finding
from perdure.datasets.formats.yolo_inner_folder import data_set_around
from perdure.datasets.signatures import format_of
from tests.builders.datasets import ROW, picture, write_files, yolo_files

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
LABEL_STUDIO = [{"data": {"image": "/a.jpg"}, "annotations": [{"result": [{"original_width": 1}]}]}]
IN_IMAGES = {"images/a.jpg": picture(1), "images/b.jpg": picture(2)}
PICTURES = {"JPEGImages/a.jpg": picture(1), "JPEGImages/b.jpg": picture(2)}


def findings(path: Path) -> list[Finding]:
    return list(check(path).findings)


@pytest.mark.parametrize(
    ("name", "content", "format_"),
    [
        ("a.xml", VOC, "voc"),
        ("a.XML", VOC, "voc"),
        ("a.xml", "<annotations><version>1.1</version></annotations>", "cvat"),
        ("instances.json", json.dumps(COCO), "coco"),
        ("a.json", json.dumps(LARGE_COCO), "coco"),
        ("_annotations.coco.json", json.dumps(COCO, indent=1), "coco"),
        ("a.json", json.dumps(LABELME), "labelme"),
        ("export.json", json.dumps(LABEL_STUDIO), "label-studio"),
        ("b.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,1,1,b,0,0,1,1\n", "csv"),
        ("b.csv", "filename,region_shape_attributes\n", "csv"),
        ("a.xml", "<note>annotation</note>", None),
        ("a.json", json.dumps({"images": [], "licence": ""}), None),
        ("a.json", json.dumps({"shapes": 3}), None),
        ("a.csv", "image,taken\na.jpg,2024\n", None),
    ],
)
def test_a_label_file_is_recognised_by_its_content(tmp_path, name, content, format_):
    assert format_of(write_files(tmp_path, {name: content}) / name) == format_


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("name", "content", "format_"),
    [
        ("a.xml", VOC, "voc"),
        ("a.json", json.dumps(COCO), "coco"),
        ("a.json", json.dumps(LABELME), "labelme"),
        ("a.json", json.dumps(LABEL_STUDIO), "label-studio"),
        ("b.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,1,1,b,0,0,1,1\n", "csv"),
    ],
)
def test_a_label_file_is_recognised_in_any_encoding(tmp_path, name, content, format_, encoding):
    data = content.encode(encoding)
    assert format_of(write_files(tmp_path, {name: data}) / name) == format_


def test_labels_in_two_formats_are_refused_until_one_is_chosen(tmp_path):
    files = PICTURES | {"a.xml": VOC, "b.json": json.dumps(COCO)}
    [found] = findings(write_files(tmp_path / "set", files))

    assert (found.code, found.severity) == ("format.ambiguous", "error")
    assert "a.xml (voc)" in found.value
    assert "b.json (coco)" in found.value
    assert "--format" in found.advice


@pytest.mark.parametrize("name", ["export.json", "sub/a.xml", "boxes.csv"])
@pytest.mark.parametrize("content", [b"", b"\xff\x00\x80", b"[[[[", b"<a/>", b"a,b\n1,2\n"])
def test_files_in_no_known_format_are_named(tmp_path, name, content):
    [found] = findings(write_files(tmp_path / "set", IN_IMAGES | {name: content}))
    assert (found.code, found.severity, found.file) == ("format.unknown", "error", name)

    config = {"data.yaml": "train: images\nnames: [bird]\n"}  # then it is YOLO, without labels
    yolo = findings(write_files(tmp_path / "set", config))
    assert [found.code for found in yolo] == ["files.labels-missing"]


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
