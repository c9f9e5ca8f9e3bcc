"""Labels with classes by name become data sets: class ids, splits, and what is left over."""

import pytest

from perdure.datasets.annotation import MAX_CLASSES, Annotations, Corners
from perdure.datasets.findings import Finding, Findings
from perdure.datasets.formats.by_name import (
    MAX_NAME_CHARACTERS,
    LabelsByName,
    NamedBox,
    NamedLabels,
)
from perdure.datasets.tree import read_tree
from tests.builders.datasets import write_files


@pytest.fixture
def collect(tmp_path):
    """A collector for the images a, b and c, or others, and its findings."""

    def collect(*images: str) -> tuple[LabelsByName, Findings]:
        findings = Findings()
        names = images or ("a.jpg", "b.jpg", "c.jpg")
        folder = write_files(tmp_path / "set", dict.fromkeys(names, b""))
        return LabelsByName(read_tree(folder, findings), findings), findings

    return collect


def named(*classes: str, file: str = "a.xml", size: tuple[int, int] | None = None) -> NamedLabels:
    return NamedLabels(
        file, size, tuple(NamedBox(name, 1, 2, 3, 4, line) for line, name in enumerate(classes, 1))
    )


def class_ids(annotations: Annotations) -> dict[str, list[int]]:
    return {
        image.path: [box.class_index for box in image.pixels.corners]
        for image in annotations.images
        if image.pixels is not None
    }


def brief(findings: Findings) -> list[tuple[str, str, str, int | None, str]]:
    def row(found: Finding) -> tuple[str, str, str, int | None, str]:
        return found.code, str(found.severity), found.file, found.line, found.value

    return [row(found) for found in findings]


def test_class_ids_are_in_the_order_of_the_names_whatever_comes_first(collect):
    labels, findings = collect()
    labels.add("c.jpg", named("fox", "bird", file="c.xml"))
    labels.add("a.jpg", named("bird", "ant", size=(32, 24)))
    labels.add("b.jpg", named(file="b.xml"))
    annotations = labels.annotations("voc")

    assert (annotations.format, annotations.classes) == ("voc", ("ant", "bird", "fox"))
    assert class_ids(annotations) == {"a.jpg": [1, 0], "b.jpg": [], "c.jpg": [2, 1]}
    image = annotations.images[0]
    assert (image.pixels.file, image.pixels.size) == ("a.xml", (32, 24))
    assert image.pixels.corners[0] == Corners(1, 1, 2, 3, 4, line=1)
    assert brief(findings) == []


def test_all_that_a_box_says_of_its_place_stays_with_it(collect):
    labels, _ = collect()
    box = NamedBox("bird", 1, 2, 3, 4, line=7, pointer="/x", file="other.csv")
    labels.add("a.jpg", NamedLabels("a.csv", None, (box,)))
    annotations = labels.annotations("csv")
    expected = Corners(0, 1, 2, 3, 4, line=7, pointer="/x", file="other.csv")
    assert annotations.images[0].pixels.corners == (expected,)


def test_declared_classes_keep_their_order_and_unused_ones_are_told(collect):
    labels, findings = collect()
    for image in ("a.jpg", "b.jpg", "c.jpg"):
        labels.add(image, named("bird"))
    annotations = labels.annotations("coco", declared=("fox", "bird"), declared_in="c.json")
    assert annotations.classes == ("fox", "bird")
    assert class_ids(annotations)["a.jpg"] == [1]
    assert brief(findings) == [("classes.unused", "warning", "c.json", None, "fox")]


def test_a_class_whose_boxes_were_refused_is_not_unused(collect):
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named("bird"))
    labels.note_unread("fox")
    labels.note_unread("never declared")
    labels.annotations("coco", declared=("fox", "bird"))
    assert brief(findings) == []


def test_images_without_labels_are_background(collect):
    labels, findings = collect()
    labels.add("b.jpg", named("bird"))
    labels.add("c.jpg", named("bird", file="c.xml"))
    annotations = labels.annotations("voc")
    assert [image.pixels is None for image in annotations.images] == [True, False, False]
    assert brief(findings) == [("files.background", "warning", "a.jpg", None, "1 of 3 images")]


@pytest.mark.parametrize(
    ("labelled", "code", "severity"),
    [(2, "files.background", "warning"), (1, "files.labels-missing", "error")],
)
def test_that_most_images_have_no_labels_is_an_error(collect, labelled, code, severity):
    names = [f"{number}.jpg" for number in range(4)]
    labels, findings = collect(*names)
    for name in names[:labelled]:
        labels.add(name, named("bird", file=name + ".xml"))
    labels.annotations("voc")
    counted = f"{4 - labelled} of 4 images"
    assert brief(findings) == [(code, severity, names[labelled], None, counted)]


def test_test_images_need_no_labels(collect):
    labels, findings = collect("train/a.jpg", "test/a.jpg", "test/b.jpg", "test/c.jpg")
    labels.add("train/a.jpg", named("bird"))
    annotations = labels.annotations("voc")
    assert (brief(findings), annotations.left_out) == ([], 3)


