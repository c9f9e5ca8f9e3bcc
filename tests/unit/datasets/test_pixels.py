"""Boxes in pixels are related to the image that lies there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from perdure.datasets.annotation import Box, Corners, PixelLabels
from perdure.datasets.findings import Finding, Findings
from perdure.datasets.imaging import ImageInfo, decode_bytes, probe_bytes
from perdure.datasets.pixels import upright_boxes
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import encoded

WIDTH, HEIGHT = 40, 20
UPRIGHT = ImageInfo(WIDTH, HEIGHT, "JPEG", "RGB", 1)
EXIF_ORIENTATION = 274
WHITE = 255


def relate(
    *corners: Corners,
    info: ImageInfo = UPRIGHT,
    size: tuple[int, int] | None = None,
    rules: ImportRules | None = None,
) -> tuple[tuple[Box, ...], list[Finding]]:
    findings = Findings()
    labels = PixelLabels("a.xml", size, corners)
    boxes = upright_boxes(labels, "a.jpg", info, rules or ImportRules(), findings)
    return boxes, list(findings)


def brief(findings: list[Finding]) -> list[tuple[str, str, str, int | None, str]]:
    return [(f.code, str(f.severity), f.file, f.line, f.value) for f in findings]


def turned_image(orientation: int, box: tuple[int, int, int, int], kind: str) -> bytes:
    """A black image, stored with an orientation, in which the pixels of `box` are white."""
    left, top, right, bottom = box
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[top:bottom, left:right] = WHITE
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    return encoded(Image.fromarray(pixels), kind, exif=exif)


def white_box(data: bytes) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is white in the decoded image, as shares of it."""
    pixels = decode_bytes(data, "a")
    rows, columns = np.nonzero(pixels[:, :, 0] > WHITE // 2)
    height, width = pixels.shape[:2]
    return (
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    )


def edges(box: Box) -> tuple[float, float, float, float]:
    _, x, y, width, height = box
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def test_corners_become_shares_of_the_image():
    # centre (12, 9), 8 wide, 6 high, of 40 x 20
    boxes, findings = relate(Corners(3, 8, 6, 16, 12), size=(WIDTH, HEIGHT))
    assert boxes == ((3, pytest.approx(0.3), pytest.approx(0.45), 0.2, pytest.approx(0.3)),)
    assert findings == []


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", range(5, 9))
def test_boxes_of_the_stored_frame_are_turned_with_its_pixels(orientation, kind):
    """Row 35 of the cases: the labels' size is that of the image as it is stored."""
    box = (8, 0, 32, 16)  # in the blocks that JPEG and WebP keep apart
    data = turned_image(orientation, box, kind)
    info = probe_bytes(data, "a")
    assert (info.width, info.height) == (HEIGHT, WIDTH)

    [found], findings = relate(Corners(0, *box), info=info, size=(WIDTH, HEIGHT))

    assert edges(found) == pytest.approx(white_box(data), abs=1e-9)
    assert brief(findings) == [("image.exif-orientation", "info", "a.jpg", None, str(orientation))]


@pytest.mark.parametrize("size", [(HEIGHT, WIDTH), None])
@pytest.mark.parametrize("orientation", range(5, 9))
def test_boxes_of_the_upright_frame_stay_as_they_are(orientation, size):
    info = ImageInfo(HEIGHT, WIDTH, "JPEG", "RGB", orientation)
    [found], findings = relate(Corners(0, 2, 8, 6, 32), info=info, size=size)
    assert edges(found) == pytest.approx((0.1, 0.2, 0.3, 0.8))
    assert findings == []


@pytest.mark.parametrize("orientation", range(2, 5))
def test_where_both_frames_have_one_size_boxes_are_of_the_upright_one(orientation):
    info = ImageInfo(WIDTH, HEIGHT, "JPEG", "RGB", orientation)
    [found], findings = relate(Corners(0, 4, 2, 8, 18), info=info, size=(WIDTH, HEIGHT))
    assert edges(found) == pytest.approx((0.1, 0.1, 0.2, 0.9))
    assert findings == []


@given(
    st.integers(5, 8),
    st.tuples(st.integers(0, WIDTH - 1), st.integers(1, WIDTH)).filter(lambda x: x[0] < x[1]),
    st.tuples(st.integers(0, HEIGHT - 1), st.integers(1, HEIGHT)).filter(lambda y: y[0] < y[1]),
)
def test_any_box_of_the_stored_frame_covers_the_same_pixels(orientation, across, down):
    box = (across[0], down[0], across[1], down[1])
    data = turned_image(orientation, box, "PNG")
    [found], _ = relate(Corners(0, *box), info=probe_bytes(data, "a"), size=(WIDTH, HEIGHT))
    assert edges(found) == pytest.approx(white_box(data), abs=1e-9)


@pytest.mark.parametrize(
    ("size", "orientation"), [((20, 10), 1), ((HEIGHT, WIDTH), 1), ((HEIGHT, WIDTH), 3)]
)
def test_labels_of_another_size_are_an_error_and_their_boxes_are_not_judged(size, orientation):
    info = ImageInfo(WIDTH, HEIGHT, "JPEG", "RGB", orientation)
    boxes, findings = relate(Corners(0, 9, 9, 1, 1), info=info, size=size)
    assert boxes == ()
    assert brief(findings) == [
        ("label.size-mismatch", "error", "a.xml", None, f"{size[0]} x {size[1]}")
    ]
    assert f"a.jpg, which is {WIDTH} x {HEIGHT}" in findings[0].rule


@pytest.mark.parametrize(
    ("corners", "kept", "code"),
    [
        ((-2, 0, 6, 20), (0, 0, 6, 20), "label.clipped"),
        ((30, 10, 45, 22), (30, 10, 40, 20), "label.clipped"),
        ((-1, -1, 41, 21), (0, 0, 40, 20), "label.clipped"),
        ((-0.03, 0, 40.03, 20.01), (0, 0, 40, 20), None),  # rounding
        ((-4, 0, 4, 20), (0, 0, 4, 20), "label.clipped"),  # half of it
        ((-4.1, 0, 4, 20), None, "label.out-of-range"),
        ((36, 0, 44.1, 20), None, "label.out-of-range"),
        ((0, -6, 10, 5), None, "label.out-of-range"),
        ((50, 30, 60, 40), None, "label.out-of-range"),
        # its centre is the image's, but nearly all of it is outside
        ((-400, -200, 440, 220), None, "label.out-of-range"),
        ((-1e308, -1e308, 1e308, 1e308), None, "label.out-of-range"),
    ],
)
def test_boxes_at_the_border(corners, kept, code):
    boxes, findings = relate(Corners(0, *corners, line=7), size=(WIDTH, HEIGHT))

    expected = [
        pytest.approx((left / WIDTH, top / HEIGHT, right / WIDTH, bottom / HEIGHT), abs=1e-9)
        for left, top, right, bottom in ([kept] if kept else [])
    ]
    assert [edges(box) for box in boxes] == expected
    severity = "warning" if kept else "error"
    value = " ".join(f"{value:.10g}" for value in corners)
    assert brief(findings) == ([(code, severity, "a.xml", 7, value)] if code else [])


@pytest.mark.parametrize("corners", [(5, 5, 5, 9), (5, 5, 9, 5), (9, 5, 5, 9), (5, 9, 9, 5)])
def test_boxes_without_area_are_errors_or_left_out(corners):
    """Rows 11 and 23 of the cases."""
    good = Corners(0, 1, 1, 3, 3)
    bad = Corners(0, *corners, line=3)
    value = " ".join(map(str, corners))

    boxes, findings = relate(good, bad)
    assert len(boxes) == 1
    assert brief(findings) == [("label.degenerate-box", "error", "a.xml", 3, value)]

    boxes, findings = relate(good, bad, rules=ImportRules(drop_degenerate=True))
    assert len(boxes) == 1
    assert brief(findings) == [("label.degenerate-box", "info", "a.xml", 3, value)]


def test_a_box_twice_is_read_once_and_another_class_is_another_box():
    """Row 22 of the cases."""
    boxes, findings = relate(
        Corners(0, 1, 1, 3, 3, pointer="/0"),
        Corners(1, 1, 1, 3, 3, pointer="/1"),
        Corners(0, 1, 1, 3, 3, pointer="/2"),
    )
    assert [box[0] for box in boxes] == [0, 1]
    assert [(f.code, f.severity, f.pointer) for f in findings] == [
        ("label.duplicate", "info", "/2")
    ]


def test_a_finding_is_in_the_file_that_the_box_is_from():
    _, findings = relate(Corners(0, 1, 1, 1, 3, line=2, file="other.csv"))
    assert [(f.file, f.line) for f in findings] == [("other.csv", 2)]


FINITE = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(FINITE, FINITE, FINITE, FINITE), max_size=5))
def test_any_corners_give_boxes_inside_or_findings(values):
    corners = [Corners(0, *four, line=line) for line, four in enumerate(values, start=1)]
    boxes, findings = relate(*corners)

    for box in boxes:
        assert min(edges(box)) >= -1e-9
        assert max(edges(box)) <= 1 + 1e-9
        assert min(box[3:]) > 0
    refused = [f for f in findings if f.code != "label.clipped"]
    assert len(boxes) + len(refused) == len(corners)
