"""Tables of pixel corners, as people and tools write them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perdure.datasets.annotation import Annotations, Corners
from perdure.datasets.check import check
from perdure.datasets.findings import Finding, Findings
from perdure.datasets.formats.csv_rows import MAX_LINES_OF_A_ROW, table_rows
from perdure.datasets.formats.csv_table import read_csv
from perdure.datasets.rules import ImportRules
from perdure.datasets.signatures import format_of
from perdure.datasets.tree import read_tree
from tests.builders.datasets import picture, write_files

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
GOOD = HEADER + "a.jpg,32,24,cat,1,2,11,12\n"
IMAGES = {"images/a.jpg": b"", "images/b.jpg": b""}


def read_folder(folder: Path) -> tuple[Annotations, list[Finding]]:
    findings = Findings()
    annotations = read_csv(read_tree(folder, findings), ImportRules(), findings)
    return annotations, list(findings)


@pytest.fixture
def read(tmp_path):
    """Reads tables: the one in labels.csv, or several by name, beside the images a and b."""

    def read(*tables: str | bytes, **named: str) -> tuple[Annotations, list[Finding]]:
        files = dict(zip(("labels.csv",), tables, strict=False)) | IMAGES
        files |= {f"{name}.csv": text for name, text in named.items()}
        return read_folder(write_files(tmp_path / "set", files))

    return read


def corners(annotations: Annotations) -> dict[str, list[tuple[str, float, float, float, float]]]:
    """The boxes of each image that has labels, with the names of their classes."""
    return {
        image.path.removeprefix("images/"): [
            (annotations.classes[box.class_index], *box[1:5]) for box in image.pixels.corners
        ]
        for image in annotations.images
        if image.pixels is not None
    }


def brief(findings: list[Finding]) -> list[tuple[str, str, str, int | None, str]]:
    """What is found, without the background images of tests that label only one."""
    return [
        (found.code, str(found.severity), found.file, found.line, found.value)
        for found in findings
        if found.code != "files.background"
    ]


def test_a_table_with_a_header_is_read(read):
    annotations, findings = read(
        HEADER + "b.jpg,32,24,dog,5,6,7,8\na.jpg,32,24,cat,1,2,11,12\nb.jpg,32,24,cat,0,0,32,24\n"
    )

    assert (annotations.format, annotations.classes) == ("csv", ("cat", "dog"))
    a, b = annotations.images
    assert (a.path, a.pixels.file, a.pixels.size) == ("images/a.jpg", "labels.csv", (32, 24))
    assert a.pixels.corners == (Corners(0, 1, 2, 11, 12, line=3, file="labels.csv"),)
    assert [box.line for box in b.pixels.corners] == [2, 4]
    assert corners(annotations) == {
        "a.jpg": [("cat", 1, 2, 11, 12)],
        "b.jpg": [("dog", 5, 6, 7, 8), ("cat", 0, 0, 32, 24)],
    }
    assert findings == []


def test_empty_box_fields_are_an_image_with_nothing_on_it_and_numbers_may_have_a_point(tmp_path):
    """Row 42 of the cases."""
    table = "image_path,xmin,ymin,xmax,ymax,label\na.jpg,8,6.0,16.0,12,cat\nb.jpg,,,,,\n"
    files = {"train/a.jpg": picture(1), "train/b.jpg": picture(2), "labels.csv": table}
    result = check(write_files(tmp_path / "set", files))

    assert (result.format, result.images, result.boxes, result.background) == ("csv", 2, 1, 1)
    # of 32 x 24: centre (12, 9), 8 wide, 6 high
    assert result.manifest.images[0].boxes == ((0, 0.375, 0.375, 0.25, 0.25),)
    assert list(result.findings) == []


def test_the_size_that_a_table_claims_may_have_a_point(read):
    annotations, findings = read(HEADER + "a.jpg,640.0,480.0,cat,210.0,2,310.00,12\n")
    assert annotations.images[0].pixels.size == (640, 480)
    assert corners(annotations) == {"a.jpg": [("cat", 210, 2, 310, 12)]}
    assert brief(findings) == []


@pytest.mark.parametrize(
    "header",
    [
        "filename,xmin,ymin,xmax,ymax,class",
        "image,x_min,y_min,x_max,y_max,label",
        "image_path,x1,y1,x2,y2,class_name",
        "PATH,X1,Y1,X2,Y2,Name",
        "File,Left,Top,Right,Bottom,Category",
        "File Name, X-Min, Y Min ,XMax,YMax,Label Name",
        '"filename","xmin","ymin","xmax","ymax","class"',
        "#filename,xmin,ymin,xmax,ymax,class",
    ],
)
def test_columns_have_many_names(tmp_path, header):
    table = f"{header}\na.jpg,1,2,11,12,cat\n"
    folder = write_files(tmp_path / "set", IMAGES | {"labels.csv": table})
    annotations, findings = read_folder(folder)

    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == []
    assert format_of(folder / "labels.csv") == "csv"


def test_columns_may_be_in_any_order_and_others_do_not_matter(read):
    table = "id,ymax,class_id,label,xmax,note,ymin,xmin,file_name\n7,12,3,cat,11,x,2,1,a.jpg\n"
    annotations, findings = read(table)
    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == []


@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("first_line", ["", "sep={}\n", '"sep={}"\n'])
def test_delimiters_are_found(read, delimiter, first_line):
    table = GOOD.replace(",", delimiter)
    annotations, findings = read(first_line.format(delimiter) + table)

    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert annotations.images[0].pixels.corners[0].line == 2 + bool(first_line)
    assert brief(findings) == []


def test_the_delimiter_that_a_table_names_counts(read):
    annotations, findings = read("sep=|\n" + GOOD.replace(",", "|"))
    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == []


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"\xef\xbb\xbf" + GOOD.encode(), "UTF-8 with a byte order mark"),
        (GOOD.encode("utf-16"), "UTF-16"),
        (GOOD.encode("utf-16-le"), "UTF-16"),
        (GOOD.replace("cat", "苹果").encode("gb18030"), "GB18030"),
    ],
    ids=["mark", "utf-16", "utf-16 without a mark", "gb18030"],
)
def test_other_encodings_are_read_and_recorded(tmp_path, data, encoding):
    folder = write_files(tmp_path / "set", IMAGES | {"labels.csv": data})
    annotations, findings = read_folder(folder)

    assert list(corners(annotations)) == ["a.jpg"]
    assert annotations.classes in (("cat",), ("苹果",))
    assert brief(findings) == [("text.encoding", "info", "labels.csv", None, encoding)]
    assert format_of(folder / "labels.csv") == "csv"


def test_nul_bytes_are_refused(read):
    _, findings = read(GOOD.replace("cat", "c\0at"))
    [found] = brief(findings)
    assert found[:4] == ("text.encoding", "error", "labels.csv", None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_row_has_the_line_it_begins_at(read, end):
    table = GOOD.replace("cat", '"black\ncat"') + '\n"b.jpg",32,24,"a\n""dog""\n",5,6,x,8\n'
    annotations, findings = read(table.replace("\n", end))

    assert annotations.classes == (f"black{end}cat",)
    assert ("label.not-a-number", "error", "labels.csv", 5, "x") in brief(findings)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_table_without_a_header_is_read(tmp_path, delimiter):
    table = "images/a.jpg,1,2,11,12,cat\nimages/b.jpg,,,,,\n".replace(",", delimiter)
    folder = write_files(tmp_path / "set", IMAGES | {"annotations.csv": table})
    annotations, findings = read_folder(folder)

    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)], "b.jpg": []}
    assert annotations.images[0].pixels.corners[0].line == 1
    assert findings == []
    assert format_of(folder / "annotations.csv") == "csv"


def test_the_first_row_of_a_table_without_a_header_may_be_the_bad_one(read):
    annotations, findings = read("a.jpg,1,2,nan,12,cat\nb.jpg,1,2,11,12,cat\n")
    assert corners(annotations) == {"a.jpg": [], "b.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == [("label.not-finite", "error", "labels.csv", 1, "nan")]


@pytest.mark.parametrize("name", ["images\\a.jpg", ".\\images\\a.jpg", "images\\b\\..\\a.jpg"])
def test_windows_separators_are_read(read, name):
    """Row 31 of the cases."""
    annotations, findings = read(GOOD.replace("a.jpg", name))
    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == []


@pytest.mark.parametrize(
    "name", ["..\\..\\a.jpg", "../a.jpg", "/images/a.jpg", "C:\\images\\a.jpg", "\\\\pc\\a.jpg"]
)
def test_a_path_that_leaves_the_data_set_is_refused_once(read, name):
    """Row 31 of the cases."""
    annotations, findings = read(HEADER + f"{name},32,24,cat,1,2,11,12\n" * 2)
    assert corners(annotations) == {}
    assert brief(findings) == [("files.path-escape", "error", "labels.csv", 2, name)]


def test_an_image_that_does_not_exist_is_named_once(read):
    _, findings = read(GOOD + "c.jpg,32,24,cat,1,2,11,12\nc.jpg,32,24,cat,1,2,11,x\n")
    assert brief(findings) == [
        ("files.missing-image", "error", "labels.csv", 3, "c.jpg"),
        ("label.not-a-number", "error", "labels.csv", 4, "x"),
    ]


@pytest.mark.parametrize(
    ("row", "code", "value"),
    [
        ("a.jpg,32,24,cat,1,NaN,11,12", "label.not-finite", "NaN"),  # row 9 of the cases
        ("a.jpg,32,24,cat,1,2,-Infinity,12", "label.not-finite", "-Infinity"),
        ("a.jpg,32,24,cat,1,2,1e999,12", "label.not-finite", "1e999"),
        ("a.jpg,32,24,cat,1,2,11,1_2", "label.not-a-number", "1_2"),
        ("a.jpg,32,24,cat,1,2,11,twelve", "label.not-a-number", "twelve"),
        ("a.jpg,32,24,cat,1,2,11,", "csv.invalid", "a.jpg,32,24,cat,1,2,11,"),
        ("a.jpg,32,24,cat,1,2,11", "csv.invalid", "a.jpg,32,24,cat,1,2,11"),
        ("a.jpg,32,24,cat,1,2,11,12,13", "csv.invalid", "a.jpg,32,24,cat,1,2,11,12,13"),
        ("a.jpg,32,24,,1,2,11,12", "classes.names", "a.jpg,32,24,,1,2,11,12"),
        (",32,24,cat,1,2,11,12", "csv.invalid", ",32,24,cat,1,2,11,12"),
        ("a.jpg,wide,24,cat,1,2,11,12", "label.not-a-number", "wide"),
        ("a.jpg,32,-24,cat,1,2,11,12", "label.size-mismatch", "32 x -24"),
        ("a.jpg,32,24.5,cat,1,2,11,12", "label.size-mismatch", "32 x 24.5"),
        ('a.jpg,32,24,cat,1,2,"1,024",12', "label.not-a-number", "1,024"),
        ('a.jpg,32,24,"cat"x,1,2,11,12', "csv.invalid", 'a.jpg,32,24,"cat"x,1,2,11,12'),
        ('a.jpg,32,24,"cat,1,2,11,12', "csv.invalid", 'a.jpg,32,24,"cat,1,2,11,12'),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_hides_no_other(read, row, code, value):
    annotations, findings = read(f"{HEADER}b.jpg,,,dog,1,2,3,4\n{row}\na.jpg,,,dog,5,6,7,8\n")

    assert brief(findings) == [(code, "error", "labels.csv", 3, value)]
    found = corners(annotations)
    assert found["b.jpg"] == [("dog", 1, 2, 3, 4)]
    assert found["a.jpg"][-1] == ("dog", 5, 6, 7, 8)


def test_all_that_is_wrong_with_a_row_is_said(read):
    _, findings = read(HEADER + "c.jpg,32,24,,x,y,nan,12\n")
    assert [found.code for found in findings if found.line == 2] == [
        "classes.names",
        "files.missing-image",
        "label.not-a-number",
        "label.not-a-number",
        "label.not-finite",
    ]


def test_a_class_whose_only_box_is_bad_makes_no_noise(read):
    annotations, findings = read(GOOD + "b.jpg,32,24,dog,1,2,11,x\n")
    assert annotations.classes == ("cat",)
    assert [found.code for found in findings] == ["label.not-a-number"]


def test_rows_of_one_image_that_is_labelled_badly_do_not_make_it_background(read):
    _, findings = read(GOOD + "b.jpg,32,24,dog,1\n")
    assert [found.code for found in findings] == ["csv.invalid"]


def test_a_table_that_cannot_be_read_does_not_make_its_images_background(read):
    _, findings = read("filename,xmin\na.jpg,1\n")
    assert [found.code for found in findings] == ["csv.invalid"]


def test_images_that_no_row_names_are_background_unless_most_are(tmp_path):
    files = {"labels.csv": GOOD, "a.jpg": b"", "b.jpg": b""}
    _, findings = read_folder(write_files(tmp_path / "set", files))
    assert [(f.code, str(f.severity), f.file, f.value) for f in findings] == [
        ("files.background", "warning", "b.jpg", "1 of 2 images")
    ]
    _, findings = read_folder(write_files(tmp_path / "other", files | {"c.jpg": b""}))
    assert [(f.code, str(f.severity), f.file, f.value) for f in findings] == [
        ("files.labels-missing", "error", "b.jpg", "2 of 3 images")
    ]


def test_empty_fields_at_the_end_and_empty_rows_mean_nothing(read):
    annotations, findings = read(GOOD.replace("12\n", "12,,\n") + ",,,,,,,\n\n  \n")
    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == []


def test_two_rows_alike_are_read_once(tmp_path):
    """Row 22 of the cases."""
    row = "a.jpg,32,24,cat,1,2,11,12"
    files = {"a.jpg": picture(1), "b.jpg": picture(2)}
    table = f"{HEADER}{row}\nb.jpg,,,,,,,\n{row}\n"
    result = check(write_files(tmp_path / "set", files | {"t.csv": table}))
    assert result.boxes == 1
    assert brief(list(result.findings)) == [("label.duplicate", "info", "t.csv", 4, "1 2 11 12")]


@pytest.mark.parametrize("box", ["11,2,1,12", "1,12,11,2", "1,2,1,12", "0,0,0,0"])
def test_a_box_without_area_is_an_error_or_dropped(tmp_path, box):
    """Rows 11 and 23 of the cases."""
    files = {"a.jpg": picture(1), "b.jpg": picture(2)}
    folder = write_files(
        tmp_path / "set", files | {"t.csv": f"{HEADER}a.jpg,,,cat,{box}\nb.jpg,,,cat,1,2,3,4\n"}
    )
    result = check(folder)
    dropped = check(folder, ImportRules(drop_degenerate=True))

    value = box.replace(",", " ")
    assert brief(list(result.findings)) == [("label.degenerate-box", "error", "t.csv", 2, value)]
    assert brief(list(dropped.findings)) == [("label.degenerate-box", "info", "t.csv", 2, value)]
    assert (dropped.boxes, dropped.manifest.classes) == (1, ("cat",))


def test_boxes_are_judged_in_the_table_they_come_from(tmp_path):
    files = {"a.jpg": picture(1), "b.jpg": picture(2)}
    cats = HEADER + "a.jpg,32,24,cat,1,2,11,12\nb.jpg,,,,,,,\n"
    dogs = HEADER + "a.jpg,32,24,dog,1,2,3,4\na.jpg,32,24,dog,4,4,4,5\n"
    folder = write_files(tmp_path / "set", files | {"cats.csv": cats, "dogs.csv": dogs})
    result = check(folder)
    assert brief(list(result.findings)) == [
        ("label.degenerate-box", "error", "dogs.csv", 3, "4 4 4 5")
    ]
    assert result.boxes == 2


@pytest.mark.parametrize(
    ("table", "value"),
    [
        ("filename;xmin;ymin;xmax;ymax;class\na.jpg;1,5;2;11,25;12;cat\n", "1,5 2 11,25 12"),
        ('filename,xmin,ymin,xmax,ymax,class\na.jpg,"1,5",2,"11,25",12,cat\n', "1,5 2 11,25 12"),
    ],
)
def test_decimal_commas_are_read_where_they_are_no_delimiters(read, table, value):
    annotations, findings = read(table)
    assert corners(annotations) == {"a.jpg": [("cat", 1.5, 2, 11.25, 12)]}
    assert brief(findings) == [("label.decimal-comma", "warning", "labels.csv", 2, value)]


def test_three_digits_after_a_comma_are_decimals_where_commas_are_no_delimiters(read):
    table = "filename;xmin;ymin;xmax;ymax;class\na.jpg;1,250;2;11,125;12;cat\n"
    annotations, findings = read(table)
    assert corners(annotations) == {"a.jpg": [("cat", 1.25, 2, 11.125, 12)]}
    assert [found.code for found in findings if found.line] == ["label.decimal-comma"]


def test_spaces_around_fields_mean_nothing(read):
    annotations, findings = read(HEADER + 'a.jpg , 32, 24, "big, black cat", 1, 2 ,11, 12\n')
    assert corners(annotations) == {"a.jpg": [("big, black cat", 1, 2, 11, 12)]}
    assert brief(findings) == []


def test_a_table_in_shares_of_the_image_is_refused_once_with_advice(read):
    table = "filename,xmin,ymin,xmax,ymax,class\na.jpg,0,0,1,1,cat\nb.jpg,0.1,0.2,0.3,1.0001,dog\n"
    annotations, findings = read(table + "b.jpg,0.1,0.2,0.3,0.4,dog\n")

    assert brief(findings) == [
        (
            "label.box-format-suspect",
            "error",
            "labels.csv",
            3,
            "0.1 0.2 0.3 1.0001; all 3 boxes are within 0..2",
        )
    ]
    assert "multiply xmin and xmax by the image's width" in findings[0].advice
    assert len(findings) == 1  # the images are not called background, nor the set empty
    assert corners(annotations) == {"a.jpg": [], "b.jpg": []}


def test_single_boxes_in_shares_are_refused_and_small_boxes_in_pixels_are_not(read):
    table = "filename,xmin,ymin,xmax,ymax,class\na.jpg,0,0,1,2,cat\nb.jpg,0.1,0.2,0.3,0.4,dog\n"
    annotations, findings = read(table + "b.jpg,1,2,30,40,dog\n")

    assert brief(findings) == [
        ("label.box-format-suspect", "error", "labels.csv", 3, "0.1 0.2 0.3 0.4")
    ]
    assert corners(annotations) == {
        "a.jpg": [("cat", 0, 0, 1, 2)],
        "b.jpg": [("dog", 1, 2, 30, 40)],
    }


def test_one_image_with_two_sizes_is_an_error_at_the_second(read):
    rows = "a.jpg,32,24,cat,5,6,7,8\na.jpg,20,10,cat,1,2,3,4\na.jpg,21,11,cat,5,6,7,9\n"
    annotations, findings = read(HEADER + rows)
    assert brief(findings) == [("label.size-mismatch", "error", "labels.csv", 3, "20 x 10")]
    assert annotations.images[0].pixels.size is None  # neither is compared with the image


@pytest.mark.parametrize(("width", "height"), [("", ""), ("0", "0"), ("0.0", "0")])
def test_a_size_that_is_not_claimed_is_the_images_own(read, width, height):
    annotations, findings = read(HEADER + f"a.jpg,{width},{height},cat,1,2,11,12\n" * 2)
    assert annotations.images[0].pixels.size is None
    expected = [("csv.size-missing", "info", "labels.csv", 2, "2 rows")] if width else []
    assert brief(findings) == expected


def test_the_size_is_that_of_the_image_or_an_error(tmp_path):
    files = {"a.jpg": picture(1), "b.jpg": picture(2)}
    table = HEADER + "a.jpg,64,48,cat,1,2,11,12\nb.jpg,32,24,cat,1,2,11,12\n"
    result = check(write_files(tmp_path / "set", files | {"t.csv": table}))
    assert brief(list(result.findings)) == [
        ("label.size-mismatch", "error", "t.csv", None, "64 x 48")
    ]


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("filename,xmin,ymin,xmax,class", "bottom (ymax, y_max, y2, bottom)"),
        ("name_of_image,xmin,ymin,xmax,ymax,class", "image (filename, file_name,"),
        ("filename,x_min,ymin", "class (class, class_name,"),
        ("filename,bbox,label", "left (xmin, x_min, x1, left), top ("),
    ],
)
def test_missing_columns_are_named_and_what_there_is(tmp_path, header, missing):
    folder = write_files(tmp_path / "set", IMAGES | {"labels.csv": f"{header}\na.jpg,1,2\n"})
    _, findings = read_folder(folder)
    assert brief(findings) == [
        ("csv.invalid", "error", "labels.csv", 1, ", ".join(header.split(",")))
    ]
    assert f"no column for: {missing}" in findings[0].problem


def test_two_columns_for_one_corner_are_an_error(read):
    _, findings = read("filename,xmin,x1,ymin,xmax,ymax,class\na.jpg,1,1,2,11,12,cat\n")
    assert brief(findings) == [
        ("csv.invalid", "error", "labels.csv", 1, "filename, xmin, x1, ymin, xmax, ymax, class")
    ]
    assert "xmin and x1" in findings[0].problem


@pytest.mark.parametrize(
    ("header", "row", "word"),
    [
        (
            "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes",
            'a.jpg,1,{},1,0,"{""name"":""rect"",""x"":1,""y"":2,""width"":3,""height"":4}"',
            "COCO",
        ),
        (
            "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax",
            "000a,xclick,/m/01g317,1,0.1,0.2,0.3,0.4",
            "multiply XMin and XMax by the image's width",
        ),
    ],
)
def test_tables_of_other_tools_are_refused_with_advice(read, header, row, word):
    _, findings = read(f"{header}\n{row}\n")
    [found] = [found for found in findings if found.severity == "error"]
    assert (found.code, found.file, found.line) == ("csv.invalid", "labels.csv", 1)
    assert word in found.advice


def test_other_tables_beside_the_labels_are_left_out_with_a_warning(read):
    annotations, findings = read(GOOD, classes="cat,0\n", results="epoch,loss\n1,2\n")
    assert corners(annotations) == {"a.jpg": [("cat", 1, 2, 11, 12)]}
    assert brief(findings) == [
        ("files.not-labels", "warning", "classes.csv", 1, "cat, 0"),
        ("files.not-labels", "warning", "results.csv", 1, "epoch, loss"),
    ]


@pytest.mark.parametrize("tables", [{}, {"results": "epoch,loss\n"}, {"empty": ""}])
def test_no_table_of_boxes_is_an_error(read, tables):
    name = next(iter(tables), "")
    _, findings = read(**tables)
    [found] = [found for found in findings if found.severity == "error"]
    assert (found.code, found.file) == ("label.none", f"{name}.csv" if tables else "")


def test_a_table_with_only_a_header_has_no_boxes(read):
    _, findings = read(HEADER)
    assert [found.code for found in findings if found.severity == "error"] == ["label.none"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("train", "val"), ("train_labels", "valid-labels"), ("labels.train", "annotations_val2017")],
)
def test_the_names_of_tables_tell_the_splits(read, first, second):
    annotations, findings = read(**{first: GOOD, second: GOOD.replace("a.jpg", "b.jpg")})
    assert {image.path: image.split for image in annotations.images} == {
        "images/a.jpg": "train",
        "images/b.jpg": "val",
    }
    assert findings == []


def test_a_name_that_could_mean_several_images_means_that_of_the_tables_split(tmp_path):
    files = {"train/a.jpg": b"", "val/a.jpg": b"", "x/a.jpg": b"", "y/a.jpg": b""}
    folder = write_files(tmp_path / "set", files | {"train.csv": GOOD, "val.csv": GOOD})
    annotations, findings = read_folder(folder)
    assert {image.path: image.split for image in annotations.images if image.pixels} == {
        "train/a.jpg": "train",
        "val/a.jpg": "val",
    }
    assert brief(findings) == []

    _, findings = read_folder(write_files(tmp_path / "other", files | {"all.csv": GOOD}))
    assert brief(findings) == [("files.image-ambiguous", "error", "all.csv", 2, "a.jpg")]


def test_a_table_with_the_names_of_two_splits_tells_none(read):
    annotations, _ = read(train_val=GOOD)
    assert [image.split for image in annotations.images] == [None, None]


def test_a_column_tells_the_split(read):
    table = "split,filename,xmin,ymin,xmax,ymax,class\n{},a.jpg,1,2,3,4,cat\n{},b.jpg,1,2,3,4,cat\n"
    annotations, findings = read(table.format("TRAIN", "validation"))
    assert [image.split for image in annotations.images] == ["train", "val"]
    assert findings == []

    annotations, findings = read(table.format("train", "test"))
    assert [(image.path, image.split) for image in annotations.images] == [
        ("images/a.jpg", "train")
    ]
    assert (annotations.left_out, findings) == (1, [])

    _, findings = read(table.format("train", "fold3"))
    assert brief(findings) == [("csv.invalid", "error", "labels.csv", 3, "fold3")]


def test_an_image_in_train_and_in_val_is_an_error(read):
    twice = GOOD + "a.jpg,32,24,cat,3,4,5,6\n"
    _, findings = read(train=twice, val=twice)
    assert brief(findings) == [("split.leakage", "error", "images/a.jpg", None, "")]


def test_a_giant_field_is_an_error_of_its_row_only(read):
    giant = "x" * 200_000
    annotations, findings = read(GOOD + f"a.jpg,32,24,{giant},1,2,3,4\nb.jpg,,,dog,5,6,7,8\n")
    assert [(f.code, f.line) for f in findings] == [("csv.invalid", 3)]
    assert "field larger than field limit" in findings[0].problem
    assert corners(annotations)["b.jpg"] == [("dog", 5, 6, 7, 8)]


def test_quotes_that_are_not_closed_cost_no_more_than_some_lines_each():
    rows = [f'"a{number},b' for number in range(1, 5001)]
    found = list(table_rows("\n".join(rows), ","))
    # a quote closes at the next row's: two rows are one that is wrong, and each is tried
    assert [row.line for row in found] == list(range(1, 5001))
    assert all(row.error for row in found)

    lines = ['a,"b', *["c"] * MAX_LINES_OF_A_ROW, "d,e"]
    found = list(table_rows("\n".join(lines), ","))
    assert f"more than {MAX_LINES_OF_A_ROW} lines" in found[0].error
    assert (found[1].line, found[-1]) == (2, (len(lines), ["d", "e"], ""))


def test_a_table_with_a_million_delimiters_is_one_bad_row(read):
    _, findings = read(GOOD + "," * 1_000_000 + "x\n")
    assert [(f.code, f.line) for f in findings if f.severity == "error"] == [("csv.invalid", 3)]


ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def assert_only_findings(folder: Path, data: bytes) -> None:
    annotations, findings = read_folder(write_files(folder, IMAGES | {"labels.csv": data}))
    for image in annotations.images:
        assert image.path in IMAGES
        for box in image.pixels.corners if image.pixels else ():
            assert 0 <= box.class_index < len(annotations.classes)
    if b"a.jpg" not in data:
        assert any(found.severity == "error" for found in findings)


@ANY_FOLDER
@given(st.binary(max_size=400))
@example(b'sep="\n"')
@example(b"sep=\n\n")
@example(b"sep=\xff\n")
@example(b"sep=\r\n")
@example(b'"')
@example(b"\xff\xfe")
def test_arbitrary_bytes_give_only_findings(tmp_path, data):
    assert_only_findings(tmp_path / "set", data)


MARKS = [b",", b'"', b"\n", b"\r", b"\0", b";", b"\t", b"-", b"nan", b"1e999", b"\xff", b"../"]


@ANY_FOLDER
@given(st.data())
def test_a_mutated_table_gives_only_findings(tmp_path, data):
    table = bytearray((GOOD + "b.jpg,,,,,,,\nimages/b.jpg,32,24,dog,5,6,7,8\n").encode())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(table)))
        length = data.draw(st.integers(0, 4))
        table[at : at + length] = data.draw(st.sampled_from(MARKS) | st.binary(max_size=3))
    assert_only_findings(tmp_path / "set", bytes(table))
