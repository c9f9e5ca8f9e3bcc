"""The program in docs/using-a-model.md, in its own words and in a process without Perdure."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from perdure.datasets.imaging import decode
from perdure.detection.boxes import box_iou
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import preprocess
from perdure.training.model import new_model
from perdure_embedded.birds import CLASSES, draw_bird_dataset
from perdure_publisher.exporting import export_onnx

DOCUMENT = Path(__file__).parents[2] / "docs/using-a-model.md"
SIZE_PX = 96
CONFIDENCE = 0.5
LIVELINESS = 10
CROWDED = 1  # the photo in which birds of both classes are seen in one place
PROGRAM_TIMEOUT_S = 60


@dataclass(frozen=True)
class Pulled:
    """A model and photos of birds, wide, high and small, as a user has them."""

    folder: Path
    photos: tuple[Path, ...]

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"


@pytest.fixture(scope="module")
def pulled(tmp_path_factory) -> Pulled:
    """The detector is untrained, and lively: it sees birds of every class everywhere."""
    folder = tmp_path_factory.mktemp("pulled")
    drawn = sorted(draw_bird_dataset(folder / "birds", images=10, size_px=160).rglob("*.jpg"))[:3]
    photos = []
    for path, (width, height) in zip(drawn, ((160, 101), (77, 160), (50, 50)), strict=True):
        photos.append(folder / path.name)
        Image.open(path).crop((0, 0, width, height)).save(photos[-1], quality=95)
    torch.manual_seed(1)
    model = new_model("yolo11n.yaml", CLASSES).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean over what it has seen; else signals die away
    seen = [preprocess(decode(path), SIZE_PX).tensor for path in photos]
    with torch.no_grad():
        for _ in range(2):
            model(torch.from_numpy(np.stack(seen)))
        for branch in model.model[-1].cv3:
            branch[-1].weight *= LIVELINESS
            branch[-1].bias.zero_()
    export_onnx(model, image_size=SIZE_PX, classes=CLASSES, path=folder / "model.onnx")
    return Pulled(folder, tuple(photos))


def program() -> str:
    return DOCUMENT.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]


def run_program(pulled: Pulled, *arguments: str) -> list[tuple[str, list[float]]]:
    """Run it isolated from Perdure's folders; gives class and numbers of each line."""
    script = pulled.folder / "detect.py"
    script.write_text(program())
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script), str(pulled.model), *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        cwd=pulled.folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(name, [float(value) for value in values]) for name, *values in rows]


@pytest.mark.parametrize("photo", range(3), ids=["wide", "high", "small"])
def test_the_program_prints_what_perdure_detects(pulled, photo):
    path = pulled.photos[photo]
    expected = OnnxDetector.open(pulled.model, threads=1).detect(decode(path), conf=CONFIDENCE)
    assert 5 < len(expected) < 300
    same_place = box_iou(expected.boxes, expected.boxes) > 0.7
    other_class = expected.classes[:, None] != expected.classes[None, :]
    assert photo != CROWDED or (same_place & other_class).any()  # suppression is class by class

    printed = run_program(pulled, str(path), str(CONFIDENCE))

    assert [name for name, _ in printed] == [CLASSES[kind] for kind in expected.classes]
    numbers = np.array([values for _, values in printed])
    assert numbers[:, 0] == pytest.approx(expected.scores, abs=1e-3)
    assert numbers[:, 1:] == pytest.approx(expected.boxes, abs=0.05)


def test_without_a_confidence_it_takes_the_one_that_the_file_suggests(pulled):
    path = pulled.photos[0]
    detector = OnnxDetector.open(pulled.model, threads=1)

    assert len(run_program(pulled, str(path))) == len(detector.detect(decode(path)))


def test_the_program_needs_nothing_of_perdure_and_is_short():
    assert "import perdure" not in program()
    assert "from perdure" not in program()
    assert len(program().splitlines()) <= 55
