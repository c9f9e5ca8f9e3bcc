"""Pascal VOC: the images that label files mean, their boxes, and the lists of the splits."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.annotation import Annotations
from perdure.datasets.check import CheckResult, check
from perdure.datasets.findings import Findings
from perdure.datasets.formats.voc import read_voc
from perdure.datasets.reading import read_annotations
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree, read_tree
from tests.builders.datasets import picture, write_files

VOC = ImportRules(format="voc")
SIZE = "<size><width>32</width><height>24</height><depth>3</depth></size>"
CORNERS = "<xmin>8</xmin><ymin>6</ymin><xmax>16</xmax><ymax>18</ymax>"
BIRD = f"<object><name>bird</name>\n<bndbox>{CORNERS}</bndbox></object>"
# Shares of a 32 x 24 image, by hand: (8 + 16) / 2 / 32, (6 + 18) / 2 / 24, 8 / 32, 12 / 24.
BIRD_BOX = (0, 0.375, 0.5, 0.25, 0.5)


def xml(name: str = "0.jpg", *objects: str, size: str = SIZE) -> str:
    """An annotation: <filename> is in line 2, the first object in line 4."""
    named = f"<filename>{name}</filename>" if name else ""
    return f"<annotation>\n{named}\n{size}\n{''.join(objects or (BIRD,))}\n</annotation>\n"


def boxed(corners: str, name: str = "<name>bird</name>") -> str:
    return f"<object>{name}\n<bndbox>{corners}</bndbox></object>"


def voc_files(images: int = 3) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    for number in range(images):
        files[f"JPEGImages/{number}.jpg"] = picture(number)
        files[f"Annotations/{number}.xml"] = xml(f"{number}.jpg")
    return files


def result(folder: Path, files: dict[str, str | bytes], **rules) -> CheckResult:
    return check(write_files(folder, files), ImportRules(format="voc", **rules))


def found(folder: Path, files: dict[str, str | bytes], **rules) -> list[tuple]:
    """The findings: code, severity, file, line, value."""
    findings = result(folder, files, **rules).findings
    return [(f.code, str(f.severity), f.file, f.line, f.value) for f in findings]


def of_first(folder: Path, content: str, **rules) -> list[tuple]:
    """The findings of a set whose first label file is `content`, without the file's name."""
    rows = found(folder, voc_files() | {"Annotations/0.xml": content}, **rules)
    assert {file for _, _, file, *_ in rows} <= {"Annotations/0.xml"}
    return [(code, severity, line, value) for code, severity, _, line, value in rows]


def test_a_clean_set_has_no_findings_and_is_recognised(tmp_path):
    given = result(tmp_path / "set", voc_files())
    recognised = check(tmp_path / "set")

    assert (list(given.findings), given.format, given.classes) == ([], "voc", ("bird",))
    assert [image.boxes for image in given.manifest.images] == [(BIRD_BOX,)] * 3
    assert recognised.manifest.version == given.manifest.version


def test_a_set_in_utf_16_is_recognised(tmp_path):
    files = voc_files() | {"Annotations/0.xml": xml().encode("utf-16")}
    write_files(tmp_path, {name: files[name] for name in ("Annotations/0.xml", "JPEGImages/0.jpg")})
    assert check(tmp_path).format == "voc"


def test_float_coordinates_are_kept(tmp_path):
    corners = "<xmin>8.70000076</xmin><ymin>6.5</ymin><xmax>16.25</xmax><ymax>1.8e1</ymax>"
    checked = result(tmp_path, voc_files() | {"Annotations/0.xml": xml("0.jpg", boxed(corners))})

    assert list(checked.findings) == []
    [(_, x, y, width, height)] = checked.manifest.images[0].boxes
    assert x == pytest.approx((8.70000076 + 16.25) / 64, abs=1e-12)
    assert y == pytest.approx((6.5 + 18) / 48, abs=1e-12)
    assert width == pytest.approx((16.25 - 8.70000076) / 32, abs=1e-12)
    assert height == pytest.approx(11.5 / 24, abs=1e-12)


