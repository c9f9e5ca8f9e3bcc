"""The one image decoder: import, training, evaluation and inference see the same pixels.

What the bytes are decides, not the file's name. A JPEG is decoded strictly: where libjpeg would
fill in for missing or damaged data it is refused. EXIF orientation is applied: pixels are upright.
Everything becomes 8-bit RGB:

    gray                 the value, three times
    16-bit               the high byte (a 12-bit image in 16 bits becomes dark: rescale it first)
    palette, 1-bit       the colours they stand for
    alpha                dropped; the colours stay as they are stored
    CMYK                 (255 - C) * (255 - K) / 255, likewise M and Y; no colour profile
    YCbCr, Lab           Pillow's conversion
    32-bit, float        refused: the range of their values is not known

Of an animation or a file of many pages the first picture is used.
"""

import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from perdure.errors import InvalidDataset

# 240 MB of RGB for each decoder at work, and below Pillow's own alarm (89 Mpx). A 60-megapixel
# camera fits; larger scans are to be cut into tiles, as training would shrink them too far.
MAX_PIXELS: Final = 80_000_000
# The largest file that fits MAX_PIXELS: 16-bit RGBA, uncompressed.
MAX_FILE_BYTES: Final = 640 << 20

# Pillow's own, bound before Ultralytics can put one in its place that tries to install packages
# when an image cannot be read (training/isolation.py sees to the order).
_open_image: Final = Image.open
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)
_SUFFIXES: Final = {
    "JPEG": frozenset({".jpg", ".jpeg"}),
    "PNG": frozenset({".png"}),
    "BMP": frozenset({".bmp"}),
    "TIFF": frozenset({".tif", ".tiff"}),
    "WEBP": frozenset({".webp"}),
}
# What Pillow raises for damaged files: its readers check little themselves.
_DECODER_ERRORS: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
# MAX_PIXELS is judged here, with a finding; Pillow's alarm would only be noise.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

_SIXTEEN_BIT: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_UNKNOWN_RANGE: Final = frozenset({"I", "F"})
_SWAPS_AXES: Final = frozenset({5, 6, 7, 8})

_PNG_BIT_DEPTH: Final = 24  # PNG, third edition, 11.2.1: after signature, length, type and sizes
_TIFF_BITS: Final = 258  # TIFF 6.0, BitsPerSample

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageInfo:
    """An image's header. Width and height, in pixels, are those of the upright image."""

    width: int
    height: int
    format: str  # "JPEG", "PNG", "BMP", "TIFF" or "WEBP", by content
    mode: str  # Pillow's mode of the stored pixels; with ";16" when a channel has 16 bits
    orientation: int  # EXIF orientation, 1..8; 1 is upright

    def matches_suffix(self, suffix: str) -> bool:
        """Whether a file name's ending says the same format as the content."""
        return suffix.lower() in _SUFFIXES[self.format]


def probe(path: Path) -> ImageInfo:
    """Read an image's header. Raises InvalidDataset, as decode does, and OSError."""
    return probe_bytes(read_image(path), path.name)


def decode(path: Path) -> Pixels:
    """The image at `path`: uint8, height x width x 3, RGB, upright.

    Raises InvalidDataset with `details["code"]` image.undecodable or image.too-large, and OSError
    when the file cannot be read.
    """
    return decode_bytes(read_image(path), path.name)


