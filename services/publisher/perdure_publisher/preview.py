"""A picture for people: some validation images with what the published file finds in them."""

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from perdure.datasets.cache import LocalImage
from perdure.datasets.imaging import decode
from perdure.detection.deployment import DISPLAY_CONFIDENCE
from perdure.detection.onnx_session import OnnxDetector
from perdure_publisher.evaluating import labels_px
from perdure_publisher.verifying import evenly

COLUMNS: Final = 3
PREVIEW_IMAGES: Final = 6
TILE_PX: Final = 360  # the longer side of each image: labels stay readable, the whole fits a screen
_GAP_PX: Final = 8
_LINE_PX: Final = 3
_FONT_PX: Final = 14
_JPEG_QUALITY: Final = 90
_PAPER: Final = (24, 26, 28)
_LABEL: Final = (255, 255, 255)  # what a person had marked
_LEGEND: Final = "white: label; colour: prediction with its confidence"
_LEGEND_PX: Final = _FONT_PX + 2 * _GAP_PX  # the height of its strip, below the images
_NOTHING: Final = f"no detections above {DISPLAY_CONFIDENCE:g}"
# Told apart by eye, and by most people with colour-blindness (Okabe and Ito 2008).
_COLOURS: Final = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (213, 94, 0),
    (204, 121, 167),
)


def worth_showing(images: Sequence[LocalImage]) -> list[LocalImage]:
    """Choose up to PREVIEW_IMAGES images, of all classes; unlabelled ones only if need be."""
    labelled = [image for image in images if image.boxes] or list(images)
    by_class = sorted(labelled, key=lambda image: sorted({kind for kind, *_ in image.boxes}))
    return evenly(by_class, PREVIEW_IMAGES)


def draw_preview(detector: OnnxDetector, images: Sequence[LocalImage]) -> bytes:
    """Draw `images` (at least one) in a grid above a legend, as a JPEG file.

    Thick boxes with name and score are detections above DISPLAY_CONFIDENCE; thin white ones are the
    labels. An image without detections says so.
    """
    assert images, "a preview needs at least one image"
    tiles = [_tile(detector, image) for image in images]
    pictures = [tile for tile, _ in tiles]
    columns = min(COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    width, height = max(tile.width for tile in pictures), max(tile.height for tile in pictures)
    sheet = Image.new(
        "RGB",
        (columns * (width + _GAP_PX) + _GAP_PX, rows * (height + _GAP_PX) + _LEGEND_PX),
        _PAPER,
    )
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(_FONT_PX)
    draw.text((_GAP_PX, sheet.height - _FONT_PX - _GAP_PX), _LEGEND, fill=_LABEL, font=font)
    for index, (tile, found) in enumerate(tiles):
        row, column = divmod(index, columns)
        left = _GAP_PX + column * (width + _GAP_PX) + (width - tile.width) // 2
        top = _GAP_PX + row * (height + _GAP_PX) + (height - tile.height) // 2
        sheet.paste(tile, (left, top))
        if not found:
            # On the sheet, as a narrow tile has no room for it; stroked, to be read on any picture.
            at = (_GAP_PX + column * (width + _GAP_PX) + 4, top + 2)
            draw.text(at, _NOTHING, fill=_LABEL, font=font, stroke_width=2, stroke_fill=_PAPER)
    out = io.BytesIO()
    sheet.save(out, format="JPEG", quality=_JPEG_QUALITY)
    return out.getvalue()


def _tile(detector: OnnxDetector, image: LocalImage) -> tuple[Image.Image, int]:
    """Draw an image with its labels and detections, and count the detections."""
    pixels = decode(image.path)
    height, width = pixels.shape[:2]
    zoom = TILE_PX / max(width, height)
    tile = Image.fromarray(pixels).resize(
        (max(round(width * zoom), 1), max(round(height * zoom), 1))
    )
    draw = ImageDraw.Draw(tile)
    labels, _ = labels_px(image, width=width, height=height)
    for box in labels * zoom:
        draw.rectangle(_corners(box), outline=_LABEL, width=1)
    found = detector.detect(pixels, conf=DISPLAY_CONFIDENCE)
    # The best are drawn last, on top.
    for box, score, kind in reversed(
        list(zip(found.boxes * zoom, found.scores, found.classes, strict=True))
    ):
        name = detector.deployment.classes[int(kind)]
        _draw_detection(draw, tile, _corners(box), f"{name} {score:.2f}", int(kind))
    return tile, len(found)


def _draw_detection(
    draw: ImageDraw.ImageDraw,
    tile: Image.Image,
    corners: tuple[float, float, float, float],
    text: str,
    kind: int,
) -> None:
    colour = _COLOURS[kind % len(_COLOURS)]
    font = ImageFont.load_default(_FONT_PX)
    draw.rectangle(corners, outline=colour, width=_LINE_PX)
    _, _, width, height = draw.textbbox((0, 0), text, font=font)
    left = min(max(corners[0], 0), max(tile.width - width - 4, 0))
    above = corners[1] - height - 4
    top = above if above >= 0 else min(corners[1], tile.height - height - 4)
    draw.rectangle((left, top, left + width + 4, top + height + 4), fill=colour)
    draw.text((left + 2, top + 1), text, fill=(0, 0, 0), font=font)


def _corners(box: NDArray[np.floating[Any]]) -> tuple[float, float, float, float]:
    left, top, right, bottom = (float(value) for value in box)
    return left, top, right, bottom
