"""A small data set of drawn birds, as a camera trap at a pond would take them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

CLASSES: Final = ("heron", "kingfisher")
VAL_EVERY: Final = 5  # every fifth picture goes into the validation split
SUPERSAMPLING: Final = 4  # drawn this many times larger and shrunk, for smooth edges
JPEG_QUALITY: Final = 92
EMPTY_SHARE: Final = 0.07  # camera traps are often set off by wind
INFRARED_SHARE: Final = 0.12  # frames taken at night, without colour
MAX_OVERLAP: Final = 0.15  # of the smaller of two boxes
PLACING_TRIES: Final = 30

Image = NDArray[np.uint8]
Colour = tuple[int, int, int]  # blue, green, red
Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels

# Sky at the top, sky at the horizon, water at the horizon, water at the bottom.
LIGHTS: Final[tuple[tuple[Colour, Colour, Colour, Colour], ...]] = (
    ((214, 178, 128), (232, 222, 205), (190, 178, 150), (120, 108, 70)),  # day
    ((196, 190, 184), (222, 220, 214), (176, 176, 166), (112, 114, 100)),  # mist
    ((110, 62, 70), (110, 150, 236), (96, 112, 176), (54, 40, 46)),  # dusk
    ((150, 110, 90), (176, 196, 246), (150, 150, 190), (84, 70, 66)),  # dawn
    ((150, 196, 170), (196, 224, 206), (130, 170, 136), (62, 96, 66)),  # under trees
)


@dataclass(frozen=True)
class Pose:
    """Where a bird stands: feet and height in pixels, lean in radians."""

    x: float
    y: float
    height: float
    mirrored: bool
    lean: float

    def place(self, points: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
        """Bring points of the drawing (feet at 0, 0, crown near y = 1) into the picture."""
        local = np.asarray(points, dtype=np.float64) * (-1.0 if self.mirrored else 1.0, -1.0)
        turn = np.array(
            [[np.cos(self.lean), -np.sin(self.lean)], [np.sin(self.lean), np.cos(self.lean)]]
        )
        return np.asarray(local @ turn.T * self.height + (self.x, self.y), dtype=np.float64)


class Brush:
    """Paints on a picture and on a mask of what it touched."""

    def __init__(self, image: Image, pose: Pose, tint: float) -> None:
        self.image = image
        self.mask: Image = np.zeros(image.shape[:2], np.uint8)
        self._pose = pose
        self._tint = tint

    def _paint(self, draw: Callable[[Image, Colour | int], object], colour: Colour) -> None:
        blue, green, red = (min(255, int(part * self._tint)) for part in colour)
        draw(self.image, (blue, green, red))
        draw(self.mask, 255)

    def shape(self, points: Sequence[tuple[float, float]], colour: Colour) -> None:
        """Fill the closed smooth curve through `points`."""
        outline = _smooth(self._pose.place(points), closed=True)
        self._paint(lambda target, ink: cv2.fillPoly(target, [outline], ink), colour)

    def stroke(self, points: Sequence[tuple[float, float]], width: float, colour: Colour) -> None:
        """Draw the smooth curve through `points`, `width` of the bird's height thick."""
        curve = _smooth(self._pose.place(points), closed=False)
        thickness = max(2, round(width * self._pose.height))
        self._paint(
            lambda target, ink: cv2.polylines(target, [curve], False, ink, thickness), colour
        )

    def dot(self, centre: tuple[float, float], radius: float, colour: Colour) -> None:
        """Fill a circle, e.g. an eye."""
        x, y = self._pose.place([centre])[0]
        size = max(1, round(radius * self._pose.height))
        self._paint(
            lambda target, ink: cv2.circle(target, (round(x), round(y)), size, ink, -1), colour
        )


def draw_bird_dataset(
    folder: Path, *, images: int = 240, size_px: int = 128, seed: int = 7
) -> Path:
    """Write a YOLO data set of `images` pictures of `size_px` into `folder`, and return it.

    Two classes, "heron" and "kingfisher"; every fifth picture is for validation; some are empty.
    The same arguments give the same bytes. Existing files of the same names are replaced.
    """
    if images < VAL_EVERY or size_px < 32:
        raise ValueError(f"need at least {VAL_EVERY} images of 32 px, got {images} of {size_px} px")
    for split in ("train", "val"):
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        (folder / "labels" / split).mkdir(parents=True, exist_ok=True)
    for index in range(images):
        rng = np.random.default_rng([seed, index])
        split = "val" if index % VAL_EVERY == VAL_EVERY - 1 else "train"
        picture, birds = draw_picture(rng, size_px)
        name = f"trap_{index:04d}"
        _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        (folder / "images" / split / f"{name}.jpg").write_bytes(data.tobytes())
        rows = [f"{kind} {_yolo_row(box, size_px)}\n" for kind, box in birds]
        (folder / "labels" / split / f"{name}.txt").write_text("".join(rows), encoding="utf-8")
    described = {"train": "images/train", "val": "images/val", "names": dict(enumerate(CLASSES))}
    (folder / "data.yaml").write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    return folder