@pytest.mark.parametrize(
    ("corners", "value"),
    [("16 6 16 18", "16 6 16 18"), ("16 6 8 18", "16 6 8 18"), ("8 6 16 6", "8 6 16 6")],
)
def test_boxes_without_area_are_refused_or_dropped(tmp_path, corners, value):
    left, top, right, bottom = corners.split()
    box = boxed(f"<xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>")
    content = xml("0.jpg", BIRD, box)

    line = 6  # of the second <bndbox>
    assert of_first(tmp_path / "a", content) == [("label.degenerate-box", "error", line, value)]
    assert of_first(tmp_path / "b", content, drop_degenerate=True) == [
        ("label.degenerate-box", "info", line, value)
    ]


@pytest.mark.parametrize(
    ("size", "line", "value"),
    [
        ("", 1, ""),
        ("<size/>", 3, ""),
        ("<size><width>0</width><height>0</height></size>", 3, "0 x 0"),
        ("<size><width>32</width></size>", 3, "32"),
        ("<size><width>32</width><height>0</height></size>", 3, "32 x 0"),
        ("<size><width>32</width><height>?</height></size>", 3, "32 x ?"),
    ],
)
def test_a_missing_size_is_taken_from_the_image(tmp_path, size, line, value):
    files = voc_files() | {"Annotations/0.xml": xml("0.jpg", size=size)}
    checked = result(tmp_path, files)

    assert [(f.code, f.severity, f.file, f.line, f.value) for f in checked.findings] == [
        ("voc.size-missing", "info", "Annotations/0.xml", line, value)
    ]
    assert checked.manifest.images[0].boxes == (BIRD_BOX,)


def test_a_document_type_is_refused_and_hides_no_other_file(tmp_path):
    bad = '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n' + xml("&x;")
    files = voc_files() | {
        "Annotations/0.xml": bad,
        "Annotations/1.xml": xml("1.jpg", boxed("<xmin>8</xmin>")),
        "Annotations/2.xml": "<annotation>\n<object>\n",
    }
    problems = [("voc.box", "error", "Annotations/1.xml", 5, "")] * 3
    assert found(tmp_path, files) == [
        ("xml.forbidden", "error", "Annotations/0.xml", 1, "<!DOCTYPE annotation"),
        *problems,
        ("xml.invalid", "error", "Annotations/2.xml", 3, "no element found"),
    ]


def corner(text: str) -> str:
    return boxed(CORNERS.replace("<xmin>8</xmin>", f"\n<xmin>{text}</xmin>"))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (corner("nan"), [("label.not-finite", "error", 6, "nan")]),
        (corner("-Infinity"), [("label.not-finite", "error", 6, "-Infinity")]),
        (corner("1e400"), [("label.not-finite", "error", 6, "1e400")]),
        (corner(""), [("label.not-a-number", "error", 6, "")]),
        (corner("eight"), [("label.not-a-number", "error", 6, "eight")]),
        (corner("1_0"), [("label.not-a-number", "error", 6, "1_0")]),
        (corner("1,024"), [("label.not-a-number", "error", 6, "1,024")]),
        (corner("8,0"), [("label.decimal-comma", "warning", 6, "8,0")]),
        (boxed("<ymin>6</ymin><xmax>16</xmax><ymax>18</ymax>"), [("voc.box", "error", 5, "")]),
        (boxed(CORNERS + "<xmin>9</xmin>"), [("voc.box", "error", 5, "8, 9")]),
        (
            '<object><name>bird</name>\n<bndbox xmin="8" ymin="6" xmax="16" ymax="18"/></object>',
            [("voc.box", "error", 5, 'xmin="8" ymin="6" xmax="16" ymax="18"')],
        ),
        ("<object><name>bird</name></object>", [("voc.box", "error", 4, "<name>")]),
        (
            f"<object><name>bird</name><bndbox>{CORNERS}</bndbox><bndbox/></object>",
            [("voc.box", "error", 4, "<name> <bndbox> <bndbox>")],
        ),
        (boxed(CORNERS, ""), [("classes.names", "error", 4, "")]),
        (boxed(CORNERS, "<name> </name>"), [("classes.names", "error", 4, "")]),
        (boxed(CORNERS, "<name>a</name><name>b</name>"), [("classes.names", "error", 4, "a, b")]),
        (boxed(CORNERS, "<name>a\tb</name>"), [("classes.names", "error", 5, "a\tb")]),
        (BIRD + BIRD, [("label.duplicate", "info", 6, "8 6 16 18")]),
        (
            boxed(CORNERS.replace("18", "28")),
            [("label.clipped", "warning", 5, "8 6 16 28")],
        ),
        (
            boxed(CORNERS.replace("18", "99")),
            [("label.out-of-range", "error", 5, "8 6 16 99")],
        ),
    ],
)
def test_what_is_wrong_with_an_object_is_found_at_its_line(tmp_path, content, rows):
    assert of_first(tmp_path, xml("0.jpg", content)) == rows


