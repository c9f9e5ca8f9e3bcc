"""Groups of images and exact boxes that label files name, as an export writes them."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.datasets.check import check_folder
from tests.builders.coco import CAT, box, boxes, changed, checked, found, image, labels
from tests.builders.datasets import write_files, yolo_files


def yolo_checked(folder, groups, **more):
    files = yolo_files() | {"data.yaml": "names: [bird]\nperdure_groups: groups.json\n"} | more
    if groups is not None:
        files["groups.json"] = groups if isinstance(groups, str) else json.dumps(groups)
    return check_folder(write_files(folder, files))


def test_yolo_images_have_the_groups_of_the_file_that_data_yaml_names(tmp_path):
    result = yolo_checked(tmp_path, {"images/1.jpg": "a b", "images/2.jpg": "a b"})
    assert found(result) == []
    assert [image.group for image in result.manifest.images] == ["", "a b", "a b", ""]


@pytest.mark.parametrize(
    ("groups", "finding"),
    [
        (None, ("yaml.path", "error", "data.yaml", None, "groups.json")),
        ("[]", ("json.invalid", "error", "groups.json", "", "[]")),
        ("{", ("json.invalid", "error", "groups.json", None, "")),
        ('{"images/1.jpg": 3}', ("json.invalid", "error", "groups.json", "/images~11.jpg", "3")),
        (
            '{"images/1.jpg": "\\ud800"}',
            ("json.invalid", "error", "groups.json", "/images~11.jpg", "\\ud800"),
        ),
        (
            {"images/9.jpg": "a"},
            ("files.missing-image", "warning", "groups.json", "/images~19.jpg", "images/9.jpg"),
        ),
        (
            {"images/1.jpg": "a" * 4097},
            ("json.invalid", "error", "groups.json", "/images~11.jpg", "a" * 119 + "…"),
        ),
    ],
)
def test_what_is_wrong_with_a_file_of_groups_is_said(tmp_path, groups, finding):
    assert found(yolo_checked(tmp_path, groups)) == [finding]


@pytest.mark.parametrize(
    ("written", "value"),
    [("[a.json]", ""), ("../groups.json", "../groups.json"), ("images", "images")],
)
def test_data_yaml_must_name_a_file_of_groups_in_the_data_set(tmp_path, written, value):
    config = f"names: [bird]\nperdure_groups: {written}\n"
    result = yolo_checked(tmp_path, {}, **{"data.yaml": config})
    assert found(result) == [("yaml.path", "error", "data.yaml", None, value)]
    assert [finding.line for finding in result.findings] == [2]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30) | st.dictionaries(st.just("images/1.jpg"), st.text(max_size=3)))
def test_any_file_of_groups_gives_findings_or_groups(tmp_path, groups):
    result = yolo_checked(tmp_path, groups)
    assert result.errors or result.manifest.version


def test_images_in_coco_files_name_their_groups(tmp_path):
    result = checked(tmp_path, changed("images", 1, "perdure_group", "site 1"))
    assert found(result) == []
    assert [image.group for image in result.manifest.images] == ["", "site 1"]


@pytest.mark.parametrize(("group", "said"), [(7, "7"), (None, "null"), ("\ud800", "\\ud800")])
def test_a_group_that_is_no_text_is_refused(tmp_path, group, said):
    place = "/images/1/perdure_group"
    assert found(checked(tmp_path, changed("images", 1, "perdure_group", group))) == [
        ("json.invalid", "error", "a.json", place, said)
    ]


def test_an_image_cannot_be_in_two_groups(tmp_path):
    images = [image(1, "a.jpg", perdure_group="x"), image(2, "b.jpg")]
    value = labels(images=[*images, image(1, "a.jpg", perdure_group="y")])
    errors = [finding for finding in found(checked(tmp_path, value)) if finding[1] == "error"]
    assert errors == [("json.invalid", "error", "a.json", "/images/2/perdure_group", "y")]


# Of the pixels that these make, the width does not come back: right - left is one unit less.
EXACT = (0.45000000000000007, 0.5, 0.3, 0.25)
BBOX = [(EXACT[0] - 0.15) * 32, (0.5 - 0.125) * 24, 0.3 * 32, 0.25 * 24]


@pytest.mark.parametrize(
    ("bbox", "shares", "taken"),
    [
        (BBOX, list(EXACT), True),
        ([BBOX[0] + 0.5, *BBOX[1:]], list(EXACT), False),  # moved since
        (BBOX, [*EXACT[:3]], False),
        (BBOX, [*EXACT[:3], "0.25"], False),
        (BBOX, [float("nan")] * 4, False),
        (BBOX, None, False),
    ],
)
def test_the_shares_that_a_bbox_was_made_of_count_while_it_is_as_it_was(
    tmp_path, bbox, shares, taken
):
    value = labels(annotations=[box(1, 1, 0, bbox, perdure_box=shares), box(2, 2, 1, [0, 0, 8, 8])])
    result = checked(tmp_path, value)
    (only,) = result.manifest.images[0].boxes
    assert (only == (0, *EXACT)) is taken
    assert only[1:] == pytest.approx((EXACT[0] + (bbox[0] - BBOX[0]) / 32, *EXACT[1:]), abs=1e-12)


def test_shares_of_another_size_than_the_files_do_not_count(tmp_path):
    value = labels()
    value["annotations"][1]["perdure_box"] = [0.5, 0.5, 0.5, 0.5]
    assert boxes(checked(tmp_path, value))[1] == (CAT,)
