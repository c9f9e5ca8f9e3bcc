"""Label Studio's exports: percent, rotation, several annotators, and names that are addresses."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.datasets.check import CheckResult, check_folder
from perdure.datasets.findings import Findings
from perdure.datasets.formats import label_studio
from perdure.datasets.formats.label_studio import read_label_studio
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree, read_tree
from tests.builders.datasets import picture, write_files

STUDIO = ImportRules(format="label-studio")
WIDTH, HEIGHT = 64, 32
SIZE = {"original_width": WIDTH, "original_height": HEIGHT}
PICTURES = {
    name: picture(n, width=WIDTH, height=HEIGHT) for n, name in enumerate(("a.jpg", "b.jpg"))
}


def rectangle(x=25, y=25, width=50, height=50, label="bird", **more) -> dict:
    value = {"x": x, "y": y, "width": width, "height": height}
    value |= {"rectanglelabels": [label]} | more
    return {"id": "r1", "type": "rectanglelabels", "to_name": "image", "value": value} | SIZE


def annotation(*results, **more) -> dict:
    return {"id": 1, "result": list(results), "was_cancelled": False, "ground_truth": False} | more


def task(image: str, *annotations, key="annotations") -> dict:
    return {"id": 1, "data": {"image": image}, key: list(annotations), "predictions": []}


def export(*results) -> list[dict]:
    """Two tasks; the results are those of the first."""
    return [
        task("a.jpg", annotation(*(results or [rectangle()]))),
        task("b.jpg", annotation(rectangle(0, 0, 25, 100))),
    ]


def checked(folder: Path, value=None, pictures=PICTURES, rules=STUDIO) -> CheckResult:
    content = json.dumps(export() if value is None else value)
    return check_folder(write_files(folder, dict(pictures) | {"e.json": content}), rules)


def found(result: CheckResult) -> list[tuple[str, str, str, str | None, str]]:
    return [(f.code, f.severity.value, f.file, f.pointer, f.value) for f in result.findings]


def corners(result: CheckResult, number: int = 0) -> list[tuple[float, ...]]:
    """Left, top, right, bottom in pixels of the boxes of an image."""
    return [
        pytest.approx(
            ((x - w / 2) * WIDTH, (y - h / 2) * HEIGHT, (x + w / 2) * WIDTH, (y + h / 2) * HEIGHT)
        )
        for _, x, y, w, h in result.manifest.images[number].boxes
    ]


MIDDLE = (16, 8, 48, 24)
FIRST = "/0/annotations/0/result/0"


def test_a_clean_export_is_read_without_a_word(tmp_path):
    result = checked(tmp_path, rules=ImportRules())
    assert found(result) == []
    assert (result.format, result.classes) == ("label-studio", ("bird",))
    assert corners(result) == [MIDDLE]
    assert corners(result, 1) == [(0, 0, 16, 32)]


def test_completions_of_old_versions_are_read(tmp_path):
    value = [task(name, annotation(rectangle()), key="completions") for name in PICTURES]
    result = checked(tmp_path, value)
    assert found(result) == []
    assert corners(result) == [MIDDLE]


def short(image: str, id_: int, **more) -> dict:
    """A task of JSON-MIN."""
    item = rectangle(**more)
    return {"id": id_, "image": image, "label": [item["value"] | SIZE], "annotator": 1}


def test_json_min_is_read(tmp_path):
    result = checked(tmp_path, [short("a.jpg", 1), short("b.jpg", 2)], rules=ImportRules())
    assert found(result) == []
    assert corners(result) == [MIDDLE]


def test_of_json_min_what_is_said_about_a_shape_is_no_shape(tmp_path):
    value = [short("a.jpg", 1), short("b.jpg", 2)]
    place = {"x": 25, "y": 25, "width": 50, "height": 50}
    value[0] |= {"state": [place | SIZE | {"choices": ["wet"]}], "comments": ["good"]}
    result = checked(tmp_path, value)
    assert found(result) == []
    assert corners(result) == [MIDDLE]


def test_of_json_min_the_last_of_several_annotators_counts(tmp_path):
    value = [short("a.jpg", 1, x=0), short("b.jpg", 2), short("a.jpg", 1)]
    result = checked(tmp_path, value)
    assert found(result) == [
        ("label-studio.several-annotations", "info", "e.json", "/2", "2 annotations"),
    ]
    assert corners(result) == [MIDDLE]


def test_files_of_one_annotation_each_are_read(tmp_path):
    files = {
        f"annotations/{number}.json": json.dumps(
            annotation(rectangle()) | {"task": {"id": number, "data": {"image": f"s3://b/{name}"}}}
        )
        for number, name in enumerate(PICTURES)
    }
    result = check_folder(write_files(tmp_path, PICTURES | files))
    assert found(result) == []
    assert corners(result, 1) == [MIDDLE]


def test_a_rectangle_is_turned_in_pixels_about_its_upper_left_corner(tmp_path):
    # 32,8 and 16 x 8 pixels; cos 30 = 0.8660254, sin 30 = 0.5: the corners are 32,8 and 45.86,16
    # and 41.86,22.93 and 28,14.93.
    result = checked(tmp_path, export(rectangle(50, 25, 25, 25, rotation=30)))
    assert found(result) == [
        ("label.rotated", "warning", "e.json", f"{FIRST}/value/rotation", "30 degrees"),
    ]
    assert corners(result) == [(28, 8, 32 + 16 * 0.8660254037844387, 16 + 8 * 0.8660254037844387)]


@pytest.mark.parametrize(
    ("rotation", "expected"),
    [
        (90, (24, 8, 32, 24)),
        (-270, (24, 8, 32, 24)),
        (180, (16, 0, 32, 8)),
        (270, (32, -8, 40, 8)),
    ],
)
def test_quarter_turns(tmp_path, rotation, expected):
    result = checked(tmp_path, export(rectangle(50, 25, 25, 25, rotation=rotation)))
    left, top, right, bottom = expected
    assert corners(result) == [(left, max(top, 0), right, bottom)]
    assert "label.rotated" in result.findings.codes()


# An image of 64 x 32 that is turned by 90 degrees on the screen is 32 x 64 there: percent of that
# would be other pixels, and the size another one.
@pytest.mark.parametrize("turned", [0, 90, 180, 270, -90, None, "x"])
@pytest.mark.parametrize("form", ["full", "short"])
def test_an_image_that_was_turned_on_the_screen_has_the_same_boxes(tmp_path, turned, form):
    item = rectangle(50, 25, 25, 25) | {"image_rotation": turned}
    value = export(item)
    if form == "short":
        value[0] = {"id": 1, "image": "a.jpg", "label": [item.pop("value") | item]}
    result = checked(tmp_path, value)
    assert found(result) == []
    assert corners(result) == [(32, 8, 48, 16)]


@pytest.mark.parametrize("rotation", [0, 0.0, 360, -720, None])
def test_whole_turns_are_none(tmp_path, rotation):
    result = checked(tmp_path, export(rectangle(rotation=rotation)))
    assert found(result) == []
    assert corners(result) == [MIDDLE]


@pytest.mark.parametrize(
    ("values", "said"),
    [((25, 75, 50, -50), "25 75 50 -50"), ((75, 75, -50, -50), "75 75 -50 -50")],
)
def test_negative_sizes_swap_corners(tmp_path, values, said):
    result = checked(tmp_path, export(rectangle(*values)))
    assert found(result) == [
        ("label.negative-size", "warning", "e.json", f"{FIRST}/value", said),
    ]
    assert corners(result) == [MIDDLE]


def test_a_turned_rectangle_with_a_negative_height_is_turned_with_it(tmp_path):
    # 16 x -8 pixels from 32,8, turned by 90 degrees: from 32,8 to the right and down.
    result = checked(tmp_path, export(rectangle(50, 25, 25, -25, rotation=90)))
    assert [code for code, *_ in found(result)] == ["label.negative-size", "label.rotated"]
    assert corners(result) == [(32, 8, 40, 24)]


def shape(type_: str, value: dict) -> dict:
    return {"id": "r1", "type": type_, "value": value} | SIZE


def test_polygons_give_the_box_around_them(tmp_path):
    polygon = {"points": [[25, 50], [50, 25], [75, 75]], "polygonlabels": ["bird"]}
    result = checked(tmp_path, export(shape("polygonlabels", polygon)))
    assert found(result) == [("label.polygon-to-box", "info", "e.json", FIRST, "polygon")]
    assert corners(result) == [MIDDLE]


def test_ellipses_give_the_box_around_them(tmp_path):
    # Radii of 16 x 4 pixels about 32,16, turned by a quarter: 4 x 16.
    ellipse = {"x": 50, "y": 50, "radiusX": 25, "radiusY": 12.5, "rotation": 90}
    result = checked(tmp_path, export(shape("ellipselabels", ellipse | {"ellipselabels": ["o"]})))
    assert found(result) == [("label.polygon-to-box", "info", "e.json", FIRST, "ellipse")]
    assert corners(result) == [(28, 0, 36, 32)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("brushlabels", {"format": "rle", "rle": [1, 2], "brushlabels": ["bird"]}),
        ("keypointlabels", {"x": 1, "y": 2, "width": 0.3, "keypointlabels": ["bird"]}),
        ("vectorlabels", {"vertices": [], "vectorlabels": ["bird"]}),
    ],
)
def test_shapes_without_area_are_left_out(tmp_path, type_, value):
    result = checked(tmp_path, export(rectangle(), shape(type_, value)))
    assert found(result) == [
        ("label.not-a-box", "warning", "e.json", "/0/annotations/0/result/1", type_),
    ]
    assert corners(result) == [MIDDLE]


def test_what_is_said_about_a_shape_is_no_shape(tmp_path):
    place = {"x": 25, "y": 25, "width": 50, "height": 50}
    results = [
        shape("rectangle", place),
        shape("labels", place | {"labels": ["bird"]}),
        shape("choices", place | {"choices": ["wet"]}),
        shape("textarea", place | {"text": ["a gull"]}),
        {"type": "choices", "value": {"choices": ["day"]}},
        {"type": "relation", "from_id": "r1", "to_id": "r1"},
    ]
    result = checked(tmp_path, export(*results))
    assert found(result) == []
    assert corners(result) == [MIDDLE]


def test_a_shape_of_two_classes_is_a_box_of_each(tmp_path):
    result = checked(tmp_path, export(rectangle(rectanglelabels=["bird", "gull"])))
    assert found(result) == [("label.several-classes", "info", "e.json", FIRST, "bird, gull")]
    assert [box[0] for box in result.manifest.images[0].boxes] == [0, 1]


@pytest.mark.parametrize(
    ("field", "value", "code", "way", "said"),
    [
        ("x", float("nan"), "label.not-finite", "/value/x", "NaN"),
        ("width", "5", "label.not-a-number", "/value/width", '"5"'),
        ("y", ..., "label.not-a-number", "/value/y", "null"),
        ("rotation", "left", "label.not-a-number", "/value/rotation", '"left"'),
        ("x", 1e308, "label.not-finite", "/value", "[Infinity, 8.0, Infinity, 24.0]"),
        ("width", 0, "label.degenerate-box", "", "16 8 16 24"),
        ("x", 250, "label.out-of-range", "", "160 8 192 24"),
        ("rectanglelabels", [], "classes.names", "", ""),
        ("rectanglelabels", "bird", "json.invalid", "/value", "bird"),
        ("rectanglelabels", [1], "json.invalid", "/value", "[1]"),
        ("points", [[1, 2], [3, 4]], "label.field-count", "/value/points", "a list of 2 values"),
        ("points", [[1, 2], [3, 4], 5], "json.invalid", "/value/points/2", "5"),
        (
            "points",
            [[1, 2], [3, 4], [5, True]],
            "label.not-a-number",
            "/value/points/2/1",
            "true",
        ),
    ],
)
def test_faults_of_shapes_are_named_at_their_place(tmp_path, field, value, code, way, said):
    item = rectangle()
    if value is ...:
        del item["value"][field]
    else:
        item["value"][field] = value
    result = checked(tmp_path, export(item))
    assert found(result) == [(code, "error", "e.json", FIRST + way, said)]


@pytest.mark.parametrize("width", [None, 0, "wide"])
def test_results_without_a_size_are_refused(tmp_path, width):
    result = checked(tmp_path, export(rectangle() | {"original_width": width}))
    said = f"{json.dumps(width)} x 32"
    assert found(result) == [("label-studio.size-missing", "error", "e.json", FIRST, said)]


def test_a_size_that_another_result_names_is_enough(tmp_path):
    without = rectangle(0, 0, 10, 10)
    del without["original_width"]
    assert found(checked(tmp_path, export(without, rectangle()))) == []


def test_two_sizes_of_one_image_are_refused(tmp_path):
    other = rectangle() | {"original_width": 32}
    assert found(checked(tmp_path, export(rectangle(), other))) == [
        ("label.size-mismatch", "error", "e.json", "/0/annotations/0/result/1", "32 x 32"),
    ]


WRONG = annotation(rectangle(0, 0, 10, 10))
RIGHT = annotation(rectangle())


@pytest.mark.parametrize(
    "annotations",
    [
        [WRONG, RIGHT],
        [WRONG, RIGHT | {"ground_truth": True}, WRONG | {"ground_truth": True}, WRONG],
        [WRONG, RIGHT, WRONG | {"was_cancelled": True}],
    ],
)
def test_the_first_ground_truth_or_the_last_annotation_counts(tmp_path, annotations):
    value = export()
    value[0]["annotations"] = annotations
    result = checked(tmp_path, value)
    counted = sum(not annotation["was_cancelled"] for annotation in annotations)
    assert found(result) == [
        (
            "label-studio.several-annotations",
            "info",
            "e.json",
            "/0/data",
            f"{counted} annotations",
        ),
    ]
    assert corners(result) == [MIDDLE]


@pytest.mark.parametrize("annotations", [[], [RIGHT | {"was_cancelled": True}]])
def test_tasks_that_nobody_labelled_are_no_background(tmp_path, annotations):
    value = [*export(), task("c.jpg", *annotations)]
    value[2]["predictions"] = [RIGHT]
    pictures = PICTURES | {"c.jpg": picture(9)}
    result = checked(tmp_path, value, pictures)
    assert found(result) == [
        ("label-studio.unlabelled", "warning", "e.json", "/2/data", "1 tasks"),
    ]
    assert [image.path for image in result.manifest.images] == ["a.jpg", "b.jpg"]


def test_tasks_that_nobody_labelled_need_no_image(tmp_path):
    assert found(checked(tmp_path, [*export(), task("c.jpg")])) == [
        ("label-studio.unlabelled", "warning", "e.json", "/2/data", "1 tasks"),
    ]


def test_an_annotation_without_results_is_background(tmp_path):
    value = [*export(), task("c.jpg", annotation())]
    result = checked(tmp_path, value, PICTURES | {"c.jpg": picture(9)})
    assert found(result) == []
    assert result.background == 1


def test_images_that_no_task_names_are_left_out(tmp_path):
    result = checked(tmp_path, pictures=PICTURES | {"c.jpg": picture(9)})
    assert found(result) == [
        ("files.unlisted-image", "warning", "c.jpg", None, "1 of 3 images"),
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/data/upload/3/1a2b3c4d-x.jpg", "x.jpg"),
        ("/data/upload/3/1a2b3c4d-x.jpg", "1a2b3c4d-x.jpg"),
        ("/data/upload/1a2b3c4d-x.jpg", "images/x.jpg"),
        ("1a2b3c4d-x.jpg", "x.jpg"),
        ("/data/local-files/?d=sub/x.jpg", "sub/x.jpg"),
        ("/data/local-files/?d=sub%2Fmy%20x.jpg", "images/sub/my x.jpg"),
        ("/data/local-files/?d=home/me/sub\\x.jpg", "sub/x.jpg"),
        ("s3://bucket/deep/er/x.jpg", "er/x.jpg"),
        ("gs://bucket/x.jpg", "x.jpg"),
        ("https://host:8080/data/upload/3/1a2b3c4d-x.jpg?token=1", "x.jpg"),
        ("https://host/files/my%20x.jpg", "my x.jpg"),
        ("https://host/files/100%25.jpg", "100%.jpg"),
        ("sub\\x.jpg", "sub/x.jpg"),
        ("my%20x.jpg", "my%20x.jpg"),
    ],
)
def test_images_are_found_by_the_part_of_an_address_that_names_them(tmp_path, name, path):
    value = [*export(), task(name, annotation(rectangle()))]
    other = {"other/y.jpg": picture(8)}
    result = checked(tmp_path, value, PICTURES | other | {path: picture(9, width=64, height=32)})
    assert [code for code, *_ in found(result)] == ["files.unlisted-image"]
    assert path in [image.path for image in result.manifest.images]


def test_the_longest_part_of_an_address_counts(tmp_path):
    pictures = {f"{folder}/x.jpg": picture(n, width=64, height=32) for n, folder in enumerate("ab")}
    value = [task(f"s3://bucket/{folder}/x.jpg", annotation(rectangle())) for folder in "ab"]
    result = checked(tmp_path, value, pictures)
    assert found(result) == []
    assert [len(image.boxes) for image in result.manifest.images] == [1, 1]


def test_of_an_address_that_could_be_two_images_no_shorter_part_is_taken(tmp_path):
    value = [*export(), task("s3://bucket/c/x.jpg", annotation(rectangle()))]
    others = {f"{folder}x.jpg": picture(len(folder)) for folder in ("", "1/c/", "10/c/")}
    errors = [code for code, severity, *_ in found(checked(tmp_path, value, PICTURES | others))]
    assert errors[0] == "files.image-ambiguous"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../../x.jpg", "files.path-escape"),
        ("/etc/x.jpg", "files.path-escape"),
        ("C:\\x.jpg", "files.path-escape"),
        ("..%2F..%2Fx.jpg", "files.path-escape"),
        ("/data/local-files/?d=../../x.jpg", "files.path-escape"),
        ("/data/local-files/?d=..%5C..%5Cx.jpg", "files.path-escape"),
        ("/data/upload/..%2f..%2f..%2fx.jpg", "files.path-escape"),
        ("s3://bucket/%00x.jpg", "files.path-escape"),
        ("s3://bucket/none.jpg", "files.missing-image"),
        ("s3://bucket/", "files.missing-image"),
        ("/data/upload/3/1a2b3c4d-", "files.missing-image"),
    ],
)
def test_names_that_lead_out_or_nowhere_are_refused(tmp_path, name, code):
    value = [*export(), task(name, annotation(rectangle()))]
    pictures = PICTURES | {"deep/er/x.jpg": picture(9)}
    folder = tmp_path / "set"
    write_files(tmp_path, {"x.jpg": picture(8)})
    result = checked(folder, value, pictures)
    errors = [finding for finding in found(result) if finding[1] == "error"]
    assert errors == [(code, "error", "e.json", "/2/data/image", name)]


def test_secrets_in_an_address_are_not_shown(tmp_path):
    name = "https://me:secret@host/none.jpg?X-Amz-Signature=secret"
    result = checked(tmp_path, [*export(), task(name, annotation(rectangle()))])
    [error] = result.findings
    assert (error.code, error.value) == ("files.missing-image", "https://host/none.jpg")
    assert "secret" not in error.text()


def test_two_tasks_of_one_image_are_refused(tmp_path):
    value = [*export(), task("/data/upload/1/1a2b3c4d-a.jpg", annotation(rectangle()))]
    assert found(checked(tmp_path, value)) == [
        ("label-studio.image-twice", "error", "e.json", "/2/data", "a.jpg"),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "an object of 0 keys"),
        ({"image": ["a.jpg", "b.jpg"]}, "an object of 1 keys"),
        ({"left": "a.jpg", "right": "b.jpg"}, "left, right"),
        ([], "an object of 0 keys"),
    ],
)
def test_tasks_without_one_image_are_refused(tmp_path, data, said):
    value = [*export(), task("a.jpg", annotation(rectangle()))]
    value[2]["data"] = data
    assert found(checked(tmp_path, value)) == [
        ("json.invalid", "error", "e.json", "/2/data", said),
    ]


def test_an_image_may_have_any_key(tmp_path):
    value = export()
    value[0]["data"] = {"photo": "a.jpg", "text": "a bird", "score": 3}
    assert found(checked(tmp_path, value)) == []


@pytest.mark.parametrize(
    ("way", "value", "place", "said"),
    [
        ((2,), 7, "/2", "7"),
        ((2, "annotations"), {"a": 1}, "/2/annotations", "an object of 1 keys"),
        ((2, "annotations", 0), "x", "/2/annotations/0", "x"),
        ((2, "annotations", 0, "result"), None, "/2/annotations/0/result", "null"),
        ((2, "annotations", 0, "result", 0), [], "/2/annotations/0/result/0", "[]"),
    ],
)
def test_what_has_another_type_is_named_at_its_place(tmp_path, way, value, place, said):
    tasks = [*export(), task("c.jpg", annotation(rectangle()))]
    inner = tasks
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    errors = found(checked(tmp_path, tasks, PICTURES | {"c.jpg": picture(9)}))
    assert errors[:1] == [("json.invalid", "error", "e.json", place, said)]


def test_a_file_above_the_limit_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(label_studio, "MAX_EXPORT_BYTES", 100)
    assert found(checked(tmp_path)) == [("files.too-large", "error", "e.json", None, "")]


def read(tree: Tree, data: bytes) -> Findings:
    """The findings of these bytes as the export; the pictures are not looked at."""
    tree.files["e.json"].write_bytes(data)
    findings = Findings()
    read_label_studio(tree, STUDIO, findings)
    list(findings)
    return findings


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Tree:
    files = {"a.jpg": b"", "b.jpg": b"", "e.json": b"{}"}
    return read_tree(write_files(tmp_path_factory.mktemp("set"), files), Findings())


FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)


@FEW
@example(json.dumps(export()).replace("64", "9" * 400).encode())
@example(b"[" * 100_000)
@example(b'[{"data": {"image": "http://[x/a.jpg"}, "annotations": [{"result": []}]}]')
@given(st.binary())
def test_any_bytes_give_findings(tree, data):
    assert read(tree, data)


@FEW
@given(data=st.data())
def test_any_change_of_a_good_file_gives_findings_or_boxes(tree, data):
    value = copy.deepcopy([*export(rectangle(rotation=10)), short("b.jpg", 3)])
    place = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(VALUES)
    read(tree, json.dumps(value).encode())


@FEW
@given(st.text())
def test_no_name_leads_out_of_the_data_set(tree, name):
    read(tree, json.dumps([task(name, annotation(rectangle()))]).encode())
