"""Small data sets in COCO form, and what their check gives."""

import copy
import json
from pathlib import Path

from perdure.datasets.check import CheckResult, check_folder
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import picture, write_files

COCO = ImportRules(format="coco")
WIDTH, HEIGHT = 32, 24  # of the pictures


def image(id_, name, **more):
    return {"id": id_, "file_name": name, "width": WIDTH, "height": HEIGHT} | more


def box(id_, image_id, category_id, bbox, **more):
    return {"id": id_, "image_id": image_id, "category_id": category_id, "bbox": bbox} | more


def labels(**changes) -> dict:
    """Two images, two classes, a box of each."""
    return {
        "images": [image(1, "a.jpg"), image(2, "b.jpg")],
        "annotations": [box(1, 1, 0, [8, 6, 16, 12]), box(2, 2, 1, [0, 0, 8.5, 24])],
        "categories": [{"id": 0, "name": "bird"}, {"id": 1, "name": "cat"}],
    } | changes


def checked(folder: Path, value=None, rules=COCO, **files) -> CheckResult:
    """The check of a.jpg, b.jpg, and `value` as a.json, or other files instead."""
    pictures = {"a.jpg": picture(1), "b.jpg": picture(2)}
    named = files or {"a.json": json.dumps(labels() if value is None else value)}
    return check_folder(write_files(folder, pictures | named), rules)


def found(result: CheckResult) -> list[tuple[str, str, str, str | None, str]]:
    return [(f.code, f.severity.value, f.file, f.pointer, f.value) for f in result.findings]


def boxes(result: CheckResult) -> list[tuple]:
    return [image.boxes for image in result.manifest.images]


def changed(*way_and_value) -> dict:
    """The labels with another value at a place; ... removes it."""
    value = copy.deepcopy(labels())
    *way, last, new = way_and_value
    place = value
    for key in way:
        place = place[key]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return value


BIRD = (0, 0.5, 0.5, 0.5, 0.5)  # 8..24 of 32, 6..18 of 24
CAT = (1, 4.25 / 32, 0.5, 8.5 / 32, 1.0)
