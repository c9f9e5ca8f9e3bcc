"""Evaluation and preview of a detector whose answers are known."""

import io
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from perdure.datasets.cache import LocalImage
from perdure.detection.deployment import Deployment
from perdure.detection.pipeline import Detections
from perdure_publisher.evaluating import evaluate, labels_px
from perdure_publisher.preview import draw_preview, worth_showing

BIRDS = Deployment(image_size=64, stride=32, opset=17, classes=("heron", "kingfisher"))


@dataclass
class ScriptedDetector:
    """Answers by the brightness of the image's first pixel."""

    answers: dict[int, list[tuple[float, int, list[float]]]]
    deployment: Deployment = BIRDS

    def detect(self, image, *, conf, every_class=False) -> Detections:
        rows = [row for row in self.answers[int(image[0, 0, 0])] if row[0] > conf]
        return Detections(
            boxes=np.array([row[2] for row in rows], dtype=np.float32).reshape(-1, 4),
            scores=np.array([row[0] for row in rows], dtype=np.float32),
            classes=np.array([row[1] for row in rows], dtype=np.int64),
        )


def picture(folder: Path, brightness: int, boxes, size=(50, 100)) -> LocalImage:
    path = folder / f"{brightness}.png"
    cv2.imwrite(str(path), np.full((*size, 3), brightness, dtype=np.uint8))
    return LocalImage(path, f"val/{path.name}", size[1], size[0], tuple(boxes))


# In an image of 100 x 50 px: x 40..60, y 10..40.
CENTRED = (1, 0.5, 0.5, 0.2, 0.6)


def test_labels_become_pixels(tmp_path):
    boxes, classes = labels_px(picture(tmp_path, 1, [CENTRED]), width=100, height=50)

    assert boxes[0].tolist() == pytest.approx([40, 10, 60, 40])
    assert classes.tolist() == [1]


def test_an_image_without_labels_has_arrays_of_the_right_shape(tmp_path):
    boxes, classes = labels_px(picture(tmp_path, 1, []), width=100, height=50)

    assert boxes.shape == (0, 4)
    assert classes.shape == (0,)


def test_the_score_is_that_of_the_answers(tmp_path):
    images = [picture(tmp_path, 1, [CENTRED]), picture(tmp_path, 2, []), picture(tmp_path, 3, [])]
    exact = (0.9, 1, [40, 10, 60, 40])
    alarm = (0.95, 1, [0, 0, 10, 10])
    told: list[int] = []

    perfect = evaluate(ScriptedDetector({1: [exact], 2: [], 3: []}), images, told.append)
    nervous = evaluate(ScriptedDetector({1: [exact], 2: [alarm], 3: []}), images, told.append)

    assert (perfect.map50, perfect.map50_95) == pytest.approx((0.995, 0.995))
    assert nervous.map50 == pytest.approx(0.995 / 2)  # 1 right of 2 when the label is found
    assert [one.labels for one in perfect.by_class] == [0, 1]
    assert perfect.by_class[0].ap50 is None
    assert told == [0, 1, 2] * 2


def test_weak_detections_count_in_evaluation(tmp_path):
    images = [picture(tmp_path, 1, [CENTRED])]

    result = evaluate(
        ScriptedDetector({1: [(0.002, 1, [40, 10, 60, 40])]}), images, lambda _index: None
    )

    assert result.map50 == pytest.approx(0.995)


def test_the_preview_shows_a_thick_box_where_the_detection_is(tmp_path):
    image = picture(tmp_path, 10, [], size=(180, 360))
    detector = ScriptedDetector({10: [(0.9, 1, [90, 45, 270, 135])]})

    drawn = np.asarray(Image.open(io.BytesIO(draw_preview(detector, [image]))).convert("RGB"))

    assert drawn.shape == (180 + 8 + 30, 360 + 16, 3)  # 30 px for the legend
    tile = drawn[8:188, 8:-8].astype(int)
    sky_blue = np.abs(tile - (86, 180, 233)).max(axis=2) < 60
    assert sky_blue[100, 88:94].any()  # the left edge, 90 px in
    assert sky_blue[133:137, 200].any()  # the lower edge
    assert not sky_blue[60:130, 100:260].any()  # nothing inside


def test_the_preview_is_a_grid_of_three_columns(tmp_path):
    images = [picture(tmp_path, n, [CENTRED]) for n in range(1, 7)]
    detector = ScriptedDetector({n: [] for n in range(1, 7)})

    drawn = Image.open(io.BytesIO(draw_preview(detector, images)))

    assert drawn.size == (3 * 360 + 4 * 8, 2 * 180 + 2 * 8 + 30)


def test_the_preview_explains_itself(tmp_path, monkeypatch):
    written: list[str] = []
    real = ImageDraw.ImageDraw.text

    def listening(self, xy, text, *args, **options):
        written.append(text)
        return real(self, xy, text, *args, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", listening)
    detector = ScriptedDetector({1: [(0.9, 1, [40, 10, 60, 40])], 2: [(0.2, 1, [40, 10, 60, 40])]})

    draw_preview(detector, [picture(tmp_path, n, [CENTRED]) for n in (1, 2)])

    assert written == [
        "kingfisher 0.90",
        "white: label; colour: prediction with its confidence",
        "no detections above 0.25",
    ]


def test_the_images_shown_are_of_all_classes_and_labelled():
    kinds = [1, 1, 1, 1, 1, 1, 1, 1, 1, None, 0, 0]
    split = [
        LocalImage(
            Path(str(n)), str(n), 1, 1, () if kind is None else ((kind, 0.5, 0.5, 0.1, 0.1),)
        )
        for n, kind in enumerate(kinds)
    ]

    shown = worth_showing(split)

    assert len(shown) == 6
    assert {kinds[int(image.sample_id)] for image in shown} == {0, 1}


def test_a_split_without_labels_is_shown_as_it_is():
    split = [LocalImage(Path(str(n)), str(n), 1, 1, ()) for n in range(2)]

    assert worth_showing(split) == split


def test_a_label_at_the_image_border_and_an_odd_class_name_can_be_drawn(tmp_path):
    detector = ScriptedDetector(
        {5: [(0.9, 0, [0, 0, 3, 3])]},
        Deployment(image_size=64, stride=32, opset=17, classes=("Fischadler-Männchen 鷹 " * 5,)),
    )

    assert draw_preview(detector, [picture(tmp_path, 5, [], size=(1, 300))])[:2] == b"\xff\xd8"