def test_all_faults_of_an_object_are_listed(tmp_path):
    content = boxed("<xmin>nan</xmin>\n<ymin>x</ymin><xmax>16</xmax>", "")
    assert of_first(tmp_path, xml("0.jpg", content)) == [
        ("classes.names", "error", 4, ""),
        ("label.not-finite", "error", 5, "nan"),
        ("voc.box", "error", 5, ""),
        ("label.not-a-number", "error", 6, "x"),
    ]


def test_names_are_trimmed_and_what_is_beside_the_box_is_passed_over(tmp_path):
    extra = (
        "<object><pose>Left</pose><truncated>1</truncated><difficult>1</difficult>"
        "<occluded>1</occluded><polygon><x1>1</x1><y1>2</y1></polygon>"
        f"<part><name>head</name><bndbox>{CORNERS}</bndbox></part>"
        f"<name>\n traffic light </name><bndbox>{CORNERS}</bndbox></object>"
    )
    head = "<folder>../../etc</folder><path>C:\\x\\1.jpg</path><segmented>1</segmented>"
    content = xml("0.jpg", head, extra)
    checked = result(tmp_path, voc_files() | {"Annotations/0.xml": content})

    assert list(checked.findings) == []
    assert checked.classes == ("bird", "traffic light")
    assert checked.manifest.images[0].boxes == ((1, *BIRD_BOX[1:]),)


def test_an_image_with_no_object_is_background(tmp_path):
    files = voc_files() | {"Annotations/0.xml": xml("0.jpg", " ")}
    checked = result(tmp_path, files)
    assert (list(checked.findings), checked.background) == ([], 1)


@pytest.mark.parametrize("name", ["", "0", "gone.jpg", "0.JPG", "0.png", "no.ending"])
def test_the_label_files_own_name_counts_where_filename_names_nothing(tmp_path, name):
    checked = result(tmp_path, voc_files() | {"Annotations/0.xml": xml(name)})

    line = 2 if name else 1
    assert [(f.code, f.severity, f.line, f.value) for f in checked.findings] == [
        ("voc.filename", "info", line, name)
    ]
    assert checked.manifest.images[0].boxes == (BIRD_BOX,)


@pytest.mark.parametrize("name", ["1.jpg", "1", "JPEGImages/1.jpg"])
def test_a_label_file_called_after_one_image_that_names_another_is_refused(tmp_path, name):
    files = voc_files()
    files["Annotations/0.xml"] = xml(name)
    del files["Annotations/1.xml"]
    assert found(tmp_path, files) == [("voc.filename", "error", "Annotations/0.xml", 2, name)]


@pytest.mark.parametrize("name", ["0.jpg", "0", "JPEGImages\\0.jpg", "../JPEGImages/0.jpg"])
def test_a_label_file_of_another_name_is_of_the_image_that_it_names(tmp_path, name):
    files = voc_files()
    files["Annotations/first.xml"] = files.pop("Annotations/0.xml").replace("0.jpg", name)
    rows = found(tmp_path, files)
    expected = [("voc.filename", "info", "Annotations/first.xml", 2, "0")] if name == "0" else []
    assert rows == expected


