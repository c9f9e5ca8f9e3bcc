"""LabelMe's JSON files, as it and its kin write them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.datasets.annotation import Annotations, Corners
from perdure.datasets.check import check
from perdure.datasets.findings import Finding, Findings
from perdure.datasets.formats.labelme import read_labelme
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import read_tree
from tests.builders.datasets import picture, write_files

RECTANGLE = {"label": "cat", "points": [[1, 2], [11, 12.5]], "shape_type": "rectangle"}


def labels(*shapes: Any, **others: Any) -> str:
    """A file of LabelMe for the image a.jpg of 32 x 24."""
    known = {
        "version": "5.5.0",
        "flags": {},
        "shapes": list(shapes),
        "imagePath": "a.jpg",
        "imageData": None,
        "imageHeight": 24,
        "imageWidth": 32,
    }
    return json.dumps(known | others)


def shape(kind: str | None, *points: Any, label: Any = "cat") -> dict[str, Any]:
    return {"label": label, "points": list(points), "shape_type": kind, "group_id": None}


@pytest.fixture
def read(tmp_path):
    def read(files: dict[str, str | bytes]) -> tuple[Annotations, list[Finding]]:
        return read_folder(write_files(tmp_path / "set", {"a.jpg": b""} | files))

    return read


def read_folder(folder: Path) -> tuple[Annotations, list[Finding]]:
    findings = Findings()
    annotations = read_labelme(read_tree(folder, findings), ImportRules(), findings)
    return annotations, list(findings)


def test_half_a_surrogate_pair_is_no_class_and_can_be_written(tmp_path):
    files = {f"{name}.jpg": picture(number) for number, name in enumerate("ab")}
    result = check(
        write_files(
            tmp_path / "set",
            files | {"a.json": labels(shape("rectangle", [1, 2], [9, 9], label="\ud800"))},
        )
    )
    assert [found.code for found in result.findings if found.severity == "error"] == [
        "classes.names"
    ]
    json.loads("".join(result.json_text()).encode())


def corners(annotations: Annotations) -> list[tuple[float, float, float, float]]:
    return [box[1:5] for image in annotations.images for box in image.pixels.corners]


def brief(findings: list[Finding]) -> list[tuple[str, str, str, str | None, str]]:
    return [(f.code, str(f.severity), f.file, f.pointer, f.value) for f in findings]


def test_a_file_is_read(read):
    other = shape("rectangle", [0, 0], [3, 4], label="dog ")
    annotations, findings = read({"a.json": labels(RECTANGLE, other)})

    assert (annotations.format, annotations.classes) == ("labelme", ("cat", "dog"))
    [image] = annotations.images
    assert (image.path, image.pixels.file, image.pixels.size) == ("a.jpg", "a.json", (32, 24))
    assert image.pixels.corners == (
        Corners(0, 1, 2, 11, 12.5, pointer="/shapes/0"),
        Corners(1, 0, 0, 3, 4, pointer="/shapes/1"),
    )
    assert findings == []


def test_a_folder_is_recognised_and_checked(tmp_path):
    embedded = "x" * 3_000_000  # what tells the format lies at both ends of it
    files = {
        "train/a.jpg": picture(1),
        "train/a.json": labels(shape("rectangle", [16, 12], [8, 6]), imageData=embedded),
        "val/b.jpg": picture(2),
        "val/b.json": labels(imagePath="b.jpg"),
    }
    result = check(write_files(tmp_path / "set", files))

    assert (result.format, result.boxes, result.background) == ("labelme", 1, 1)
    assert result.manifest.images[0].boxes == ((0, 0.375, 0.375, 0.25, 0.25),)
    assert [image.split for image in result.manifest.images] == ["train", "val"]
    assert list(result.findings) == []


@pytest.mark.parametrize(
    ("first", "second"), [([1, 2], [11, 12]), ([11, 12], [1, 2]), ([1, 12], [11, 2])]
)
def test_a_rectangle_may_be_drawn_from_any_corner(read, first, second):
    annotations, findings = read({"a.json": labels(shape("rectangle", first, second))})
    assert corners(annotations) == [(1, 2, 11, 12)]
    assert findings == []


def test_a_rectangle_may_have_four_corners(read):
    four = shape("rectangle", [1, 2], [11, 2], [11, 12], [1, 12])
    annotations, findings = read({"a.json": labels(four)})
    assert corners(annotations) == [(1, 2, 11, 12)]
    assert findings == []


@pytest.mark.parametrize(
    ("drawn", "box", "code", "severity"),
    [
        (shape("polygon", [5, 1], [9, 7], [2, 4]), (2, 1, 9, 7), "label.polygon-to-box", "info"),
        (shape(None, [5, 1], [9, 7], [2, 4]), (2, 1, 9, 7), "label.polygon-to-box", "info"),
        # a radius of 5: 3, 4, 5
        (shape("circle", [10, 12], [13, 16]), (5, 7, 15, 17), "label.polygon-to-box", "info"),
        # the last pixel of a mask belongs to it
        (shape("mask", [2, 3], [9, 8]), (2, 3, 10, 9), "label.polygon-to-box", "info"),
        (
            shape("rotation", [5, 0], [9, 4], [6, 7], [2, 3]),
            (2, 0, 9, 7),
            "label.rotated",
            "warning",
        ),
    ],
)
def test_other_shapes_become_the_box_around_them(read, drawn, box, code, severity):
    annotations, findings = read({"a.json": labels(drawn)})
    assert corners(annotations) == [box]
    kind = drawn["shape_type"] or "polygon"
    assert brief(findings) == [(code, severity, "a.json", "/shapes/0", kind)]


@pytest.mark.parametrize("kind", ["line", "linestrip", "point", "points"])
def test_lines_and_points_are_left_out_with_a_warning(read, kind):
    line = shape(kind, [1, 2], [3, 4], label="wire")
    annotations, findings = read({"a.json": labels(line, RECTANGLE)})

    assert corners(annotations) == [(1, 2, 11, 12.5)]
    assert annotations.classes == ("cat",)
    assert brief(findings) == [
        ("label.not-a-box", "warning", "a.json", "/shapes/0/shape_type", kind)
    ]


@pytest.mark.parametrize(
    ("bad", "code", "pointer", "value"),
    [
        (7, "json.invalid", "/shapes/0", "7"),
        (shape("cuboid", [1, 2], [3, 4]), "label.not-a-box", "/shapes/0/shape_type", "cuboid"),
        (shape("rectangle", [1, 2]), "label.field-count", "/shapes/0/points", "1 points"),
        (
            shape("rectangle", [1, 2], [3, 4], [5, 6]),
            "label.field-count",
            "/shapes/0/points",
            "3 points",
        ),
        (shape("polygon", [1, 2], [3, 4]), "label.field-count", "/shapes/0/points", "2 points"),
        (shape("circle", [1, 2]), "label.field-count", "/shapes/0/points", "1 points"),
        (shape("rectangle"), "label.field-count", "/shapes/0/points", "0 points"),
        (
            shape("rectangle", [1, 2], [3, "4"]),
            "label.not-a-number",
            "/shapes/0/points/1/1",
            '"4"',
        ),
        (
            shape("rectangle", [1, True], [3, 4]),
            "label.not-a-number",
            "/shapes/0/points/0/1",
            "true",
        ),
        (
            shape("rectangle", [1, math.nan], [3, 4]),
            "label.not-finite",
            "/shapes/0/points/0/1",
            "NaN",
        ),
        (
            shape("rectangle", [1, 2], [-math.inf, 4]),
            "label.not-finite",
            "/shapes/0/points/1/0",
            "-Infinity",
        ),
        (
            shape("circle", [1e308, 0], [-1e308, 0]),
            "label.not-finite",
            "/shapes/0/points",
            "[[1e+308, 0.0], [-1e+308, 0.0]]",
        ),
        (shape("rectangle", [1, 2, 3], [3, 4]), "json.invalid", "/shapes/0/points/0", "[1, 2, 3]"),
        (
            {"label": "cat", "shape_type": "rectangle", "points": {}},
            "json.invalid",
            "/shapes/0/points",
            "an object of 0 keys",
        ),
        (shape("rectangle", [1, 2], [3, 4], label=3), "json.invalid", "/shapes/0/label", "3"),
        (shape("rectangle", [1, 2], [3, 4], label=" "), "classes.names", "/shapes/0/label", ""),
    ],
)
def test_a_bad_shape_is_named_and_hides_no_other(read, bad, code, pointer, value):
    annotations, findings = read({"a.json": labels(bad, RECTANGLE)})
    assert corners(annotations) == [(1, 2, 11, 12.5)]
    assert brief(findings) == [(code, "error", "a.json", pointer, value)]


def test_all_that_is_wrong_with_a_file_is_said(read):
    bad = {"label": None, "points": [[math.nan, "x"], 7], "shape_type": "polygon"}
    _, findings = read({"a.json": labels(bad, imagePath="c.jpg", imageWidth="32", imageHeight=-24)})
    assert sorted(brief(findings)) == [
        ("files.missing-image", "error", "a.json", "/imagePath", "c.jpg"),
        ("json.invalid", "error", "a.json", "/imageHeight", "-24"),
        ("json.invalid", "error", "a.json", "/imageWidth", "32"),
        ("json.invalid", "error", "a.json", "/shapes/0/label", "null"),
        ("json.invalid", "error", "a.json", "/shapes/0/points/1", "7"),
        ("label.not-a-number", "error", "a.json", "/shapes/0/points/0/1", '"x"'),
        ("label.not-finite", "error", "a.json", "/shapes/0/points/0/0", "NaN"),
    ]


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [(32, 24, (32, 24)), (32.0, 24, (32, 24)), (None, None, None), (32, None, None)],
)
def test_a_size_that_is_not_claimed_is_the_images_own(read, width, height, size):
    annotations, findings = read(
        {"a.json": labels(RECTANGLE, imageWidth=width, imageHeight=height)}
    )
    assert annotations.images[0].pixels.size == size
    assert findings == []


@pytest.mark.parametrize("name", ["..\\images\\x.jpg", "../images/x.jpg", "x.jpg", "images\\x.jpg"])
def test_images_may_lie_in_a_folder_beside_that_of_the_labels(read, name):
    """Row 31 of the cases."""
    annotations, findings = read(
        {
            "images/x.jpg": b"",
            "labels/x.json": labels(RECTANGLE, imagePath=name),
            "a.json": labels(),
        }
    )
    assert [(image.path, len(image.pixels.corners)) for image in annotations.images] == [
        ("a.jpg", 0),
        ("images/x.jpg", 1),
    ]
    assert findings == []


@pytest.mark.parametrize("name", ["..\\..\\a.jpg", "../../a.jpg", "/a.jpg", "C:\\a.jpg"])
def test_a_path_that_leaves_the_data_set_is_refused(read, name):
    """Row 31 of the cases."""
    _, findings = read({"labels/a.json": labels(RECTANGLE, imagePath=name), "labels/a.jpg": b""})
    assert ("files.path-escape", "error", "labels/a.json", "/imagePath", name) in brief(findings)


@pytest.mark.parametrize("name", [None, 3, "", ["a.jpg"]])
def test_a_file_without_a_path_to_its_image_is_an_error(read, name):
    _, findings = read({"a.json": labels(RECTANGLE, imagePath=name)})
    assert [(f.code, f.pointer) for f in findings] == [("json.invalid", "/imagePath")]


@pytest.mark.parametrize("text", ['{"shapes": [', "", "[" * 100_000, b"\xff\xfe\0", b"{\0}"])
def test_a_file_that_cannot_be_read_is_the_only_finding(read, text):
    _, findings = read({"a.json": text, "b.jpg": b"", "b.json": labels(imagePath="b.jpg")})
    assert [(f.severity, f.file) for f in findings if f.severity == "error"] == [
        ("error", "a.json")
    ]
    assert "files.background" not in [f.code for f in findings]


def test_shapes_must_be_a_list(read):
    _, findings = read({"a.json": json.dumps({"imagePath": "a.jpg", "shapes": "none"})})
    assert brief(findings) == [("json.invalid", "error", "a.json", "/shapes", "none")]


def test_two_files_for_one_image_are_an_error(read):
    _, findings = read({"a.json": labels(RECTANGLE), "b.json": labels(RECTANGLE)})
    assert brief(findings) == [("files.stem-collision", "error", "b.json", None, "a.jpg")]


def test_json_of_other_tools_is_left_out_with_a_warning(read):
    coco = {"images": [], "annotations": [], "categories": []}
    annotations, findings = read(
        {
            "a.json": labels(RECTANGLE),
            "coco.json": json.dumps(coco),
            "list.json": "[1]",
            "tool.json": '{"version": 2}',
        }
    )
    assert corners(annotations) == [(1, 2, 11, 12.5)]
    assert brief(findings) == [
        ("files.not-labels", "warning", "coco.json", None, "coco"),
        ("files.not-labels", "warning", "list.json", None, ""),
        ("files.not-labels", "warning", "tool.json", None, ""),
    ]


@pytest.mark.parametrize("files", [{}, {"tool.json": '{"version": 2}'}])
def test_no_file_of_labelme_is_an_error(read, files):
    _, findings = read(files)
    [found] = [f for f in findings if f.severity == "error"]
    assert (found.code, found.file) == ("label.none", next(iter(files), ""))


def test_images_without_a_file_are_background(read):
    _, findings = read({"a.json": labels(RECTANGLE), "b.jpg": b""})
    assert brief(findings) == [("files.background", "warning", "b.jpg", None, "1 of 2 images")]
    _, findings = read({"a.json": labels(RECTANGLE), "b.jpg": b"", "c.jpg": b""})
    assert brief(findings) == [("files.labels-missing", "error", "b.jpg", None, "2 of 3 images")]


def assert_only_findings(folder: Path, data: bytes) -> None:
    annotations, findings = read_folder(write_files(folder, {"a.jpg": b"", "a.json": data}))
    errors = [found for found in findings if found.severity == "error"]
    for image in annotations.images:
        assert image.path == "a.jpg"
        for box in image.pixels.corners if image.pixels else ():
            assert 0 <= box.class_index < len(annotations.classes)
            assert all(map(math.isfinite, box[1:5]))
    assert errors or corners(annotations)


ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
KEYS = ["shapes", "imagePath", "imageWidth", "imageHeight"]


@ANY_FOLDER
@given(st.binary(max_size=300))
@example(b"\xff\xfe")
@example(b"{}")
@example(b'{"shapes":[{"points":[[1e400,1]]}],"imagePath":"\\ud800"}')
def test_arbitrary_bytes_give_only_findings(tmp_path, data):
    assert_only_findings(tmp_path / "set", data)


@ANY_FOLDER
@given(st.data())
def test_mutated_bytes_give_only_findings(tmp_path, data):
    text = bytearray(labels(RECTANGLE, shape("polygon", [1, 2], [3, 4], [5, 1])).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=3))
    assert_only_findings(tmp_path / "set", bytes(text))


@ANY_FOLDER
@given(st.data())
def test_arbitrary_values_anywhere_give_only_findings(tmp_path, data):
    value = json.loads(labels(RECTANGLE, shape("circle", [1, 2], [3, 4])))
    for part, keys in (
        (value, KEYS),
        (value["shapes"][0], ["label", "points", "shape_type"]),
        (value["shapes"][1], ["label", "points", "shape_type"]),
        (value["shapes"][1]["points"], [0, 1]),
    ):
        for key in data.draw(st.sets(st.sampled_from(keys), max_size=1)):
            part[key] = data.draw(ANY_JSON)
    assert_only_findings(tmp_path / "set", json.dumps(value).encode())