def draw_picture(rng: np.random.Generator, size_px: int) -> tuple[Image, list[tuple[int, Box]]]:
    """Draw a picture (size_px, size_px, 3; BGR), and give its birds: class index, box in pixels."""
    size = size_px * SUPERSAMPLING
    image, horizon = _pond(rng, size)
    birds: list[tuple[int, Box]] = []
    wanted = 0 if rng.random() < EMPTY_SHARE else int(rng.choice([1, 2, 3], p=[0.55, 0.35, 0.10]))
    for _ in range(wanted):
        kind = int(rng.integers(len(CLASSES)))
        for _ in range(PLACING_TRIES):
            brush = _bird(rng, image.copy(), kind, horizon)
            box = _extent(brush.mask)
            inside = box[0] > 1 and box[1] > 1 and box[2] < size - 1 and box[3] < size - 1
            if inside and all(_overlap(box, other) <= MAX_OVERLAP for _, other in birds):
                image = brush.image
                birds.append((kind, box))
                break
    _reeds(rng, image, horizon, count=int(rng.integers(0, 4)), front=True)
    small = cv2.resize(image, (size_px, size_px), interpolation=cv2.INTER_AREA)
    return _camera(rng, np.asarray(small, dtype=np.uint8)), [
        (
            kind,
            (
                box[0] / SUPERSAMPLING,
                box[1] / SUPERSAMPLING,
                box[2] / SUPERSAMPLING,
                box[3] / SUPERSAMPLING,
            ),
        )
        for kind, box in birds
    ]


def _pond(rng: np.random.Generator, size: int) -> tuple[Image, int]:
    """Paint sky, water, far bank, ripples and reeds; give the row of the horizon too."""
    light = np.asarray(LIGHTS[rng.integers(len(LIGHTS))], np.float64)
    light = np.clip(light * rng.uniform(0.85, 1.1) + rng.normal(0, 6, 3), 0, 255)
    horizon = int(size * rng.uniform(0.35, 0.6))
    rows = np.empty((size, 3))
    rows[:horizon] = np.linspace(light[0], light[1], horizon)
    rows[horizon:] = np.linspace(light[2], light[3], size - horizon)
    image = np.repeat(rows[:, None, :], size, axis=1).astype(np.uint8)
    if rng.random() < 0.4:
        centre = (int(rng.uniform(0.1, 0.9) * size), int(rng.uniform(0.3, 0.95) * horizon))
        glow = tuple(float(part) for part in np.clip(light[1] + (20, 35, 45), 0, 255))
        cv2.circle(image, centre, int(size * rng.uniform(0.03, 0.07)), glow, -1)
    bank = np.clip(light[3] * 0.7, 0, 255)
    xs = np.linspace(0, size, 24)
    tops = horizon - size * (0.02 + 0.05 * np.abs(rng.normal(0, 0.7, 24)))
    edge = np.concatenate([np.stack([xs, tops], 1), [[size, horizon], [0, horizon]]])
    cv2.fillPoly(image, [edge.astype(np.int32)], tuple(float(part) for part in bank))
    for _ in range(int(rng.integers(8, 20))):
        y = int(rng.uniform(horizon + 2, size))
        x = int(rng.uniform(0, size))
        length = int(size * rng.uniform(0.03, 0.18))
        tone = image[y - 1, min(x, size - 1)].astype(float) + rng.uniform(8, 26)
        cv2.line(image, (x, y), (x + length, y), tuple(np.clip(tone, 0, 255)), 3)
    _reeds(rng, image, horizon, count=int(rng.integers(4, 22)), front=False)
    return image, horizon


