"""Training and publishing judge the same weights alike, also where objects touch the border.

The detector's outputs are prepared: boxes near the truth that reach out of the image, as networks
give them for birds that the picture cuts off, and some false ones.
"""

import cv2
import numpy as np
import pytest
import torch

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.detection.deployment import Deployment
from perdure.detection.onnx_session import OnnxDetector
from perdure.training.config import TrainConfig
from perdure.training.validation import ValidationSet, validate
from perdure_publisher.evaluating import evaluate

CONFIG = TrainConfig(imgsz=128, batch=4)
CLASSES = ("heron", "kingfisher")
CANDIDATES = 8
SIZES = ((128, 128), (200, 90), (90, 200), (333, 127), (61, 128))  # width, height


def at_border(rng, index: int) -> tuple[float, float, float, float]:
    """A box (x1, y1, x2, y2 as shares) that touches one side of the image."""
    thickness, along, length = rng.uniform(0.15, 0.4), rng.uniform(0, 0.5), rng.uniform(0.2, 0.5)
    return (
        (0.0, along, thickness, along + length),
        (1 - thickness, along, 1.0, along + length),
        (along, 0.0, along + length, thickness),
        (along, 1 - thickness, along + length, 1.0),
    )[index % 4]


def answer(rng, box, width: int, height: int, kind: int) -> torch.Tensor:
    """A raw output (4 + classes, candidates): one near `box` that reaches outside, some false."""
    scale = CONFIG.imgsz / max(width, height)
    pad_x = (CONFIG.imgsz - round(width * scale)) // 2
    pad_y = (CONFIG.imgsz - round(height * scale)) // 2
    x1, y1, x2, y2 = box * np.array([width, height, width, height]) * scale + [
        pad_x,
        pad_y,
        pad_x,
        pad_y,
    ]
    side = min(x2 - x1, y2 - y1)
    reach = rng.uniform(0, 0.4) * side  # past the border; a little wrong on the other sides
    off = rng.uniform(-0.1, 0.1, 4) * side
    x1, y1 = x1 - (reach if box[0] == 0 else off[0]), y1 - (reach if box[1] == 0 else off[1])
    x2, y2 = x2 + (reach if box[2] == 1 else off[2]), y2 + (reach if box[3] == 1 else off[3])
    raw = np.zeros((4 + len(CLASSES), CANDIDATES), dtype=np.float32)
    raw[:2] = rng.uniform(0, CONFIG.imgsz, (2, CANDIDATES))
    raw[2:4] = rng.uniform(4, 40, (2, CANDIDATES))
    raw[4:] = rng.uniform(0, 0.6, (len(CLASSES), CANDIDATES))
    raw[:4, 0] = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
    raw[4 + kind, 0] = rng.uniform(0.4, 1)
    return torch.from_numpy(raw)


class Network(torch.nn.Module):
    """Gives the prepared outputs, whoever asks: the training's validation, or a session's user."""

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(1))
        self.outputs = list(outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        taken, self.outputs = self.outputs[: len(images)], self.outputs[len(images) :]
        return torch.stack(taken)

    def run(self, _names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [self(inputs["images"]).numpy()]


def test_both_figures_are_the_same_where_objects_touch_the_border(tmp_path):
    rng = np.random.default_rng(3)
    images, outputs = [], []
    for index in range(40):
        width, height = SIZES[index % len(SIZES)]
        path = tmp_path / f"{index}.png"
        cv2.imwrite(str(path), np.full((height, width, 3), 90, np.uint8))
        box, kind = np.array(at_border(rng, index)), index % len(CLASSES)
        x1, y1, x2, y2 = box
        row = (kind, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
        images.append(LocalImage(path, path.name, width, height, (row,)))
        outputs.append(answer(rng, box, width, height, kind))
    data = LocalDataset(tmp_path, "v", "s", CLASSES, (), tuple(images))

    trained = validate(
        Network(outputs),
        ValidationSet(data, CONFIG, workers=0),
        CLASSES,
        half=False,
        after_batch=lambda _number: None,
    )
    deployment = Deployment(image_size=CONFIG.imgsz, stride=32, opset=17, classes=CLASSES)
    published = evaluate(OnnxDetector(deployment, Network(outputs)), data.val, lambda _index: None)

    assert 0.4 < published.map50_95 < published.map50
    assert trained.map50 == pytest.approx(published.map50, abs=1e-3)
    assert trained.map50_95 == pytest.approx(published.map50_95, abs=1e-3)
