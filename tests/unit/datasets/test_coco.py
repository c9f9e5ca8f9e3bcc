"""COCO files as they are met in the wild: what is read, what is fixed, and what is refused."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.datasets.check import check_folder
from perdure.datasets.findings import Findings
from perdure.datasets.formats import coco
from perdure.datasets.formats.coco import read_coco
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree, read_tree
from tests.builders.coco import BIRD, CAT, COCO, box, boxes, changed, checked, found, image, labels
from tests.builders.datasets import picture, write_files


def test_a_clean_file_is_read_without_a_word(tmp_path):
    result = checked(tmp_path)
    assert found(result) == []
    assert (result.format, result.classes) == ("coco", ("bird", "cat"))
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_the_order_of_lists_does_not_change_the_version(tmp_path):
    value = labels()
    version = checked(tmp_path / "a", value).manifest.version
    turned = {key: entries[::-1] for key, entries in value.items()}
    assert checked(tmp_path / "b", turned).manifest.version == version


@pytest.mark.parametrize("other", ["1", 1.0, " 1 ", "1.0"])
def test_ids_of_two_types_are_one_id(tmp_path, other):
    result = checked(tmp_path, changed("images", 0, "id", other))
    assert found(result) == [
        ("coco.id-type", "info", "a.json", "/images/0/id", json.dumps(other)),
    ]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_ids_of_two_types_are_one_id_in_annotations_and_categories_too(tmp_path):
    value = labels()
    value["annotations"][1] |= {"image_id": "2", "category_id": "1"}
    result = checked(tmp_path, value)
    assert found(result) == [
        ("coco.id-type", "info", "a.json", "/annotations/1/image_id", '"2"'),
        ("coco.id-type", "info", "a.json", "/annotations/1/category_id", '"1"'),
    ]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_ids_that_are_text_throughout_are_taken(tmp_path):
    value = labels(
        images=[image("x-a", "a.jpg"), image("x-b", "b.jpg")],
        annotations=[box("p", "x-a", "bird", [8, 6, 16, 12]), box("q", "x-b", "cat", [0, 0, 8, 8])],
        categories=[{"id": "bird", "name": "bird"}, {"id": "cat", "name": "cat"}],
    )
    result = checked(tmp_path, value)
    assert found(result) == [
        ("classes.remapped", "info", "a.json", "/categories", "bird:0, cat:1"),
    ]
    assert boxes(result)[0] == (BIRD,)


def test_ids_that_are_one_as_numbers_are_refused(tmp_path):
    value = labels(images=[image(7, "a.jpg"), image("007", "b.jpg")])
    value["annotations"] = [box(1, 7, 0, [8, 6, 16, 12]), box(2, 7, 1, [0, 0, 8, 24])]
    assert found(checked(tmp_path, value)) == [
        ("coco.id-type", "error", "a.json", "/images/1/id", '"007"'),
        ("coco.id-type", "info", "a.json", "/images/1/id", '"007"'),
    ]


def test_annotations_with_one_id_are_all_kept(tmp_path):
    value = labels()
    value["annotations"].append(box(1, 2, 0, [8, 6, 16, 12]))
    result = checked(tmp_path, value)
    assert found(result) == [
        ("coco.annotation-id-duplicate", "info", "a.json", "/annotations/2/id", "1"),
    ]
    assert boxes(result) == [(BIRD,), (BIRD, CAT)]


def test_images_of_two_names_with_one_id_are_refused(tmp_path):
    assert found(checked(tmp_path, changed("images", 1, "id", 1)))[:1] == [
        ("coco.image-id-duplicate", "error", "a.json", "/images/1/id", "1"),
    ]


def test_boxes_of_an_image_that_is_not_known_for_sure_are_not_looked_at(tmp_path):
    value = labels(images=[image(1, "a.jpg"), image(1, "b.jpg")])
    value["annotations"] = [box(1, 1, 0, [900, 6, 16, 12]), box(2, 1, 1, [0, 0, 8, 24])]
    assert found(checked(tmp_path, value)) == [
        ("coco.image-id-duplicate", "error", "a.json", "/images/1/id", "1"),
    ]


def test_an_image_listed_twice_alike_is_read_once(tmp_path):
    value = labels(images=[*labels()["images"], image(1, "a.jpg")])
    result = checked(tmp_path, value)
    assert found(result) == [("coco.image-id-duplicate", "info", "a.json", "/images/2/id", "1")]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_an_image_with_two_ids_has_the_boxes_of_both(tmp_path):
    value = labels(images=[*labels()["images"], image(3, "a.jpg")])
    value["annotations"].append(box(3, 3, 1, [0, 0, 8.5, 24]))
    result = checked(tmp_path, value)
    assert found(result) == [
        ("coco.image-listed-twice", "warning", "a.json", "/images/2/id", "a.jpg: 1, 3"),
    ]
    assert boxes(result) == [(BIRD, CAT), (CAT,)]


def test_an_image_with_two_sizes_is_refused(tmp_path):
    value = labels(images=[*labels()["images"], image(3, "a.jpg", width=31)])
    assert ("label.size-mismatch", "error", "a.json", "/images/2", "31 x 24") in found(
        checked(tmp_path, value)
    )


@pytest.mark.parametrize(
    ("way", "value", "code", "said"),
    [
        ("category_id", 7, "coco.category-unknown", "7"),
        ("category_id", "dog", "coco.category-unknown", '"dog"'),
        ("category_id", None, "coco.id-invalid", "null"),
        ("category_id", True, "coco.id-invalid", "true"),
        ("category_id", 1.5, "coco.id-invalid", "1.5"),
        ("category_id", ..., "coco.id-invalid", "null"),
        ("image_id", 7, "coco.image-unknown", "7"),
        ("image_id", [1], "coco.id-invalid", "[1]"),
        ("image_id", "", "coco.id-invalid", '""'),
        ("iscrowd", 2, "json.invalid", "2"),
    ],
)
def test_annotations_that_name_nothing_are_refused(tmp_path, way, value, code, said):
    result = checked(tmp_path, changed("annotations", 1, way, value))
    errors = [finding for finding in found(result) if finding[1] == "error"]
    assert errors == [(code, "error", "a.json", f"/annotations/1/{way}", said)]


@pytest.mark.parametrize(
    ("annotations", "what"),
    [
        ([{"id": 1, "image_id": 1, "caption": "a bird"}], "captions"),
        ([{"id": 1, "image_id": 1, "segments_info": [{"bbox": [1, 2, 3, 4]}]}], "panoptic"),
        ([{"id": 1, "image_id": 1, "category_id": 0, "bbox": []}], "none of these"),
        ([{"id": 1, "image_id": 1, "category_id": 0, "segmentation": {}}], "none of these"),
    ],
)
def test_files_that_are_not_for_detection_are_refused(tmp_path, annotations, what):
    result = checked(tmp_path, labels(annotations=annotations))
    assert found(result)[:1] == [
        ("coco.no-boxes", "error", "a.json", "/annotations", "1 annotations")
    ]
    assert what in result.findings[0].rule


CAPTIONS = [{"id": 1, "image_id": 1, "caption": "a bird"}]
SEGMENTS = [{"image_id": 1, "file_name": "a.png", "segments_info": [{"category_id": 1}]}]
POINTS = [box(9, 1, 0, [8, 6, 16, 12], keypoints=[9, 7, 2], num_keypoints=1)]


def without(key, **changes):
    value = labels(**changes)
    del value[key]
    return value


@pytest.mark.parametrize(
    ("name", "other", "content"),
    [
        ("captions_val2017.json", without("categories", annotations=CAPTIONS), "captions"),
        ("captions.json", labels(annotations=CAPTIONS), "captions"),
        ("panoptic_train2017.json", labels(annotations=SEGMENTS), "panoptic segments"),
        ("person_keypoints_train2017.json", labels(annotations=POINTS), "keypoints"),
        ("image_info_unlabeled2017.json", without("annotations"), "no annotations"),
        ("vqa.json", without("categories", annotations=[{"answers": ["no"]}]), "no boxes"),
    ],
)
def test_files_for_other_tasks_beside_one_for_detection_are_left_out(
    tmp_path, name, other, content
):
    files = {name: json.dumps(other), "instances_all.json": json.dumps(labels())}
    result = checked(tmp_path, **files)
    assert found(result) == [("files.not-labels", "warning", name, None, content)]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_all_of_cocos_annotations_can_lie_in_one_folder(tmp_path):
    one, other = labels(), labels()
    one["images"], one["annotations"] = one["images"][:1], one["annotations"][:1]
    other["images"], other["annotations"] = other["images"][1:], other["annotations"][1:]
    files = {
        "captions_train2017.json": without("categories", annotations=CAPTIONS),
        "captions_val2017.json": without("categories", annotations=CAPTIONS),
        "instances_train2017.json": one,
        "instances_val2017.json": other,
        "person_keypoints_train2017.json": one | {"annotations": POINTS},
        "person_keypoints_val2017.json": other | {"annotations": [POINTS[0] | {"image_id": 2}]},
    }
    result = checked(tmp_path, **{name: json.dumps(value) for name, value in files.items()})
    assert [finding[:3] for finding in found(result)] == [
        ("files.not-labels", "warning", name) for name in files if "instances" not in name
    ]
    assert [image.split for image in result.manifest.images] == ["train", "val"]


def test_keypoints_have_boxes_too_of_images_that_no_other_file_has(tmp_path):
    files = {
        "captions.json": json.dumps(without("categories", annotations=CAPTIONS)),
        "keypoints_train.json": json.dumps(
            labels(annotations=[*POINTS, labels()["annotations"][1]])
        ),
    }
    result = checked(tmp_path, **files)
    assert found(result) == [("files.not-labels", "warning", "captions.json", None, "captions")]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_keypoints_of_other_images_are_read_beside_boxes(tmp_path):
    one, other = labels(), labels()
    one["images"], one["annotations"] = one["images"][:1], one["annotations"][:1]
    other["images"], other["annotations"] = other["images"][1:], [POINTS[0] | {"image_id": 2}]
    files = {"boxes_train.json": json.dumps(one), "points_val.json": json.dumps(other)}
    result = checked(tmp_path, **files)
    assert [finding[:2] for finding in found(result)] == [("classes.unused", "warning")]
    assert boxes(result) == [(BIRD,), (BIRD,)]


def test_a_file_for_detection_that_cannot_be_read_is_not_replaced_by_another(tmp_path):
    files = {
        "captions.json": json.dumps(without("categories", annotations=CAPTIONS)),
        "instances.json": json.dumps(labels())[:-1],
    }
    assert [finding[:3] for finding in found(checked(tmp_path, **files))] == [
        ("json.invalid", "error", "instances.json"),
        ("files.not-labels", "warning", "captions.json"),
    ]


@pytest.mark.parametrize("annotations", [[{"category_id": 0, "image_id": 1}], {}, None])
def test_a_file_that_lost_its_boxes_is_refused_beside_others_too(tmp_path, annotations):
    files = {
        "instances_train.json": labels(),
        "instances_val.json": labels(annotations=annotations),
    }
    result = checked(tmp_path, **{name: json.dumps(value) for name, value in files.items()})
    assert ("coco.no-boxes", "error", "instances_val.json") in {
        finding[:3] for finding in found(result)
    }


def test_a_split_without_its_annotations_is_refused_beside_others_too(tmp_path):
    files = {"instances_train.json": labels(), "instances_val.json": without("annotations")}
    result = checked(tmp_path, **{name: json.dumps(value) for name, value in files.items()})
    assert ("coco.no-boxes", "error", "instances_val.json") in {
        finding[:3] for finding in found(result)
    }


def test_a_file_without_annotations_is_refused(tmp_path):
    assert found(checked(tmp_path, changed("annotations", ...)))[:1] == [
        ("coco.no-boxes", "error", "a.json", "/annotations", "0 annotations")
    ]


@pytest.mark.parametrize("crowd", [1, True, "1", 1.0])
def test_crowds_are_left_out_and_counted(tmp_path, crowd):
    value = labels()
    value["annotations"].append(box(3, 1, 0, [0, 0, 3, 3], iscrowd=crowd))
    value["annotations"][0]["iscrowd"] = 0
    result = checked(tmp_path, value)
    assert found(result) == [
        ("coco.crowd", "info", "a.json", "/annotations/2/iscrowd", "1 annotations"),
    ]
    assert boxes(result) == [(BIRD,), (CAT,)]


@pytest.mark.parametrize(
    ("ids", "mapping"),
    [
        ((1, 2), "1-2:0-1"),
        ((3, 90), "3:0, 90:1"),
        ((0, 2), "0:0, 2:1"),
    ],
)
def test_class_ids_with_holes_are_numbered_anew(tmp_path, ids, mapping):
    value = labels(
        categories=[{"id": ids[1], "name": "cat"}, {"id": ids[0], "name": "bird"}],
        annotations=[box(1, 1, ids[0], [8, 6, 16, 12]), box(2, 2, ids[1], [0, 0, 8.5, 24])],
    )
    result = checked(tmp_path, value)
    assert found(result) == [("classes.remapped", "info", "a.json", "/categories", mapping)]
    assert result.classes == ("bird", "cat")
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_the_mapping_of_all_of_cocos_ids_can_be_read(tmp_path):
    # The ids 1..90 that COCO's paper lists and its files leave out.
    left_out = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
    ids = [number for number in range(1, 91) if number not in left_out]
    value = labels(
        categories=[{"id": id_, "name": f"class {id_}"} for id_ in ids],
        annotations=[box(id_, 1 + id_ % 2, id_, [1, 1, 2 + id_ / 10, 9]) for id_ in ids],
    )
    assert found(checked(tmp_path, value)) == [
        (
            "classes.remapped",
            "info",
            "a.json",
            "/categories",
            "1-11:0-10, 13-25:11-23, 27-28:24-25, 31-44:26-39, 46-65:40-59, 67:60, 70:61, "
            "72-82:62-72, 84-90:73-79",
        )
    ]


def test_files_are_merged_by_class_name(tmp_path):
    train = labels(images=[image(1, "a.jpg")], annotations=[box(1, 1, 0, [8, 6, 16, 12])])
    val = labels(
        images=[image(1, "b.jpg")],
        annotations=[box(1, 1, 5, [0, 0, 8.5, 24]), box(2, 1, 9, [8, 6, 16, 12])],
        categories=[{"id": 5, "name": "cat"}, {"id": 9, "name": "ape"}],
    )
    files = {
        "annotations/instances_train2017.json": json.dumps(train),
        "annotations/instances_val2017.json": json.dumps(val),
    }
    result = checked(tmp_path, **files)
    assert found(result) == [
        (
            "classes.remapped",
            "info",
            "annotations/instances_val2017.json",
            "/categories",
            "5:1, 9:2",
        ),
    ]
    assert result.classes == ("bird", "cat", "ape")
    assert boxes(result) == [(BIRD,), (CAT, (2, 0.5, 0.5, 0.5, 0.5))]
    assert [image.split for image in result.manifest.images] == ["train", "val"]


def test_roboflows_folders_name_the_splits_and_test_is_left_out(tmp_path):
    files = {}
    for number, folder in enumerate(("train", "valid", "test")):
        one = labels(images=[image(0, "0.jpg")], annotations=[box(0, 0, 0, [8, 6, 16, 12])])
        one["categories"] = [{"id": 0, "name": "bird"}]
        files[f"{folder}/0.jpg"] = picture(10 + number)
        files[f"{folder}/_annotations.coco.json"] = json.dumps(one)
    result = check_folder(write_files(tmp_path, files))
    assert (result.left_out, found(result)) == (1, [])
    assert [(image.path, image.split) for image in result.manifest.images] == [
        ("train/0.jpg", "train"),
        ("valid/0.jpg", "val"),
    ]


def test_the_folder_of_a_file_names_its_split(tmp_path):
    files = {}
    for split, name, category in (("train", "a.jpg", 0), ("val", "b.jpg", 1)):
        one = labels(images=[image(1, name)], annotations=[box(1, 1, category, [8, 6, 16, 12])])
        files[f"labels/{split}/instances.json"] = json.dumps(one)
    result = checked(tmp_path, **files)
    assert [image.split for image in result.manifest.images] == ["train", "val"]


def test_equal_names_are_told_apart_by_the_split_of_the_file(tmp_path):
    files = {"images/train/0.jpg": picture(1), "images/val/0.jpg": picture(2)}
    for split in ("train", "val"):
        one = labels(images=[image(1, "0.jpg")], annotations=[box(1, 1, 0, [8, 6, 16, 12])])
        files[f"annotations/{split}.json"] = json.dumps(
            one | {"categories": [{"id": 0, "name": "bird"}]}
        )
    result = check_folder(write_files(tmp_path, files))
    assert found(result) == []
    assert [image.split for image in result.manifest.images] == ["train", "val"]


@pytest.mark.parametrize("name", ["instances.json", "train_val.json", "trainval.json"])
def test_one_file_without_a_splits_name_has_no_split(tmp_path, name):
    result = checked(tmp_path, **{name: json.dumps(labels())})
    assert {image.split for image in result.manifest.images} == {None}


def test_an_image_in_train_and_in_val_is_refused(tmp_path):
    files = {f"{split}.json": json.dumps(labels()) for split in ("train", "val")}
    assert found(checked(tmp_path, **files)) == [
        ("split.leakage", "error", name, None, "") for name in ("a.jpg", "b.jpg")
    ]


def test_two_files_of_the_same_images_are_refused_once(tmp_path):
    files = {"instances_train.json": json.dumps(labels()), "old_train.json": json.dumps(labels())}
    assert found(checked(tmp_path, **files)) == [
        ("coco.image-in-two-files", "error", "old_train.json", None, "2 images, first a.jpg"),
    ]


@pytest.mark.parametrize("size", [{}, {"width": 0, "height": 0}, {"width": "wide", "height": 24}])
def test_images_without_a_size_have_their_own(tmp_path, size):
    value = labels()
    value["images"][0] = {"id": 1, "file_name": "a.jpg"} | size
    result = checked(tmp_path, value)
    said = f"{json.dumps(size.get('width'))} x {json.dumps(size.get('height'))}"
    assert found(result) == [("coco.size-missing", "info", "a.json", "/images/0", said)]
    assert boxes(result) == [(BIRD,), (CAT,)]


def test_a_size_as_text_is_a_size(tmp_path):
    assert found(checked(tmp_path, changed("images", 0, "width", "32"))) == []
    assert found(checked(tmp_path, changed("images", 0, "width", "31"))) == [
        ("label.size-mismatch", "error", "a.json", None, "31 x 24"),
    ]


@pytest.mark.parametrize(
    ("name", "code", "value"),
    [
        (None, "json.invalid", "null"),
        ("", "json.invalid", ""),
        (7, "json.invalid", "7"),
        ("c.jpg", "files.missing-image", "c.jpg"),
        ("..\\..\\a.jpg", "files.path-escape", "..\\..\\a.jpg"),
        ("/etc/a.jpg", "files.path-escape", "/etc/a.jpg"),
        ("C:\\a.jpg", "files.path-escape", "C:\\a.jpg"),
        ("a\0.jpg", "files.path-escape", "a\0.jpg"),
        ("%2e%2e/a.jpg", "files.missing-image", "%2e%2e/a.jpg"),
    ],
)
def test_images_without_a_file_of_the_data_set_are_refused(tmp_path, name, code, value):
    labelled = changed("images", 0, "file_name", name)
    labelled["images"].append(image(3, "d.jpg"))
    result = checked(tmp_path, **{"a.json": json.dumps(labelled), "d.jpg": picture(4)})
    assert found(result) == [
        (code, "error", "a.json", "/images/0/file_name", value),
        ("files.unlisted-image", "warning", "a.jpg", None, "1 of 3 images"),
    ]


def test_windows_separators_are_read(tmp_path):
    files = {"pictures/c.jpg": picture(3), "a.json": ""}
    value = labels(images=[image(1, "a.jpg"), image(2, "b.jpg"), image(3, "pictures\\c.jpg")])
    assert found(checked(tmp_path, **files | {"a.json": json.dumps(value)})) == []


@pytest.mark.parametrize(
    ("categories", "code", "way", "value"),
    [
        (..., "json.invalid", "", "null"),
        ({"0": "bird"}, "json.invalid", "", "an object of 1 keys"),
        ([{"id": 0, "name": "bird"}, "cat"], "json.invalid", "/1", "cat"),
        ([{"id": 0, "name": "bird"}, {"id": 1}], "json.invalid", "/1/name", "null"),
        ([{"id": 0, "name": "bird"}, {"id": 1, "name": ""}], "classes.names", "/1/name", ""),
        ([{"id": 0, "name": "bird"}, {"name": "cat"}], "coco.id-invalid", "/1/id", "null"),
        (
            [{"id": 0, "name": "bird"}, {"id": 0, "name": "cat"}],
            "coco.category-id-duplicate",
            "/1/id",
            "0",
        ),
    ],
)
def test_categories_without_an_id_or_a_name_are_refused(tmp_path, categories, code, way, value):
    result = checked(tmp_path, changed("categories", categories))
    errors = [finding for finding in found(result) if finding[0] != "coco.category-unknown"]
    assert errors == [(code, "error", "a.json", f"/categories{way}", value)]


def test_categories_of_one_name_are_one_class(tmp_path):
    value = labels(categories=[{"id": 1, "name": "bird"}, {"id": 0, "name": "bird"}])
    result = checked(tmp_path, value)
    assert found(result) == [
        ("coco.category-name-duplicate", "warning", "a.json", "/categories", "bird"),
        ("classes.remapped", "info", "a.json", "/categories", "0:0, 1:0"),
    ]
    assert result.classes == ("bird",)


def test_a_class_without_boxes_is_recorded(tmp_path):
    value = changed("annotations", 1, "category_id", 0)
    assert found(checked(tmp_path, value)) == [
        ("classes.unused", "warning", "a.json", None, "cat"),
    ]


def test_the_faults_of_all_files_are_listed(tmp_path):
    files = {
        "train.json": json.dumps(labels()).removesuffix("}"),
        "val.json": json.dumps(changed("annotations", 0, "bbox", [1])),
        "more.json": json.dumps([labels()]),
        "notes.json": "{}",
    }
    assert found(checked(tmp_path, **files)) == [
        ("json.invalid", "error", "more.json", "", "a list of 1 values"),
        ("json.invalid", "error", "train.json", None, ""),
        ("label.field-count", "error", "val.json", "/annotations/0/bbox", "[1]"),
        ("files.not-labels", "warning", "notes.json", None, ""),
    ]


def test_a_folder_without_a_coco_file_is_refused(tmp_path):
    result = check_folder(write_files(tmp_path, {"a.jpg": picture(1)}), COCO)
    assert found(result)[:1] == [("label.none", "error", "", None, "")]


def test_a_file_above_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(coco, "MAX_COCO_BYTES", 100)
    assert found(checked(tmp_path)) == [("files.too-large", "error", "a.json", None, "")]


def read(tree: Tree, data: bytes) -> Findings:
    """The findings of these bytes as the label file; the pictures are not looked at."""
    tree.files["a.json"].write_bytes(data)
    findings = Findings()
    for rules in (COCO, ImportRules(format="coco", box_format="xyxy")):
        read_coco(tree, rules, findings)
    list(findings)
    return findings


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Tree:
    files = {"a.jpg": b"", "b.jpg": b"", "a.json": b"{}"}
    return read_tree(write_files(tmp_path_factory.mktemp("set"), files), Findings())


FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)


@FEW
@example(b"[" * 100_000)
@example(b'{"images": [{"id": ' + b"9" * 5000 + b"}]}")
@example(json.dumps(labels()).replace("32", "9" * 400).encode())
@example(b'{"images": [], "images": [{"\\ud800": 1, "\\ud800": 2}]}')
@given(st.binary())
def test_any_bytes_give_findings(tree, data):
    assert read(tree, data)


@FEW
@given(data=st.data())
def test_any_change_of_a_good_file_gives_findings_or_boxes(tree, data):
    value = labels()
    place = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(VALUES)
    read(tree, json.dumps(value).encode())
