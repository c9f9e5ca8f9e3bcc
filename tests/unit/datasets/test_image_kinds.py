"""Rows 33 to 38 of the cases, as `check` tells of them; and what the pixels then are."""

import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from perdure.datasets.check import check
from perdure.datasets.imaging import decode
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import encoded, picture, write_files, yolo_files

WHOLE = picture(50, width=64, height=48)
HALF = WHOLE[: len(WHOLE) // 2]
ROTTEN = HALF[:-16] + b"\xff\xd0" * 8 + WHOLE[len(HALF) :]  # restart markers where none belong
BROKEN = {"truncated": HALF, "truncated and ended": HALF + b"\xff\xd9", "rotten": ROTTEN}


def checked(tmp_path, name: str, content: bytes, *, images: int = 3, **rules):
    """A data set in which one image is `content`."""
    files = yolo_files(images)
    del files["images/0.jpg"]
    return check(write_files(tmp_path / "set", files | {name: content}), ImportRules(**rules))


def told(result) -> list[tuple[str, str, str, str]]:
    return [(one.code, one.severity.value, one.file, one.value) for one in result.findings]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_damaged_jpeg_is_refused_and_named(tmp_path, kind):
    result = checked(tmp_path, "images/0.jpg", BROKEN[kind])

    ((code, severity, file, value),) = told(result)
    assert (code, severity, file) == ("image.undecodable", "error", "images/0.jpg")
    assert value  # what the decoder says
    assert (result.ok, result.skipped, result.images) == (False, 1, 2)


@pytest.mark.parametrize("kind", ["truncated and ended", "rotten"])
def test_another_decoder_would_have_made_a_picture_of_it(kind):
    """So the strictness of ours is what counts."""
    assert cv2.imdecode(np.frombuffer(BROKEN[kind], np.uint8), cv2.IMREAD_COLOR) is not None


@pytest.mark.parametrize(
    ("broken", "max_skipped", "severity"),
    [
        (1, 0.01, "warning"),
        (2, 0.01, "error"),
        (2, 0.02, "warning"),
        (1, 0.0, "error"),
        (5, 0.05, "warning"),
        (6, 0.05, "error"),
        (50, 1.0, "warning"),
    ],
)
def test_the_share_of_damaged_images_decides(tmp_path, broken, max_skipped, severity):
    files = yolo_files(100) | {f"images/{number}.jpg": HALF for number in range(broken)}
    result = check(write_files(tmp_path / "set", files), ImportRules(max_skipped=max_skipped))

    assert [(one.code, one.severity) for one in result.findings] == [
        ("image.undecodable", severity)
    ] * broken
    assert (result.skipped, result.images) == (broken, 100 - broken)
    assert result.ok is (severity == "warning")


def test_nuls_behind_the_end_are_accepted(tmp_path):
    result = checked(tmp_path, "images/0.jpg", WHOLE + bytes(4096))
    assert (result.ok, told(result)) == (True, [])


@pytest.mark.parametrize(("kind", "suffix"), [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp")])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_image_is_upright_as_another_tool_turns_it(tmp_path, kind, suffix, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}, "PNG": {}}
    name = f"images/0.{suffix}"
    content = picture(9, width=40, height=24, kind=kind, exif=exif, **options[kind])

    result = checked(tmp_path, name, content)

    assert told(result) == [("image.exif-orientation", "info", name, str(orientation))]
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))).convert("RGB"))
    ours = decode(tmp_path / "set" / name)
    assert ours.shape == upright.shape == ((40, 24, 3) if orientation > 4 else (24, 40, 3))
    # Two versions of libjpeg may round apart.
    assert np.abs(ours.astype(int) - upright).max() <= (2 if kind == "JPEG" else 0)
    stored = next(image for image in result.manifest.images if image.path == name)
    assert (stored.height, stored.width) == upright.shape[:2]
    assert stored.boxes == ((0, 0.5, 0.5, 0.2, 0.4),)  # read in the upright image


