"""Our readers against an independent tool, labelformat, on clean data: the same boxes to 1e-6."""

import json
import random
from pathlib import Path

import pytest
from labelformat.formats import (
    COCOObjectDetectionInput,
    PascalVOCObjectDetectionInput,
    YOLOv8ObjectDetectionInput,
)

from perdure.datasets.check import check
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import picture, write_files

CLASSES = ("bird", "cat", "fox")
WIDTH, HEIGHT = 97, 61  # primes: no share is exact
IMAGES = 25

# Class index, left, top, right, bottom in pixels.
Corners = tuple[int, float, float, float, float]
Labels = dict[str, list[Corners]]


@pytest.fixture(params=range(3))
def labels(request) -> Labels:
    """Random boxes inside of random images, some with fractions of pixels, some images empty."""
    rng = random.Random(request.param)

    def box() -> Corners:
        left, top = rng.uniform(0, WIDTH - 2), rng.uniform(0, HEIGHT - 2)
        right, bottom = rng.uniform(left + 1, WIDTH), rng.uniform(top + 1, HEIGHT)
        corners = (left, top, right, bottom)
        if rng.random() < 0.5:
            corners = tuple(map(float, map(int, corners)))
        return (rng.randrange(3), *corners)

    return {
        f"{number:02}": [box() for _ in range(rng.choice([0, 1, 2, 5]))] for number in range(IMAGES)
    }


def write(folder: Path, files: dict[str, str]) -> Path:
    images = {
        f"images/{number:02}.jpg": picture(number, width=WIDTH, height=HEIGHT)
        for number in range(IMAGES)
    }
    return write_files(folder, images | files)


def ours(folder: Path, format_: str) -> Labels:
    result = check(folder, ImportRules(format=format_))
    assert result.ok, [found.text() for found in result.findings]
    assert result.classes == CLASSES
    return {
        Path(image.path).stem: sorted(
            (
                index,
                (x - w / 2) * WIDTH,
                (y - h / 2) * HEIGHT,
                (x + w / 2) * WIDTH,
                (y + h / 2) * HEIGHT,
            )
            for index, x, y, w, h in image.boxes
        )
        for image in result.manifest.images
    }


def theirs(source) -> Labels:
    found: Labels = {}
    for label in source.get_labels():
        boxes = ((o.category.id, o.box) for o in label.objects)
        found[Path(label.image.filename).stem] = sorted(
            (index, box.xmin, box.ymin, box.xmax, box.ymax) for index, box in boxes
        )
    return found


def assert_same(one: Labels, other: Labels) -> None:
    with_boxes = {name: boxes for name, boxes in one.items() if boxes}
    assert with_boxes.keys() == {name for name, boxes in other.items() if boxes}
    for name, boxes in with_boxes.items():
        assert len(boxes) == len(other[name])
        for box, expected in zip(boxes, other[name], strict=True):
            assert box[0] == expected[0]
            assert box[1:] == pytest.approx(expected[1:], abs=1e-6)


def test_coco(tmp_path, labels):
    names = sorted(labels)
    annotations = [
        {"image_id": names.index(name), "category_id": c, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for name, boxes in labels.items()
        for c, x1, y1, x2, y2 in boxes
    ]
    value = {
        "images": [
            {"id": n, "file_name": f"{name}.jpg", "width": WIDTH, "height": HEIGHT}
            for n, name in enumerate(names)
        ],
        "annotations": [{"id": n, "iscrowd": 0} | row for n, row in enumerate(annotations)],
        "categories": [{"id": n, "name": name} for n, name in enumerate(CLASSES)],
    }
    folder = write(tmp_path, {"annotations.json": json.dumps(value)})
    source = COCOObjectDetectionInput(folder / "annotations.json")
    assert_same(ours(folder, "coco"), theirs(source))


def test_voc(tmp_path, labels):
    files = {}
    for name, boxes in labels.items():
        objects = "".join(
            f"<object><name>{CLASSES[c]}</name><bndbox><xmin>{x1!r}</xmin><ymin>{y1!r}</ymin>"
            f"<xmax>{x2!r}</xmax><ymax>{y2!r}</ymax></bndbox></object>"
            for c, x1, y1, x2, y2 in boxes
        )
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        files[f"Annotations/{name}.xml"] = (
            f"<annotation><filename>{name}.jpg</filename>{size}{objects}</annotation>"
        )
    folder = write(tmp_path, files)
    source = PascalVOCObjectDetectionInput(folder / "Annotations", ",".join(CLASSES))
    assert_same(ours(folder, "voc"), theirs(source))


def test_yolo(tmp_path, labels):
    files = {"data.yaml": "path: .\ntrain: images\nnames: [bird, cat, fox]\n"}
    for name, boxes in labels.items():
        files[f"labels/{name}.txt"] = "".join(
            f"{c} {(x1 + x2) / 2 / WIDTH!r} {(y1 + y2) / 2 / HEIGHT!r} "
            f"{(x2 - x1) / WIDTH!r} {(y2 - y1) / HEIGHT!r}\n"
            for c, x1, y1, x2, y2 in boxes
        )
    folder = write(tmp_path, files)
    source = YOLOv8ObjectDetectionInput(folder / "data.yaml", "train")
    assert_same(ours(folder, "yolo"), theirs(source))