def _reeds(
    rng: np.random.Generator, image: Image, horizon: int, *, count: int, front: bool
) -> None:
    """Draw blades that lean with the wind, some with a brown head; in front only at the sides."""
    size = image.shape[0]
    wind = rng.normal(0, 0.06)
    dark = rng.uniform(0.5, 1.0)
    for _ in range(count):
        side = rng.choice([rng.uniform(-0.02, 0.12), rng.uniform(0.88, 1.02)])
        x = size * (side if front else rng.uniform(0, 1))
        foot = size * 1.02 if front else rng.uniform(horizon, size)
        tall = size * rng.uniform(0.25, 0.6) * (1.1 if front else 0.75)
        tip = x + (wind + rng.normal(0, 0.05)) * tall * 2
        blade = np.array([[x, foot], [x + (tip - x) * 0.3, foot - tall * 0.6], [tip, foot - tall]])
        green = np.array([50, 110, 80]) * dark * rng.uniform(0.7, 1.2)
        ink = tuple(float(part) for part in green)
        width = int(rng.integers(4, 9)) * size // 512 + 1
        cv2.polylines(image, [_smooth(blade, closed=False)], False, ink, width)
        if rng.random() < 0.3:
            top = (int(tip), int(foot - tall))
            brown = tuple(float(part) for part in np.array([30, 60, 100]) * dark)
            axes = (max(2, width), max(4, size // 32))
            cv2.ellipse(image, top, axes, 0, 0, 360, brown, -1)


def _bird(rng: np.random.Generator, image: Image, kind: int, horizon: int) -> Brush:
    """Paint one bird of class `kind` at a random place onto `image`."""
    size = image.shape[0]
    mirrored = bool(rng.random() < 0.5)
    lean = float(rng.normal(0, 0.06))
    x = float(rng.uniform(0.12, 0.88) * size)
    tint = float(rng.uniform(0.75, 1.12))
    if kind == 0:
        height = float(rng.uniform(0.32, 0.68) * size)
        y = float(rng.uniform(max(horizon, height + 4), max(size * 0.98, height + 8)))
        brush = Brush(image, Pose(x, y, height, mirrored, lean), tint)
        _heron(brush, float(rng.uniform(-0.06, 0.06)))
        return brush
    height = float(rng.uniform(0.20, 0.42) * size)
    y = float(rng.uniform(height + 4, size * 0.95))
    _perch(rng, image, x, y)
    brush = Brush(image, Pose(x, y, height, mirrored, lean), tint)
    _kingfisher(brush, float(rng.uniform(-0.04, 0.06)))
    return brush


def _perch(rng: np.random.Generator, image: Image, x: float, y: float) -> None:
    """Draw a branch or a post below a kingfisher; it is not part of the bird."""
    size = image.shape[0]
    wood = tuple(float(part) for part in np.array([44, 62, 84]) * rng.uniform(0.6, 1.2))
    if rng.random() < 0.4:
        half = int(size * rng.uniform(0.015, 0.03))
        cv2.rectangle(image, (int(x) - half, int(y)), (int(x) + half, size), wood, -1)
        return
    slope = rng.normal(0, 0.15)
    reach = size * rng.uniform(0.4, 1.0)
    side = rng.choice([-1, 1])
    curve = np.array(
        [
            [x - side * size * 0.15, y + size * (0.012 - 0.15 * slope)],
            [x, y + size * 0.012],
            [x + side * reach, y + reach * slope],
        ]
    )
    cv2.polylines(image, [_smooth(curve, closed=False)], False, wood, max(3, size // 48))


def _heron(brush: Brush, bend: float) -> None:
    """Paint a heron: grey, tall, long legs, a neck like an S (`bend` moves it), a long bill."""
    leg, grey, wing, pale = (60, 110, 130), (178, 166, 156), (134, 112, 98), (226, 224, 220)
    brush.stroke([(-0.03, 0.40), (-0.05, 0.22), (-0.03, 0.0), (0.03, 0.0)], 0.018, leg)
    brush.stroke([(0.04, 0.40), (0.05, 0.22), (0.04, 0.0), (0.10, 0.0)], 0.018, leg)
    neck = [(0.14, 0.55), (0.23 + bend, 0.66), (0.14, 0.76), (0.15 + bend, 0.87), (0.20, 0.945)]
    brush.stroke(neck, 0.058, pale)
    brush.shape(
        [(-0.27, 0.37), (-0.12, 0.55), (0.08, 0.62), (0.19, 0.57), (0.12, 0.44), (-0.04, 0.37)],
        grey,
    )
    brush.shape([(-0.32, 0.34), (-0.14, 0.50), (0.03, 0.55), (0.05, 0.46), (-0.12, 0.38)], wing)
    brush.shape([(0.30, 0.965), (0.52, 0.925), (0.30, 0.915)], (40, 150, 226))
    brush.shape([(0.13, 0.945), (0.19, 0.98), (0.28, 0.97), (0.31, 0.94), (0.22, 0.91)], pale)
    brush.stroke([(0.26, 0.972), (0.15, 0.965), (0.03, 0.92)], 0.022, (44, 36, 34))
    brush.dot((0.245, 0.945), 0.011, (20, 20, 20))


def _kingfisher(brush: Brush, tilt: float) -> None:
    """Paint a kingfisher: stout, blue above, orange below, a long black bill (`tilt` raises it)."""
    blue, bright, orange, white = (176, 110, 20), (214, 166, 46), (40, 120, 232), (236, 238, 238)
    brush.shape([(-0.30, -0.08), (-0.20, 0.20), (-0.10, 0.16), (-0.20, -0.10)], blue)
    brush.stroke([(0.02, 0.10), (0.03, 0.0)], 0.045, (50, 70, 210))
    brush.shape(
        [(-0.18, 0.10), (-0.14, 0.45), (0.06, 0.66), (0.24, 0.50), (0.22, 0.22), (0.04, 0.04)],
        orange,
    )
    brush.shape([(-0.27, 0.02), (-0.22, 0.40), (-0.06, 0.66), (0.06, 0.60), (-0.04, 0.24)], blue)
    brush.stroke([(-0.20, 0.12), (-0.12, 0.36), (-0.02, 0.56)], 0.04, bright)
    brush.shape(
        [(0.28, 0.83), (0.68, 0.78 + tilt), (0.68, 0.765 + tilt), (0.28, 0.70)], (34, 32, 36)
    )
    brush.shape(
        [(-0.08, 0.66), (-0.04, 0.90), (0.14, 0.99), (0.30, 0.86), (0.30, 0.70), (0.10, 0.60)], blue
    )
    brush.shape([(0.14, 0.72), (0.28, 0.78), (0.30, 0.72), (0.20, 0.66)], orange)
    brush.shape([(-0.02, 0.70), (0.04, 0.76), (0.12, 0.68), (0.06, 0.62)], white)
    brush.shape([(0.12, 0.62), (0.24, 0.66), (0.22, 0.57)], white)
    brush.dot((0.19, 0.83), 0.032, (16, 16, 16))
    brush.dot((0.20, 0.84), 0.011, white)


def _camera(rng: np.random.Generator, image: Image) -> Image:
    """Do what the camera does to a picture: night mode, vignette, noise."""
    picture = image.astype(np.float64)
    if rng.random() < INFRARED_SHARE:
        picture = np.repeat(picture.mean(axis=2, keepdims=True) * 0.8, 3, axis=2)
    size = picture.shape[0]
    axis = np.linspace(-1, 1, size)
    corner = axis[:, None] ** 2 + axis[None, :] ** 2
    picture *= (1 - rng.uniform(0.02, 0.14) * corner)[:, :, None]
    picture += rng.normal(0, rng.uniform(2, 8), picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8)


def _smooth(points: NDArray[np.float64], *, closed: bool) -> NDArray[np.int32]:
    """Give a Catmull-Rom curve through `points` (n, 2), as pixels."""
    count = len(points)
    if closed:
        knots = np.concatenate([points[-1:], points, points[:2]])
    else:
        knots = np.concatenate([points[:1], points, points[-1:]])
    t = np.linspace(0, 1, 8, endpoint=False)[:, None]
    pieces = []
    for index in range(count if closed else count - 1):
        p0, p1, p2, p3 = knots[index : index + 4]
        pieces.append(
            0.5 * (2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2)
            + 0.5 * (3 * p1 - p0 - 3 * p2 + p3) * t**3
        )
    if not closed:
        pieces.append(points[-1:])
    return np.round(np.concatenate(pieces)).astype(np.int32)


def _extent(mask: Image) -> Box:
    """Give the tight box around what is set in `mask`."""
    ys, xs = np.nonzero(mask)
    return float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)


def _overlap(one: Box, other: Box) -> float:
    """Give the shared area over the smaller of both areas."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return max(0.0, width) * max(0.0, height) / smaller


def _yolo_row(box: Box, size_px: int) -> str:
    left, top, right, bottom = (side / size_px for side in box)
    values = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    return " ".join(f"{value:.6f}" for value in values)
