"""Preprocessing agrees with the one the network was trained with, and boxes find their way back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ultralytics.data.augment import LetterBox

from perdure.detection.pipeline import letterbox, preprocess, to_letterboxed, to_source
from perdure.errors import InvalidInput


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@settings(max_examples=150, deadline=None)
@given(
    height=st.integers(1, 400),
    width=st.integers(1, 400),
    size=st.sampled_from([32, 64, 96, 160, 224, 320]),
    seed=st.integers(0, 1000),
)
def test_letterbox_gives_the_very_pixels_of_ultralytics(height, width, size, seed):
    image = noise(height, width, seed)

    ours, scale, left, top = letterbox(image, size)

    theirs = LetterBox(size, auto=False, scaleup=True, center=True)
    params = theirs.get_params({"img": image})
    assert np.array_equal(ours, theirs(image=image))
    assert (scale, left, top) == (params["ratio"][0], params["left"], params["top"])


def test_a_wide_image_is_padded_above_and_below_with_grey():
    image = np.full((10, 40, 3), 200, dtype=np.uint8)

    boxed, scale, left, top = letterbox(image, 80)

    # 40 px become 80, so 10 become 20, and 60 rows of padding are left: 30 and 30.
    assert (scale, left, top) == (2.0, 0, 30)
    assert (boxed[:30] == 114).all()
    assert (boxed[30:50] == 200).all()
    assert (boxed[50:] == 114).all()


def test_the_odd_row_of_padding_goes_below():
    boxed, _, _, top = letterbox(np.full((33, 64, 3), 7, dtype=np.uint8), 64)

    assert top == 15
    assert (boxed[15:48] == 7).all()
    assert (boxed[48:] == 114).all()


def test_the_tensor_is_float_rgb_planes_between_0_and_1():
    image = np.zeros((32, 32, 3), dtype=np.uint8)
    image[..., 0], image[..., 1], image[..., 2] = 255, 51, 0

    tensor = preprocess(image, 32).tensor

    assert tensor.shape == (3, 32, 32)
    assert tensor.dtype == np.float32
    assert (tensor[0] == 1.0).all()
    assert (tensor[1] == np.float32(0.2)).all()
    assert (tensor[2] == 0.0).all()


@settings(max_examples=100, deadline=None)
@given(
    height=st.integers(8, 2000),
    width=st.integers(8, 2000),
    size=st.sampled_from([64, 160, 640]),
    corners=st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4),
)
def test_boxes_come_back_from_the_letterbox_where_they_were(height, width, size, corners):
    letterboxed = preprocess(np.zeros((height, width, 3), dtype=np.uint8), size)
    x1, x2 = sorted(corners[:2])
    y1, y2 = sorted(corners[2:])
    box = np.array([[x1 * width, y1 * height, x2 * width, y2 * height]], dtype=np.float32)

    inside = to_letterboxed(box, letterboxed)
    back = to_source(inside, letterboxed, width=width, height=height)

    # A 32-bit float of up to `size` is exact to size * 6e-8 px there, 1 / scale as much here.
    assert np.abs(back - box).max() < 1e-3 / min(letterboxed.scale, 1)


def test_boxes_are_clipped_to_the_source_image():
    letterboxed = preprocess(np.zeros((50, 100, 3), dtype=np.uint8), 100)  # 25 px of padding on top
    boxes = np.array([[-10, 0, 120, 100]], dtype=np.float32)

    clipped = to_source(boxes, letterboxed, width=100, height=50)

    assert clipped.tolist() == [[0, 0, 100, 50]]


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((10, 10), dtype=np.uint8),
        np.zeros((10, 10, 4), dtype=np.uint8),
        np.zeros((10, 10, 3), dtype=np.float32),
        np.zeros((0, 10, 3), dtype=np.uint8),
    ],
    ids=["grey", "with alpha", "float", "empty"],
)
def test_what_is_no_rgb_image_is_refused(image):
    with pytest.raises(InvalidInput, match="height x width x 3 of uint8"):
        preprocess(image, 64)