@pytest.mark.parametrize("name", ["../../0.jpg", "C:\\0.jpg", "/0.jpg", "..\\..\\x"])
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    assert of_first(tmp_path, xml(name)) == [("files.path-escape", "error", 2, name)]


def test_a_label_file_without_an_image_is_a_warning(tmp_path):
    files = voc_files() | {"Annotations/gone.xml": xml("lost.jpg")}
    assert found(tmp_path, files) == [
        ("files.label-without-image", "warning", "Annotations/gone.xml", 2, "lost.jpg")
    ]


def test_two_label_files_of_one_image_are_refused(tmp_path):
    files = voc_files() | {"backup/0.xml": xml()}
    assert found(tmp_path, files) == [
        ("files.stem-collision", "error", "backup/0.xml", None, "JPEGImages/0.jpg")
    ]


def test_a_label_file_that_could_be_of_two_images_is_refused(tmp_path):
    files = voc_files() | {"JPEGImages/0.png": picture(9, kind="PNG")}
    files["Annotations/0.xml"] = xml("")
    assert found(tmp_path, files) == [
        (
            "files.stem-collision",
            "error",
            "Annotations/0.xml",
            1,
            "JPEGImages/0.jpg, JPEGImages/0.png",
        )
    ]


@pytest.mark.parametrize("layout", ["{split}/{kind}", "{kind}/{split}", "{split}"])
def test_equal_names_in_the_folders_of_splits_are_told_apart(tmp_path, layout):
    files: dict[str, str | bytes] = {}
    for number, split in enumerate(["train", "val"]):
        images, labels = (layout.format(split=split, kind=kind) for kind in ("images", "labels"))
        files |= {f"{images}/0.jpg": picture(number), f"{labels}/0.xml": xml()}
    checked = result(tmp_path, files)

    assert list(checked.findings) == []
    assert [image.split for image in checked.manifest.images] == ["train", "val"]


def test_other_xml_files_are_left_out(tmp_path):
    files = voc_files() | {"cvat.xml": "<annotations></annotations>"}
    assert found(tmp_path, files) == [
        ("files.not-labels", "warning", "cvat.xml", None, "<annotations>")
    ]


def test_images_without_label_files_are_background(tmp_path):
    files = voc_files()
    del files["Annotations/2.xml"]
    assert found(tmp_path, files) == [
        ("files.background", "warning", "JPEGImages/2.jpg", None, "1 of 3 images")
    ]
    del files["Annotations/1.xml"]
    assert found(tmp_path / "other", files) == [
        ("files.labels-missing", "error", "JPEGImages/1.jpg", None, "2 of 3 images")
    ]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"Annotations/0.xml": xml()}, "files.no-images"),
        ({"0.jpg": picture(0), "1.jpg": picture(1)}, "label.none"),
    ],
)
def test_a_set_without_images_or_labels_is_refused(tmp_path, files, code):
    assert [row[0] for row in found(tmp_path, files) if row[1] == "error"] == [code]


def splits(annotations: Annotations) -> dict[str, str | None]:
    return {Path(image.path).stem: image.split for image in annotations.images}


def read(folder: Path, files: dict[str, str | bytes]) -> tuple[Annotations, list[tuple]]:
    findings = Findings()
    tree = read_tree(write_files(folder, files), findings)
    annotations = read_annotations(tree, VOC, findings)
    return annotations, [(f.code, f.severity, f.file, f.line, f.value) for f in findings]


MAIN = "ImageSets/Main"