GRAY_16 = np.random.default_rng(1).integers(0, 1 << 16, (24, 32), dtype=np.uint16)
COLOURS = np.random.default_rng(2).integers(0, 256, (24, 32, 3), dtype=np.uint8)
ALPHA = np.random.default_rng(3).integers(0, 256, (24, 32, 4), dtype=np.uint8)
INKS = np.tile(np.array([[[51, 0, 255, 85]]], np.uint8), (24, 32, 1))
PALETTE = Image.fromarray(COLOURS).quantize(16)
COLOURS_16 = cv2.imencode(".png", GRAY_16.repeat(3, 1).reshape(24, 32, 3))[1].tobytes()
CONVERTED = {
    "16-bit gray": ("png", encoded(Image.fromarray(GRAY_16), "PNG"), "I;16"),
    "16-bit colours": ("png", COLOURS_16, "RGB;16"),
    "CMYK": ("jpg", encoded(Image.fromarray(INKS, "CMYK"), "JPEG", quality=100), "CMYK"),
    "palette": ("png", encoded(PALETTE, "PNG"), "P"),
    "alpha": ("png", encoded(Image.fromarray(ALPHA, "RGBA"), "PNG"), "RGBA"),
    "gray": ("tif", encoded(Image.fromarray(COLOURS[:, :, 0]), "TIFF"), "L"),
}
EXPECTED = {
    "16-bit gray": (GRAY_16 >> 8)[:, :, None].repeat(3, 2),
    "16-bit colours": (GRAY_16 >> 8)[:, :, None].repeat(3, 2),
    # (255 - 51) * (255 - 85) / 255 = 136; 255 * 170 / 255 = 170; 0
    "CMYK": np.tile(np.array([[[136, 170, 0]]]), (24, 32, 1)),
    "palette": np.asarray(PALETTE.convert("RGB")),
    "alpha": ALPHA[:, :, :3],
    "gray": COLOURS[:, :, :1].repeat(3, 2),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_other_pixels_become_8_bit_rgb_and_that_is_recorded(tmp_path, kind):
    suffix, content, mode = CONVERTED[kind]
    name = f"images/0.{suffix}"
    result = checked(tmp_path, name, content)

    assert told(result) == [("image.converted", "info", name, mode)]
    assert result.ok
    difference = np.abs(decode(tmp_path / "set" / name).astype(int) - EXPECTED[kind])
    assert difference.max() <= (3 if kind == "CMYK" else 0)  # JPEG's rounding


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size, and has a few bytes of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">L", len(data)) + kind + data + struct.pack(">L", crc)

    head = struct.pack(">2L5B", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + pixels + chunk(b"IEND", b"")


def jpeg_header(width: int, height: int) -> bytes:
    at = WHOLE.index(b"\xff\xc0") + 5  # height and width in the frame header, ITU-T T.81 B.2.2
    return WHOLE[:at] + struct.pack(">2H", height, width) + WHOLE[at + 4 :]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("images/0.png", png_header(60_000, 60_000)),
        ("images/0.jpg", jpeg_header(60_000, 60_000)),
        ("images/0.png", png_header(8001, 10_000)),
    ],
)
def test_an_image_that_claims_to_be_huge_is_refused_before_it_is_decoded(tmp_path, name, content):
    result = checked(tmp_path, name, content, max_skipped=1.0)

    ((code, severity, file, value),) = told(result)
    assert (code, severity, file) == ("image.too-large", "error", name)
    assert "more than 80000000" in value
    assert not result.ok


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("images/0.png", "JPEG"),
        ("images/0.jpg", "PNG"),
        ("images/0.jpeg", "WEBP"),
        ("images/0.bmp", "TIFF"),
        ("images/0.webp", "BMP"),
    ],
)
def test_a_name_that_says_another_format_is_a_warning(tmp_path, name, kind):
    result = checked(tmp_path, name, picture(9, kind=kind))

    assert told(result) == [("image.extension-mismatch", "warning", name, kind)]
    assert result.ok


@pytest.mark.parametrize("name", ["images/0.JPG", "images/0.JpEg"])
def test_the_case_of_an_ending_does_not_matter(tmp_path, name):
    result = checked(tmp_path, name, WHOLE)
    assert (result.ok, told(result)) == (True, [])
