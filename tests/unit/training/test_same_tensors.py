"""Trainer, publisher and inference give the model the same numbers for the same file."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.datasets.imaging import decode, probe
from perdure.detection.deployment import Deployment
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import preprocess
from perdure.training.config import TrainConfig
from perdure.training.validation import ValidationSet
from perdure_publisher.evaluating import evaluate
from perdure_publisher.preview import draw_preview
from perdure_publisher.verifying import verify

SIZE_PX = 64


def noise(width: int, height: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, (height, width, channels), dtype=np.uint8)


def saved(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(Image.fromarray(noise(90, 50)), "JPEG", exif=exif, quality=95)


def png_16_bit_rgb(width: int, height: int) -> bytes:
    """Pillow writes no 16-bit colours: by hand, after the PNG specification."""
    samples = np.random.default_rng(3).integers(0, 1 << 16, (height, width, 3), dtype=np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


FILES = {
    "exact.jpg": saved(Image.fromarray(noise(64, 64)), "JPEG"),
    "wide.jpg": saved(Image.fromarray(noise(131, 47)), "JPEG"),
    "tall.png": saved(Image.fromarray(noise(33, 197)), "PNG"),
    "small.png": saved(Image.fromarray(noise(13, 7)), "PNG"),
    "thin.png": saved(Image.fromarray(noise(500, 1)), "PNG"),
    "sixteen.png": png_16_bit_rgb(71, 40),
    "gray16.png": saved(
        Image.fromarray(noise(80, 40, 2).view(np.uint16)[:, :, 0].astype(np.uint16)), "PNG"
    ),
    "cmyk.jpg": saved(Image.fromarray(noise(70, 50)).convert("CMYK"), "JPEG"),
    "palette.png": saved(Image.fromarray(noise(70, 50)).quantize(32), "PNG"),
    "alpha.png": saved(Image.fromarray(noise(70, 50, 4), "RGBA"), "PNG"),
    "gray.tif": saved(Image.fromarray(noise(70, 50)).convert("L"), "TIFF"),
    "picture.webp": saved(Image.fromarray(noise(70, 50)), "WEBP", lossless=True),
    **{f"turned{orientation}.jpg": turned(orientation) for orientation in range(1, 9)},
}


def local_image(folder, name: str) -> LocalImage:
    path = folder / name
    path.write_bytes(FILES[name])
    info = probe(path)
    return LocalImage(path, name, info.width, info.height, ())


def trained_on(folder, image: LocalImage) -> np.ndarray:
    data = LocalDataset(folder, "v", "s", ("bird",), (), (image,))
    pixels, _truths = next(
        iter(ValidationSet(data, TrainConfig(imgsz=SIZE_PX, batch=1), workers=0))
    )
    return (pixels.to(torch.float32) / 255).numpy()  # as validate() does


@pytest.mark.parametrize("name", FILES)
def test_the_same_file_gives_the_same_tensor(tmp_path, name):
    image = local_image(tmp_path, name)

    trainer = trained_on(tmp_path, image)
    # The publisher's checks, serving and the SDK's session all call this.
    served = preprocess(decode(image.path), SIZE_PX).tensor

    assert trainer.shape == (1, 3, SIZE_PX, SIZE_PX)
    assert np.array_equal(trainer[0], served)
    assert served.std() > 0.01  # it is a picture


class Network(torch.nn.Module):
    """Stands for the model in PyTorch and in ONNX Runtime: finds nothing, keeps its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[np.ndarray] = []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.given.append(batch.numpy().copy())
        return torch.zeros(1, 5, 8)

    def run(self, _names, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.given.append(feed["images"].copy())
        return [np.zeros((1, 5, 8), np.float32)]


@pytest.mark.parametrize("name", FILES)
def test_all_of_publishing_gives_the_model_what_training_gave_it(tmp_path, monkeypatch, name):
    # It reads the output before the last layer; ours has no layers.
    monkeypatch.setattr("perdure_publisher.verifying.raw_output", Network.__call__)
    image = local_image(tmp_path, name)
    network = Network()
    deployment = Deployment(image_size=SIZE_PX, stride=32, opset=17, classes=("bird",))
    detector = OnnxDetector(deployment=deployment, _session=network)

    verify(network, detector, [image], lambda _: None)  # through both of the runtimes
    evaluate(detector, [image], lambda _: None)
    draw_preview(detector, [image])
    detector.detect(decode(image.path))  # as a program that uses the model does

    assert len(network.given) == 5
    expected = trained_on(tmp_path, image)
    assert all(given.dtype == np.float32 for given in network.given)
    assert all(np.array_equal(given, expected) for given in network.given)
