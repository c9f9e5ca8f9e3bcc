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
from perdure.detection.pipeline import preprocess
from perdure.training.config import TrainConfig
from perdure.training.validation import ValidationSet

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


@pytest.mark.parametrize("name", FILES)
def test_the_same_file_gives_the_same_tensor(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    info = probe(path)
    image = LocalImage(path, name, info.width, info.height, ())
    data = LocalDataset(tmp_path, "v", "s", ("bird",), (), (image,))
    config = TrainConfig(imgsz=SIZE_PX, batch=1)

    pixels, _truths = next(iter(ValidationSet(data, config, workers=0)))
    trainer = pixels.to(torch.float32) / 255  # as validate() does
    # The publisher's checks, serving and the SDK's session all call this.
    served = preprocess(decode(path), SIZE_PX).tensor

    assert trainer.shape == (1, 3, SIZE_PX, SIZE_PX)
    assert np.array_equal(trainer[0].numpy(), served)
    assert served.std() > 0.01  # it is a picture
