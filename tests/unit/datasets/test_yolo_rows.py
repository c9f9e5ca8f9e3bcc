import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.findings import Severity
from perdure.datasets.formats.yolo_rows import Row, RowFormat
from perdure.datasets.formats.yolo_rows import parse_row as parse


def parse_row(text: str, class_count: int | None, keypoint_fields: int = 0) -> Row:
    return parse(text, RowFormat(class_count, keypoint_fields))


def codes(row: Row) -> list[str]:
    return [fault.code for fault in row.faults]


@pytest.mark.parametrize(
    "text",
    [
        "1 0.5 0.25 0.5 0.125",
        "  1\t0.5   0.25 0.5 0.125  ",
        "1 .5 2.5e-1 5E-1 0.1250",
        "1.0 0.5 0.25 0.5 0.125",
    ],
)
def test_a_box_row_is_read_exactly(text):
    assert parse_row(text, 2) == Row((1, 0.5, 0.25, 0.5, 0.125), ())


def test_the_borders_of_the_range_belong_to_it():
    assert parse_row("0 0 1 1 1", 1).box == (0, 0.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("class_id", ["2", "-1", "1.5", "bird", "1e0", "nan", "٣", "99999999999"])
def test_class_ids_that_no_name_has_are_errors(class_id):
    row = parse_row(f"{class_id} 0.5 0.5 0.1 0.1", 2)

    assert row.box is None
    assert codes(row) == ["label.class-out-of-range"]
    assert row.faults[0].value == class_id
    assert "0..1" in row.faults[0].rule


def test_without_names_class_ids_are_bounded_all_the_same():
    assert parse_row("9999 0.5 0.5 0.1 0.1", None).box is not None
    assert codes(parse_row("10000 0.5 0.5 0.1 0.1", None)) == ["label.class-out-of-range"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("nan", "label.not-finite"),
        ("-Infinity", "label.not-finite"),
        ("1e999", "label.not-finite"),
        ("1.0000001", "label.out-of-range"),
        ("-0.1", "label.out-of-range"),
        ("half", "label.not-a-number"),
        ("1_0", "label.not-a-number"),
        ("0x1", "label.not-a-number"),
    ],
)
def test_bad_coordinates_are_errors_wherever_they_stand(value, code):
    for place in range(1, 5):
        fields = ["0", "0.5", "0.5", "0.5", "0.5"]
        fields[place] = value
        row = parse_row(" ".join(fields), 1)
        assert (row.box, codes(row)) == (None, [code])


def test_pixels_are_called_pixels():
    row = parse_row("0 320 240 0.5 0.5", 1)

    assert codes(row) == ["label.out-of-range"] * 2
    assert all("looks like pixels" in fault.advice for fault in row.faults)
    assert "looks like pixels" not in parse_row("0 1.2 0.5 0.5 0.5", 1).faults[0].advice


def test_every_fault_of_a_row_is_listed():
    row = parse_row("7 nan 0.5 2 0.5", 1)
    assert codes(row) == ["label.class-out-of-range", "label.not-finite", "label.out-of-range"]


@pytest.mark.parametrize(
    "text", ["0 0.5 0.5 0 0.2", "0 0.5 0.5 0.2 0.0", "0 0.1 0.1 0.1 0.5 0.1 0.9"]
)
def test_boxes_without_an_area_are_errors(text):
    row = parse_row(text, 1)
    assert (row.box, codes(row)) == (None, ["label.degenerate-box"])


def test_a_polygon_becomes_its_envelope():
    row = parse_row("0 0.25 0.5 0.75 0.25 0.5 1.0", 1)

    # x from 0.25 to 0.75, y from 0.25 to 1.0
    assert row.box == (0, 0.5, 0.625, 0.5, 0.75)
    assert [(fault.code, fault.severity) for fault in row.faults] == [
        ("label.polygon-to-box", Severity.INFO)
    ]


def test_six_fields_are_refused():
    row = parse_row("0 0.5 0.5 0.2 0.2 0.9", 1)
    assert (row.box, codes(row)) == (None, ["label.extra-field"])


@pytest.mark.parametrize("text", ["0", "0 0.5 0.5 0.2", "0 0.1 0.1 0.2 0.2 0.3 0.3 0.4"])
def test_other_numbers_of_fields_are_refused(text):
    row = parse_row(text, 1)
    assert (row.box, codes(row)) == (None, ["label.field-count"])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0 0,5 0,5 0,25 0,125", "label.decimal-comma"),
        ("0 0,5 0.5 0,25 0,125", "label.decimal-comma"),
        ("0,0 0,5 0,5 0,25 0,125", "label.decimal-comma"),
        ("0 ,5 5,0e-1 +0,25 ,125", "label.decimal-comma"),
        ("0,0.5,0.5,0.25,0.125", "label.comma-separated"),
        ("0, 0.5, 0.5, 0.25, 0.125", "label.comma-separated"),
        ("0 0.5,0.5 0.25,0.125", "label.comma-separated"),
        ("0,0.5,0.5,0.25,0.125,", "label.comma-separated"),
        ("0; 0.5;0.5 ;0.25;0.125;", "label.comma-separated"),
    ],
)
def test_commas_are_read_for_what_they_are(text, code):
    row = parse_row(text, 1)

    assert row.box == (0, 0.5, 0.5, 0.25, 0.125)
    assert [(fault.code, fault.severity) for fault in row.faults] == [(code, Severity.WARNING)]


