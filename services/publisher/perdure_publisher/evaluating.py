"""How good is the ONNX file on the validation split? Measured by code the trainer does not use."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.datasets.cache import LocalImage
from perdure.datasets.imaging import decode
from perdure.detection.metrics import Matched, Score, match, score
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import EVALUATION_CONFIDENCE


def evaluate(
    detector: OnnxDetector, images: Sequence[LocalImage], on_image: Callable[[int], None]
) -> Score:
    """Score `detector` on labelled `images`; `on_image` hears of each before, with its number."""
    matched = []
    for index, image in enumerate(images):
        on_image(index)
        pixels = decode(image.path)
        found = detector.detect(pixels, conf=EVALUATION_CONFIDENCE, every_class=True)
        boxes, classes = labels_px(image, width=pixels.shape[1], height=pixels.shape[0])
        matched.append(
            Matched(
                correct=match(found.boxes, found.classes, boxes, classes),
                scores=found.scores,
                classes=found.classes,
                label_classes=classes,
            )
        )
    return score(matched, len(detector.deployment.classes))


def labels_px(
    image: LocalImage, *, width: int, height: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return an image's labels: boxes (m, 4: x1, y1, x2, y2 in pixels) and classes (m,)."""
    rows = np.array(image.boxes, dtype=np.float64).reshape(-1, 5)
    centre, half = rows[:, 1:3], rows[:, 3:5] / 2
    corners = np.concatenate((centre - half, centre + half), axis=1)
    return corners * np.array([width, height] * 2), rows[:, 0].astype(np.int64)
