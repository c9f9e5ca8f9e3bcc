import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.border import clip_box
from perdure.datasets.check import check
from perdure.datasets.findings import Severity
from perdure.datasets.formats.yolo_rows import RowFormat, parse_row
from tests.builders.datasets import write_files, yolo_files

SLACK = 1e-8  # arithmetic of floats

share = st.floats(0, 1, allow_subnormal=False)
side = st.floats(0, 1, exclude_min=True, allow_subnormal=False)


@pytest.mark.parametrize(
    ("row", "stored", "recorded"),
    [
        ("0 0.5 0.5 1 1", (0, 0.5, 0.5, 1.0, 1.0), False),
        # from -0.1 to 0.2 in x: 0 to 0.2
        ("0 0.05 0.5 0.3 0.2", (0, 0.1, 0.5, 0.2, 0.2), True),
        # from 0.85 to 1.05 in y: 0.85 to 1
        ("0 0.5 0.95 0.2 0.2", (0, 0.5, 0.925, 0.2, 0.15), True),
        # a centre in the corner: a quarter is left
        ("0 1 1 0.4 0.2", (0, 0.9, 0.95, 0.2, 0.1), True),
        # three decimals of the box 0 .. 0.0625: its left edge is at -0.0005
        ("0 0.031 0.5 0.063 0.2", (0, 0.03125, 0.5, 0.0625, 0.2), False),
    ],
)
def test_the_manifest_holds_what_is_inside_of_the_image(tmp_path, row, stored, recorded):
    result = check(write_files(tmp_path / "set", yolo_files(2) | {"labels/0.txt": f"\n{row}\n"}))

    assert result.manifest.images[0].boxes == (pytest.approx(stored, abs=1e-12),)
    assert [(f.code, f.severity, f.file, f.line, f.value) for f in result.findings] == [
        ("label.clipped", "warning", "labels/0.txt", 2, row)
    ] * recorded


def test_a_box_that_is_inside_stays_as_it_is_written():
    box = (0, 0.35, 0.15, 0.7, 0.3)  # in floats its edges are not exactly 0
    assert clip_box(box, "") == (box, None)


def test_a_box_whose_centre_is_outside_is_an_error(tmp_path):
    labels = {"labels/0.txt": "0 1.01 0.5 0.2 0.2\n"}
    [found] = check(write_files(tmp_path / "set", yolo_files(2) | labels)).findings
    assert (found.code, found.severity) == ("label.out-of-range", "error")


@given(share, share, side, side)
def test_what_is_stored_lies_inside_and_is_at_least_a_quarter_of_what_was_written(x, y, w, h):
    row = parse_row(f"0 {x!r} {y!r} {w!r} {h!r}", RowFormat(1))
    if row.box is None:  # a size that is no number above 0
        return
    (_, cx, cy, width, height), fault = clip_box(row.box, "")

    assert min(cx - width / 2, cy - height / 2) >= -SLACK
    assert max(cx + width / 2, cy + height / 2) <= 1 + SLACK
    assert min(width, height) > 0
    assert width >= w / 2 - SLACK
    assert height >= h / 2 - SLACK
    assert fault is None or fault.severity is Severity.WARNING
    # Nothing that was inside is lost: the edges inside of the image stay where they were.
    assert cx - width / 2 == pytest.approx(max(x - w / 2, 0), abs=SLACK)
    assert cx + width / 2 == pytest.approx(min(x + w / 2, 1), abs=SLACK)
    assert cy - height / 2 == pytest.approx(max(y - h / 2, 0), abs=SLACK)
    assert cy + height / 2 == pytest.approx(min(y + h / 2, 1), abs=SLACK)
