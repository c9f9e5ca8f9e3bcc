import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from perdure.datasets.imaging import MAX_PIXELS, ImageInfo, decode, decode_bytes, probe, probe_bytes
from perdure.errors import InvalidDataset
from tests.builders.datasets import encoded, picture

# 2 high, 3 wide, every pixel its own colour.
UPRIGHT = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10


def refused(data: bytes) -> tuple[str, str]:
    with pytest.raises(InvalidDataset) as caught:
        decode_bytes(data, "a.jpg")
    assert "a.jpg" in caught.value.message
    return caught.value.details["code"], caught.value.details["fault"]


def png(width: int, height: int, body: bytes = b"") -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">L", len(data)) + kind + data + struct.pack(">L", zlib.crc32(kind + data))
        )

    header = struct.pack(">LLBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_give_the_very_pixels(kind):
    data = encoded(Image.fromarray(UPRIGHT), kind)

    pixels = decode_bytes(data, "a")

    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    np.testing.assert_array_equal(pixels, UPRIGHT)
    assert probe_bytes(data, "a") == ImageInfo(3, 2, kind, "RGB", 1)


def test_lossless_webp_gives_the_very_pixels():
    data = encoded(Image.fromarray(UPRIGHT), "WEBP", lossless=True)
    np.testing.assert_array_equal(decode_bytes(data, "a"), UPRIGHT)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_jpeg_is_rgb_as_another_decoder_reads_it(options):
    data = picture(1, width=64, height=48, **options)

    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    difference = np.abs(decode_bytes(data, "a").astype(int) - expected)
    assert difference.max() <= 2


def test_a_file_is_decoded_and_probed_alike(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(picture(1, width=40, height=30))

    assert decode(path).shape == (30, 40, 3)
    assert probe(path) == ImageInfo(40, 30, "JPEG", "RGB", 1)


def test_a_cut_jpeg_is_refused_also_with_an_end_marker_appended():
    data = picture(1, width=64, height=64)
    half = data[: len(data) // 2]

    assert refused(half)[0] == "image.undecodable"
    assert refused(half + b"\xff\xd9")[0] == "image.undecodable"
    assert refused(data[:-2])[0] == "image.undecodable"
    assert refused(data[:20])[0] == "image.undecodable"


def test_bit_rot_that_breaks_the_stream_is_refused():
    data = bytearray(picture(1, width=64, height=64))
    middle = len(data) // 2
    data[middle : middle + 16] = b"\xff\xd0" * 8  # restart markers where none belong

    assert refused(bytes(data))[0] == "image.undecodable"


def test_nuls_after_the_end_of_a_jpeg_do_no_harm():
    data = picture(1)
    np.testing.assert_array_equal(decode_bytes(data + bytes(1000), "a"), decode_bytes(data, "a"))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_other_cut_files_are_refused(kind):
    data = picture(1, width=64, height=64, kind=kind)
    assert refused(data[: len(data) // 2])[0] == "image.undecodable"


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a" + bytes(50), b"<html>", b"\xff\xd8\xff", b"BM", b"II*\0", b"%PDF-1.4"]
)
def test_what_is_no_image_is_refused(data):
    assert refused(data)[0] == "image.undecodable"


def test_a_size_above_the_limit_is_refused_before_decoding():
    assert refused(png(60_000, 60_000))[0] == "image.too-large"
    # Just above the limit; were its pixels read, the empty body would be the fault.
    assert refused(png(MAX_PIXELS // 8000 + 1, 8000))[0] == "image.too-large"
    assert refused(png(MAX_PIXELS // 8000, 8000))[0] == "image.undecodable"


# What a camera stores for UPRIGHT under each orientation: EXIF 2.32, tag 274, gives where row 0 and
# column 0 of the stored picture lie.
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],  # top, right
    3: UPRIGHT[::-1, ::-1],  # bottom, right
    4: UPRIGHT[::-1],  # bottom, left
    5: UPRIGHT.transpose(1, 0, 2),  # left, top
    6: UPRIGHT[:, ::-1].transpose(1, 0, 2),  # right, top
    7: UPRIGHT[::-1, ::-1].transpose(1, 0, 2),  # right, bottom
    8: UPRIGHT[::-1].transpose(1, 0, 2),  # left, bottom
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_pixels_are_upright_whatever_the_orientation(kind, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    data = encoded(Image.fromarray(np.ascontiguousarray(STORED[orientation])), kind, exif=exif)

    np.testing.assert_array_equal(decode_bytes(data, "a"), UPRIGHT)
    info = probe_bytes(data, "a")
    assert (info.width, info.height, info.orientation) == (3, 2, orientation)


def test_a_jpeg_is_turned_as_another_decoder_turns_it():
    from PIL import ImageOps

    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[274] = orientation
        data = picture(1, width=48, height=32, exif=exif)
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))).astype(int)
        pixels = decode_bytes(data, "a")
        assert pixels.shape == expected.shape
        assert np.abs(pixels.astype(int) - expected).max() <= 2


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff"])
def test_a_damaged_exif_block_means_upright(exif):
    data = picture(1, exif=exif)
    assert probe_bytes(data, "a").orientation == 1
    assert decode_bytes(data, "a").shape == (24, 32, 3)


def test_orientations_that_do_not_exist_mean_upright():
    exif = Image.Exif()
    exif[274] = 9
    assert probe_bytes(picture(1, exif=exif), "a").orientation == 1


def pixel(image: Image.Image, kind: str = "PNG") -> list[int]:
    return decode_bytes(encoded(image, kind), "a")[0, 0].tolist()


def test_other_modes_become_rgb_by_the_documented_rules():
    assert pixel(Image.new("L", (2, 2), 77)) == [77, 77, 77]
    assert pixel(Image.new("1", (2, 2), 1)) == [255, 255, 255]
    assert pixel(Image.new("RGBA", (2, 2), (10, 20, 30, 0))) == [10, 20, 30]
    assert pixel(Image.new("LA", (2, 2), (40, 0))) == [40, 40, 40]
    assert pixel(Image.new("RGB", (2, 2), (200, 100, 50)).quantize(4)) == [200, 100, 50]
    # 0x1234: the high byte is 0x12
    assert pixel(Image.fromarray(np.full((2, 2), 0x1234, np.uint16))) == [0x12] * 3
    assert pixel(Image.fromarray(np.full((2, 2), 0x1234, np.uint16)), "TIFF") == [0x12] * 3
    # (255 - 51) * (255 - 85) / 255 = 136; (255 - 0) * 170 / 255 = 170; 0 * 170 / 255 = 0
    assert pixel(Image.new("CMYK", (2, 2), (51, 0, 255, 85)), "TIFF") == [136, 170, 0]


def test_a_cmyk_jpeg_is_read_and_a_cut_one_refused():
    data = encoded(Image.new("CMYK", (16, 16), (51, 0, 255, 85)), "JPEG", quality=100)

    assert np.abs(decode_bytes(data, "a")[0, 0].astype(int) - [136, 170, 0]).max() <= 3
    assert refused(data[: len(data) - 20])[0] == "image.undecodable"
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 4), dtype=np.uint8)
    data = encoded(Image.fromarray(noise, "CMYK"), "JPEG")
    assert refused(data[: len(data) // 2] + b"\xff\xd9")[0] == "image.undecodable"


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_pixels_of_unknown_range_are_refused(dtype):
    code, fault = refused(encoded(Image.fromarray(np.zeros((2, 2), dtype)), "TIFF"))
    assert (code, "range" in fault) == ("image.undecodable", True)


@pytest.mark.parametrize(
    ("channels", "kind", "mode"),
    [(3, ".png", "RGB;16"), (4, ".png", "RGBA;16"), (3, ".tif", "RGB;16")],
)
def test_sixteen_bit_colours_give_their_high_bytes_and_are_told_apart(channels, kind, mode):
    import cv2

    values = np.random.default_rng(1).integers(0, 1 << 16, (6, 5, channels), dtype=np.uint16)
    data = cv2.imencode(kind, values)[1].tobytes()

    # OpenCV takes blue, green, red.
    np.testing.assert_array_equal(decode_bytes(data, "a"), values[:, :, 2::-1] >> 8)
    assert probe_bytes(data, "a").mode == mode


def test_the_limit_that_is_named_is_the_one_that_holds():
    assert str(MAX_PIXELS) in refused(png(60_000, 60_000))[1]


def test_a_large_size_is_refused_without_a_warning_of_pillow(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png(10_000, 10_000))
    code = (
        f"from pathlib import Path; from perdure.datasets.imaging import decode; decode({path!r})"
    )

    # In a process of its own: pytest has filters for warnings itself.
    ended = subprocess.run(
        [sys.executable, "-c", code.replace("PosixPath", "Path")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "it claims 10000 x 10000 pixels" in ended.stderr
    assert "DecompressionBomb" not in ended.stderr
