"""Boxes of COCO annotations: what they may be written as, and what is no box."""

import json
import math

import pytest

from perdure.datasets.rules import ImportRules
from tests.builders.coco import BIRD, CAT, box, boxes, changed, checked, found, image, labels

CORNERS = [[20, 3, 28, 9], [17, 2, 30, 22], [18, 12, 31, 23], [2, 1, 9, 22]]


def corners(bboxes, **image_fields) -> dict:
    """Images a and b with these boxes in turns."""
    return labels(
        images=[image(1, "a.jpg", **image_fields), image(2, "b.jpg", **image_fields)],
        annotations=[
            box(number, 1 + number % 2, number % 2, bbox) for number, bbox in enumerate(bboxes)
        ],
    )


def test_corners_are_recognised_and_nothing_else_is_said(tmp_path):
    result = checked(tmp_path, corners(CORNERS))
    assert found(result) == [
        (
            "coco.box-format-suspect",
            "error",
            "a.json",
            "/annotations",
            "3 of 4 boxes leave the image",
        ),
    ]
    assert "--box-format xyxy" in result.findings[0].advice


def test_corners_are_read_as_such_when_the_user_says_so(tmp_path):
    result = checked(tmp_path, corners(CORNERS), ImportRules(format="coco", box_format="xyxy"))
    assert found(result) == []
    assert boxes(result)[0][0] == (0, 24 / 32, 6 / 24, 8 / 32, 6 / 24)


def test_no_box_format_is_suspected_when_the_user_has_said_it(tmp_path):
    rules = ImportRules(format="coco", box_format="xywh")
    codes = checked(tmp_path, corners(CORNERS), rules).findings.codes()
    assert "coco.box-format-suspect" not in codes
    assert codes["label.clipped"] + codes["label.out-of-range"] == 3


@pytest.mark.parametrize(
    "bboxes",
    [
        [[1, 1, 30, 22], [2, 2, 29, 21], [1, 2, 30, 20], [0, 0, 32, 24]],  # large, and inside
        [*CORNERS, [20, 12, 10, 10], [21, 13, 9, 9]],  # a size smaller than its corner
        [*CORNERS, [2, 2, 40, 20]],  # leaves the image as corners too
        CORNERS[:2],  # too few
    ],
)
def test_boxes_that_can_be_what_they_should_be_are_not_suspected(tmp_path, bboxes):
    assert "coco.box-format-suspect" not in checked(tmp_path, corners(bboxes)).findings.codes()


def test_shares_of_the_image_are_recognised(tmp_path):
    result = checked(tmp_path, corners([[0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], [0.5, 0.5, 0.5, 0.1]]))
    assert found(result) == [
        (
            "coco.box-format-suspect",
            "error",
            "a.json",
            "/annotations",
            "all numbers of 3 boxes lie between 0 and 1",
        ),
    ]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "Infinity"),
        ("9" * 400, "9" * 119 + "…"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(tmp_path, literal, value):
    text = json.dumps(labels()).replace("8.5", literal)
    assert found(checked(tmp_path, **{"a.json": text})) == [
        ("label.not-finite", "error", "a.json", "/annotations/1/bbox/2", value),
    ]


@pytest.mark.parametrize(
    ("bbox", "code", "way", "value"),
    [
        ([1, 2, 3], "label.field-count", "/bbox", "[1, 2, 3]"),
        ([1, 2, 3, 4, 5], "label.field-count", "/bbox", "[1, 2, 3, 4, 5]"),
        ("1,2,3,4", "label.field-count", "/bbox", '"1,2,3,4"'),
        ({"x": 1}, "label.field-count", "/bbox", "an object of 1 keys"),
        ([1, 2, "3", 4], "label.not-a-number", "/bbox/2", '"3"'),
        ([1, None, 3, 4], "label.not-a-number", "/bbox/1", "null"),
        ([True, 2, 3, 4], "label.not-a-number", "/bbox/0", "true"),
        ([1e308, 2, 1e308, 4], "label.not-finite", "/bbox", "[1e+308, 2.0, 1e+308, 4.0]"),
        (None, "coco.no-boxes", "", "null"),
        ([8, 6, 0, 5], "label.degenerate-box", "", "8 6 8 11"),
        ([8, 6, -4, 5], "label.degenerate-box", "", "8 6 4 11"),
        ([-9, 6, 4, 5], "label.out-of-range", "", "-9 6 -5 11"),
    ],
)
def test_boxes_that_are_none_are_refused_at_their_place(tmp_path, bbox, code, way, value):
    result = checked(tmp_path, changed("annotations", 1, "bbox", bbox))
    assert found(result) == [(code, "error", "a.json", f"/annotations/1{way}", value)]


def test_boxes_without_area_are_left_out_on_request(tmp_path):
    rules = ImportRules(format="coco", drop_degenerate=True)
    value = labels()
    value["annotations"].append(box(3, 2, 0, [8, 6, 0, 5]))
    result = checked(tmp_path, value, rules)
    assert found(result) == [
        ("label.degenerate-box", "info", "a.json", "/annotations/2", "8 6 8 11"),
    ]
    assert boxes(result) == [(BIRD,), (CAT,)]


@pytest.mark.parametrize("bbox", [..., None, []])
def test_polygons_without_a_box_give_the_box_around_them(tmp_path, bbox):
    value = changed("annotations", 0, "bbox", bbox)
    value["annotations"][0]["segmentation"] = [[8, 6, 20, 6, 20, 9], [24, 18, 12, 9, 12, 10]]
    result = checked(tmp_path, value)
    assert found(result) == [
        ("label.polygon-to-box", "info", "a.json", "/annotations/0", "a list of 2 values"),
    ]
    assert boxes(result) == [(BIRD,), (CAT,)]


@pytest.mark.parametrize(
    ("segmentation", "code", "way", "value"),
    [
        ({"counts": [1, 2], "size": [2, 2]}, "coco.no-boxes", "", "segmentation"),
        ([], "coco.no-boxes", "", "null"),
        ([[1, 2, 3, 4]], "label.field-count", "/segmentation/0", "[1, 2, 3, 4]"),
        ([[1, 2, 3, 4, 5, 6, 7]], "label.field-count", "/segmentation/0", "[1, 2, 3, 4, 5, 6, 7]"),
        ([7], "label.field-count", "/segmentation/0", "7"),
        ([[1, 2, 3, "4", 5, 6]], "label.not-a-number", "/segmentation/0/3", '"4"'),
        ([[1, 2, 3, math.nan, 5, 6]], "label.not-finite", "/segmentation/0/3", "NaN"),
    ],
)
def test_masks_and_broken_polygons_without_a_box_are_refused(
    tmp_path, segmentation, code, way, value
):
    annotation = {"id": 1, "image_id": 1, "category_id": 0, "segmentation": segmentation}
    result = checked(tmp_path, changed("annotations", 0, annotation))
    assert found(result) == [(code, "error", "a.json", f"/annotations/0{way}", value)]