def test_images_that_are_not_listed_are_left_out(collect):
    labels, findings = collect()
    labels.add("b.jpg", named("bird"))
    annotations = labels.annotations("coco", listed_only=True)
    assert [image.path for image in annotations.images] == ["b.jpg"]
    assert brief(findings) == [("files.unlisted-image", "warning", "a.jpg", None, "2 of 3 images")]


@pytest.mark.parametrize("listed_only", [False, True])
def test_a_reader_that_could_not_read_all_does_not_call_the_rest_unlabelled(collect, listed_only):
    labels, findings = collect()
    labels.add("b.jpg", named("bird"))
    labels.annotations("coco", listed_only=listed_only, report_unlabelled=False)
    assert brief(findings) == []


def test_a_second_file_for_an_image_is_an_error_and_the_first_is_read(collect):
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named("bird"))
    labels.add("a.jpg", named("bird", file="other/a.xml"))
    annotations = labels.annotations("voc")
    assert class_ids(annotations) == {"a.jpg": [0]}
    assert brief(findings) == [("files.stem-collision", "error", "other/a.xml", None, "a.jpg")]
    assert "a.xml" in findings[0].rule


def test_splits_are_those_that_are_said(collect):
    labels, findings = collect("train/a.jpg", "train/b.jpg", "c.jpg")
    for image in ("train/a.jpg", "train/b.jpg", "c.jpg"):
        labels.add(image, named("bird"))
    labels.put_into("train/a.jpg", "val")
    labels.put_into("train/a.jpg", "val")
    labels.put_into("train/b.jpg", "train")
    annotations = labels.annotations("voc")
    # Once splits are said, folders say nothing.
    assert {image.path: image.split for image in annotations.images} == {
        "train/a.jpg": "val",
        "train/b.jpg": "train",
        "c.jpg": None,
    }
    assert brief(findings) == []


def test_splits_are_those_of_the_folders_where_nothing_is_said(collect):
    labels, _ = collect("train2017/a.jpg", "valid/x/b.jpg", "c.jpg")
    annotations = labels.annotations("voc")
    assert {image.path: image.split for image in annotations.images} == {
        "train2017/a.jpg": "train",
        "valid/x/b.jpg": "val",
        "c.jpg": None,
    }


@pytest.mark.parametrize("order", [("train", "val"), ("val", "train")])
def test_an_image_in_train_and_in_val_is_an_error(collect, order):
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named("bird"))
    for split in order:
        labels.put_into("a.jpg", split)
    labels.annotations("voc")
    assert brief(findings) == [("split.leakage", "error", "a.jpg", None, "")]


def test_test_images_are_left_out_and_their_classes_are_unused(collect):
    labels, findings = collect("train/a.jpg", "test/b.jpg")
    labels.add("train/a.jpg", named("bird"))
    labels.add("test/b.jpg", named("bird", "fox", file="b.xml"))
    annotations = labels.annotations("voc")
    assert [image.path for image in annotations.images] == ["train/a.jpg"]
    assert annotations.left_out == 1
    assert brief(findings) == [
        ("classes.unused", "warning", "", None, "fox"),
    ]


def test_no_box_at_all_is_an_error_unless_there_is_another_reason(collect):
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named())
    labels.annotations("voc")
    assert brief(findings) == [("label.none", "error", "", None, "")]

    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named())
    findings.error("xml.invalid", "b.xml", "", "rule", "advice")
    labels.annotations("voc")
    assert [found.code for found in findings] == ["xml.invalid"]


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_CHARACTERS + 1), "a\nb", "a\0", "\u200b"])
def test_a_name_that_nobody_could_read_is_an_error_where_it_is_first_used(collect, name):
    labels, findings = collect("a.jpg", "b.jpg")
    labels.add("a.jpg", named("bird", name))
    labels.add("b.jpg", named(name, file="b.xml"))
    labels.annotations("voc")
    [(code, severity, file, line, _)] = brief(findings)
    assert (code, severity, file, line) == ("classes.names", "error", "a.xml", 2)


def test_a_declared_name_that_nobody_could_read_is_an_error_where_it_is_declared(collect):
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named("bird"))
    labels.annotations("coco", declared=("bird", ""), declared_in="c.json")
    assert ("classes.names", "error", "c.json", None, "") in brief(findings)


def test_names_that_are_no_classes_are_found_out_in_little_time(collect):
    """Each box with a description of its own, too long for a name."""
    count = 3 * MAX_CLASSES
    labels, findings = collect("a.jpg")
    labels.add("a.jpg", named(*(f"{'x' * MAX_NAME_CHARACTERS}{n}" for n in range(count))))
    labels.annotations("csv")
    assert findings.codes() == {"classes.names": count + 1}
    assert any(found.value == str(count) for found in findings)