@pytest.mark.parametrize(
    ("lists", "expected", "rows"),
    [
        (
            {f"{MAIN}/train.txt": "0\r\n1\r\n", f"{MAIN}/val.txt": "2\n3\n"},
            {"0": "train", "1": "train", "2": "val", "3": "val"},
            [],
        ),
        (  # an image that is both validated and tested on stays where it is of use
            {f"{MAIN}/train.txt": "0\n1", f"{MAIN}/val.txt": "2\n3", f"{MAIN}/test.txt": "3"},
            {"0": "train", "1": "train", "2": "val", "3": "val"},
            [],
        ),
        (  # class-wise lists and those of other tasks say nothing, and trainval nothing here
            {
                f"{MAIN}/train.txt": "0",
                f"{MAIN}/val.txt": "1",
                f"{MAIN}/trainval.txt": "0\n1\n3",
                f"{MAIN}/test.txt": "2\ngone\n",
                f"{MAIN}/bird_train.txt": "3 1\n",
                "ImageSets/Segmentation/train.txt": "3\n",
            },
            {"0": "train", "1": "val"},
            [
                ("files.unlisted-image", "warning", "JPEGImages/3.jpg", None, "1 images"),
            ],
        ),
        (
            {f"{MAIN}/trainval.txt": "0\n1\n2\n", f"{MAIN}/test.txt": "3"},
            {"0": None, "1": None, "2": None},
            [],
        ),
        (
            {"ImageSets/train.txt": "0  1\n1 -1\n2", "ImageSets/val.txt": '"3"\nJPEGImages/3.jpg'},
            {"0": "train", "1": "train", "2": "train", "3": "val"},
            [],
        ),
        (
            {f"{MAIN}/train.txt": "0\ngone\n../../1\n", f"{MAIN}/val.txt": "1\n2\n3"},
            {"0": "train", "1": "val", "2": "val", "3": "val"},
            [
                ("files.missing-image", "error", f"{MAIN}/train.txt", 2, "gone"),
                ("files.missing-image", "error", f"{MAIN}/train.txt", 3, "../../1"),
            ],
        ),
        (
            {f"{MAIN}/train.txt": "0\n1\n2\n3", f"{MAIN}/val.txt": "\n"},
            {"0": "train", "1": "train", "2": "train", "3": "train"},
            [("split.too-few-images", "error", f"{MAIN}/val.txt", None, "")],
        ),
        (
            {f"{MAIN}/train.txt": "0\n1\n2", f"{MAIN}/val.txt": "2\n3"},
            {"0": "train", "1": "train", "2": "train", "3": "val"},
            [("split.leakage", "error", "JPEGImages/2.jpg", None, "")],
        ),
        ({f"{MAIN}/test.txt": "0\n"}, dict.fromkeys("0123"), []),
    ],
)
def test_the_lists_say_what_is_in_which_split(tmp_path, lists, expected, rows):
    annotations, found = read(tmp_path, voc_files(4) | lists)
    assert splits(annotations) == expected
    assert found == rows


def test_unlisted_images_need_no_labels(tmp_path):
    files = voc_files(3) | {f"{MAIN}/train.txt": "0", f"{MAIN}/val.txt": "1"}
    del files["Annotations/2.xml"]
    assert [row[0] for row in read(tmp_path, files)[1]] == ["files.unlisted-image"]


def test_each_data_set_of_a_collection_has_its_lists(tmp_path):
    files: dict[str, str | bytes] = {}
    for number, (year, split) in enumerate([("VOC2007", "train"), ("VOC2012", "val")]):
        files |= {
            f"{year}/JPEGImages/0.jpg": picture(number),
            f"{year}/Annotations/0.xml": xml(),
            f"{year}/ImageSets/Main/{split}.txt": "0",
        }
    annotations, found = read(tmp_path, files)
    assert found == []
    assert [(i.path[:7], i.split) for i in annotations.images] == [
        ("VOC2007", "train"),
        ("VOC2012", "val"),
    ]


GOOD = xml().encode()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    start, end = sorted(draw(st.integers(0, len(GOOD))) for _ in range(2))
    piece = draw(st.binary(max_size=8) | st.sampled_from([b"<object>", b"nan", b"..", b"&x;", b""]))
    return GOOD[:start] + piece + GOOD[end:]


@given(mutated() | st.binary(max_size=64))
def test_arbitrary_bytes_and_mutations_give_only_findings(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("voc")
    (folder / "0.xml").write_bytes(content)
    (folder / "0.jpg").write_bytes(b"")
    files = {name: folder / name for name in ("0.xml", "0.jpg")}
    findings = Findings()
    annotations = read_voc(Tree(folder, files), VOC, findings)

    assert {image.path for image in annotations.images} == {"0.jpg"}