def read_image(path: Path) -> bytes:
    """The bytes of an image file. Raises InvalidDataset when it is too large to be one."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise _too_large(path.name, f"the file has more than {MAX_FILE_BYTES} bytes")
    return path.read_bytes()


def probe_bytes(data: bytes, name: str) -> ImageInfo:
    """Read the header of an image in memory; `name` is used in errors. Raises InvalidDataset."""
    image, info = _open(data, name)
    image.close()
    return info


def decode_bytes(data: bytes, name: str) -> Pixels:
    """Decode an image in memory, as decode does; `name` is used in errors."""
    return decode_whole(data, name)[1]


def decode_whole(data: bytes, name: str) -> tuple[ImageInfo, Pixels]:
    """Header and pixels of an image in memory; as decode_bytes."""
    image, info = _open(data, name)
    try:
        pixels = _decode_jpeg(data, image) if info.format == "JPEG" else _to_rgb(image)
    except _DECODER_ERRORS as error:
        raise _undecodable(name, str(error)) from error
    finally:
        image.close()
    if info.format != "TIFF":  # Pillow turns TIFFs itself
        pixels = _upright(pixels, info.orientation)
    if pixels.shape != (info.height, info.width, 3):
        raise _undecodable(name, f"it decodes to {pixels.shape}, against its header")
    return info, np.ascontiguousarray(pixels)


def _open(data: bytes, name: str) -> tuple[Image.Image, ImageInfo]:
    """The image, its pixels not yet decoded, and its header; refused when it claims to be huge."""
    image_format = _sniff(data)
    if image_format is None:
        raise _undecodable(name, "its content is no JPEG, PNG, BMP, TIFF or WebP")
    try:
        image = _open_image(io.BytesIO(data), formats=(image_format,))
        orientation, mode = _orientation(image, image_format), _mode(image, data)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(name, f"it claims far more than {MAX_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise _undecodable(name, f"its {image_format} header is damaged") from error
    except _DECODER_ERRORS as error:
        raise _undecodable(name, str(error)) from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(name, f"it claims {width} x {height} pixels, more than {MAX_PIXELS}")
    if image_format != "TIFF" and orientation in _SWAPS_AXES:
        width, height = height, width
    return image, ImageInfo(width, height, image_format, mode, orientation)


def _mode(image: Image.Image, data: bytes) -> str:
    """Pillow's mode, with the 16 bits that it drops by itself from colours."""
    bits: object = 8
    if image.format == "PNG":
        bits = data[_PNG_BIT_DEPTH]
    elif image.format == "TIFF":
        bits = image.tag_v2.get(_TIFF_BITS, (8,))[0]  # type: ignore[attr-defined]
    return f"{image.mode};16" if bits == 16 and not image.mode.startswith("I") else image.mode


def _sniff(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for mark, name in _SIGNATURES if data.startswith(mark)), None)


def _orientation(image: Image.Image, image_format: str) -> int:
    """The EXIF orientation; 1 where there is none, or none that can be read.

    Pillow's own getexif() falls back to XMP, which cameras do not write and other decoders ignore.
    """
    tag = ExifTags.Base.Orientation
    if image_format == "TIFF":
        value = image.tag_v2.get(tag)  # type: ignore[attr-defined]
    else:
        exif = Image.Exif()
        try:
            exif.load(image.info.get("exif", b""))
            value = exif.get(tag)
        except _DECODER_ERRORS:
            return 1  # a damaged EXIF block says nothing; the pixels do not depend on it
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _decode_jpeg(data: bytes, image: Image.Image) -> Pixels:
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    if (width, height) != image.size:  # the size that was judged must be the one that is decoded
        raise ValueError("its header names two sizes")
    if image.mode == "CMYK":
        # libjpeg judges whether the file is whole; Pillow knows how Adobe inverts the values.
        simplejpeg.decode_jpeg(data, colorspace="CMYK", strict=True)
        return _to_rgb(image)
    pixels: Pixels = simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True)
    return pixels


def _to_rgb(image: Image.Image) -> Pixels:
    image.load()
    if image.mode in _UNKNOWN_RANGE:
        raise ValueError(f"its pixels have mode {image.mode}, whose range is not known")
    if image.mode in _SIXTEEN_BIT:
        high = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(high[:, :, None], 3, axis=2)
    if image.mode in ("LA", "PA"):
        image = image.convert("RGBA")
    if image.mode == "CMYK":
        cyan_to_black = 255 - np.asarray(image).astype(np.uint16)
        inks, black = cyan_to_black[:, :, :3], cyan_to_black[:, :, 3:]
        return ((inks * black + 127) // 255).astype(np.uint8)
    return np.asarray(image.convert("RGB"))


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undo an EXIF orientation (EXIF 2.32, 4.6.4 A, tag 274)."""
    match orientation:
        case 2:
            return pixels[:, ::-1]
        case 3:
            return pixels[::-1, ::-1]
        case 4:
            return pixels[::-1]
        case 5:
            return pixels.transpose(1, 0, 2)
        case 6:
            return np.rot90(pixels, -1)
        case 7:
            return pixels[::-1, ::-1].transpose(1, 0, 2)
        case 8:
            return np.rot90(pixels)
    return pixels


def _undecodable(name: str, fault: str) -> InvalidDataset:
    return InvalidDataset(
        f"{name} cannot be decoded: {fault}; replace or remove it",
        code="image.undecodable",
        fault=fault,
    )


def _too_large(name: str, fault: str) -> InvalidDataset:
    return InvalidDataset(
        f"{name} is too large: {fault}; cut it into tiles", code="image.too-large", fault=fault
    )
