"""Small data sets in YOLO form, made of drawn images."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

ROW = "0 0.5 0.5 0.2 0.4"


def picture(
    number: int, *, width: int = 32, height: int = 24, kind: str = "JPEG", **options
) -> bytes:
    """An image of noise: no two numbers give the same bytes."""
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), kind, **options)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    """An image in a file format."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by their names relative to `folder`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def yolo_files(images: int = 4) -> dict[str, str | bytes]:
    """A valid data set of one class without splits; images/0.jpg and so on."""
    files: dict[str, str | bytes] = {"data.yaml": "train: images\nnames: [bird]\n"}
    for number in range(images):
        files[f"images/{number}.jpg"] = picture(number)
        files[f"labels/{number}.txt"] = ROW + "\n"
    return files


def write_zip(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A zip of files by name."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path
