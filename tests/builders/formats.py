"""One small data set in every format: three images of 32 x 24 pixels, two classes, known boxes."""

import json
from collections.abc import Mapping
from typing import Final

from tests.builders.datasets import picture

Files = dict[str, str | bytes]

CLASSES: Final = ("bird", "cat")
# Class, left, top, right, bottom in pixels, by image.
CORNERS: Final[Mapping[str, tuple[tuple[str, float, float, float, float], ...]]] = {
    "0": (("bird", 8, 6, 16, 18),),
    "1": (("cat", 0, 0, 32, 24), ("bird", 4, 12, 12, 18)),
    "2": (("bird", 16, 6, 32, 12),),
}


def shares(name: str) -> tuple[tuple[int, float, float, float, float], ...]:
    """The boxes of an image as shares of it, in the manifest's order; all are exact in binary."""
    return tuple(
        sorted(
            (CLASSES.index(c), (x1 + x2) / 64, (y1 + y2) / 48, (x2 - x1) / 32, (y2 - y1) / 24)
            for c, x1, y1, x2, y2 in CORNERS[name]
        )
    )


def in_format(name: str) -> Files:
    """The files of the data set in a format; images are images/0.jpg and so on."""
    return {f"images/{image}.jpg": picture(int(image)) for image in CORNERS} | _LABELS[name]()


def _yolo() -> Files:
    files: Files = {"classes.txt": "bird\ncat\n"}
    for image in CORNERS:
        rows = (" ".join(map(repr, row)) for row in shares(image))
        files[f"labels/{image}.txt"] = "\n".join(rows)
    return files


def _coco() -> Files:
    value = {
        "images": [
            {"id": int(name), "file_name": f"{name}.jpg", "width": 32, "height": 24}
            for name in CORNERS
        ],
        "annotations": [
            {
                "id": int(name) * 10 + number,
                "image_id": int(name),
                "category_id": CLASSES.index(c),
                "bbox": [x1, y1, x2 - x1, y2 - y1],
            }
            for name, corners in CORNERS.items()
            for number, (c, x1, y1, x2, y2) in enumerate(corners)
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(CLASSES)],
    }
    return {"annotations.json": json.dumps(value)}


def _voc() -> Files:
    files: Files = {}
    for name, corners in CORNERS.items():
        objects = "".join(
            f"<object><name>{c}</name><bndbox><xmin>{x1}</xmin><ymin>{y1}</ymin>"
            f"<xmax>{x2}</xmax><ymax>{y2}</ymax></bndbox></object>"
            for c, x1, y1, x2, y2 in corners
        )
        size = "<size><width>32</width><height>24</height><depth>3</depth></size>"
        text = f"<annotation><filename>{name}.jpg</filename>{size}{objects}</annotation>"
        files[f"Annotations/{name}.xml"] = text
    return files


def _csv() -> Files:
    rows = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for name, corners in CORNERS.items():
        rows += [f"{name}.jpg,32,24,{c},{x1},{y1},{x2},{y2}" for c, x1, y1, x2, y2 in corners]
    return {"labels.csv": "\n".join(rows)}


def _labelme() -> Files:
    return {
        f"images/{name}.json": json.dumps(
            {
                "version": "5.0",
                "imagePath": f"{name}.jpg",
                "imageWidth": 32,
                "imageHeight": 24,
                "shapes": [
                    {"label": c, "shape_type": "rectangle", "points": [[x1, y1], [x2, y2]]}
                    for c, x1, y1, x2, y2 in corners
                ],
            }
        )
        for name, corners in CORNERS.items()
    }


def _cvat() -> Files:
    images = "".join(
        f'<image id="{name}" name="{name}.jpg" width="32" height="24">'
        + "".join(
            f'<box label="{c}" xtl="{x1}" ytl="{y1}" xbr="{x2}" ybr="{y2}"/>'
            for c, x1, y1, x2, y2 in corners
        )
        + "</image>"
        for name, corners in CORNERS.items()
    )
    labels = "".join(f"<label><name>{name}</name></label>" for name in CLASSES)
    meta = f"<meta><task><labels>{labels}</labels></task></meta>"
    return {"annotations.xml": f"<annotations>{meta}{images}</annotations>"}


def _label_studio() -> Files:
    tasks = [
        {
            "id": int(name),
            "data": {"image": f"/data/upload/1/{name}.jpg"},
            "annotations": [
                {
                    "result": [
                        {
                            "type": "rectanglelabels",
                            "original_width": 32,
                            "original_height": 24,
                            "value": {
                                "x": x1 / 0.32,
                                "y": y1 / 0.24,
                                "width": (x2 - x1) / 0.32,
                                "height": (y2 - y1) / 0.24,
                                "rotation": 0,
                                "rectanglelabels": [c],
                            },
                        }
                        for c, x1, y1, x2, y2 in corners
                    ]
                }
            ],
        }
        for name, corners in CORNERS.items()
    ]
    return {"export.json": json.dumps(tasks)}


_LABELS = {
    "yolo": _yolo,
    "coco": _coco,
    "voc": _voc,
    "csv": _csv,
    "labelme": _labelme,
    "cvat": _cvat,
    "label-studio": _label_studio,
}