def test_commas_that_can_mean_both_are_refused():
    # Decimal: a box 0.1 1.0 0.1 1.0. Separated: the polygon (0,1) (1,0) (0,1) (1,0).
    row = parse_row("0 0,1 1,0 0,1 1,0", 1)
    assert (row.box, codes(row)) == (None, ["label.decimal-comma"])
    assert row.faults[0].severity is Severity.ERROR


def test_semicolons_leave_the_comma_to_be_a_decimal_mark():
    row = parse_row("0;0,5;0,5;0,25;0,125", 1)
    assert row.box == (0, 0.5, 0.5, 0.25, 0.125)
    assert codes(row) == ["label.comma-separated", "label.decimal-comma"]


@pytest.mark.parametrize(
    "text",
    ["0,0.5,0.5,0.25,,0.9", "0,,0.5,0.5,0.25,0.125", "0, ,0.5,0.25,0.125", "0;0.5;;0.5;0.2;0.2"],
)
def test_a_value_that_is_missing_between_separators_is_not_filled_by_the_next_one(text):
    row = parse_row(text, 1)

    assert row.box is None
    assert "label.field-count" in codes(row)
    assert "empty" in next(f.rule for f in row.faults if f.code == "label.field-count")


def test_a_negative_decimal_comma_is_out_of_range_and_not_called_no_number():
    assert "label.out-of-range" in codes(parse_row("0 0,5 0,5 0,2 -0,2", 1))


def test_the_keypoints_of_a_pose_row_are_left_out_and_never_taken_for_a_polygon():
    # Two keypoints of x, y: nine fields, as a polygon of four points has.
    row = parse_row("0 0.5 0.5 0.2 0.4 0.1 0.1 0.9 0.9", 1, keypoint_fields=4)
    assert row.box == (0, 0.5, 0.5, 0.2, 0.4)
    assert [(fault.code, fault.severity) for fault in row.faults] == [
        ("label.keypoints-dropped", Severity.INFO)
    ]
    # A visibility is 0, 1 or 2; nothing of a keypoint is judged.
    assert parse_row("0 0.5 0.5 0.2 0.4 0 0 2", 1, keypoint_fields=3).box == row.box
    assert parse_row("0 0.5 0.5 0.2 0.4", 1, keypoint_fields=4) == Row(row.box, ())


def test_a_pose_row_with_another_number_of_keypoints_is_refused():
    row = parse_row("0 0.5 0.5 0.2 0.4 0.1 0.1", 1, keypoint_fields=4)
    assert (row.box, codes(row)) == (None, ["label.field-count"])
    assert "kpt_shape" in row.faults[0].rule


@given(st.text(max_size=60))
def test_any_text_gives_a_valid_box_or_an_error(text):
    row = parse_row(text, 3)

    errors = [fault for fault in row.faults if fault.severity is Severity.ERROR]
    assert (row.box is None) == bool(errors)
    if row.box is not None:
        assert 0 <= row.box[0] < 3
        assert all(math.isfinite(value) and 0 <= value <= 1 for value in row.box[1:])
        assert min(row.box[3:]) > 0


share = st.floats(0, 1, exclude_min=True, allow_subnormal=False)


@given(st.integers(0, 79), share, share, share, share, st.sampled_from([" ", "\t", "  "]))
def test_what_is_written_is_read_back(class_index, x, y, width, height, gap):
    text = gap.join([str(class_index), *map(repr, (x, y, width, height))])
    assert parse_row(text, 80) == Row((class_index, x, y, width, height), ())


@given(
    st.lists(
        st.tuples(share, share), min_size=3, max_size=12, unique_by=(lambda p: p[0], lambda p: p[1])
    )
)
def test_an_envelope_touches_its_polygon_on_all_sides(points):
    row = parse_row("0 " + " ".join(f"{x!r} {y!r}" for x, y in points), 1)

    if row.box is None:  # so thin that the difference of its sides is no number any more
        return
    _, x, y, width, height = row.box
    xs, ys = zip(*points, strict=True)
    assert x - width / 2 == pytest.approx(min(xs), abs=1e-12)
    assert x + width / 2 == pytest.approx(max(xs), abs=1e-12)
    assert y - height / 2 == pytest.approx(min(ys), abs=1e-12)
    assert y + height / 2 == pytest.approx(max(ys), abs=1e-12)
