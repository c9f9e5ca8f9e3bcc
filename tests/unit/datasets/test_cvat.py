"""CVAT for images 1.1: images, shapes and classes of an export."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.check import CheckResult, check
from perdure.datasets.findings import Findings
from perdure.datasets.formats.cvat import read_cvat
from perdure.datasets.rules import ImportRules
from perdure.datasets.tree import Tree
from tests.builders.datasets import picture, write_files

FILE = "annotations.xml"
BOX = (
    '<box label="bird" source="manual" occluded="0" xtl="8" ytl="6" xbr="16" ybr="18" z_order="0"/>'
)
# Shares of a 32 x 24 image, by hand: (8 + 16) / 2 / 32, (6 + 18) / 2 / 24, 8 / 32, 12 / 24.
BIRD_BOX = (0, 0.375, 0.5, 0.25, 0.5)
META = (
    "<meta><task><id>1</id><labels>"
    "<label><name>bird</name><color>#fff</color><type>any</type><attributes/></label>"
    "</labels></task></meta>"
)


def image(number: int, *shapes: str, extra: str = "") -> str:
    head = f'<image id="{number}" name="{number}.jpg" width="32" height="24" {extra}>'
    return "\n".join([head, *shapes, "</image>"])


def export(*images: str, meta: str = META) -> str:
    """An export: <meta> is in line 3, the first image in line 4, and its first shape in line 5."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<annotations><version>1.1</version>", meta]
    return "\n".join([*lines, *images, "</annotations>\n"])


def cvat_files(*first: str, meta: str = META) -> dict[str, str | bytes]:
    """Three images: the first has the shapes `first`, each of the others a bird."""
    return {
        FILE: export(image(0, *first), image(1, BOX), image(2, BOX), meta=meta),
        "images/0.jpg": picture(0),
        "images/1.jpg": picture(1),
        "images/2.jpg": picture(2),
    }


def result(folder: Path, files: dict[str, str | bytes], **rules) -> CheckResult:
    return check(write_files(folder, files), ImportRules(format="cvat", **rules))


def rows(checked: CheckResult) -> list[tuple]:
    """The findings: code, severity, line, value."""
    return [(f.code, str(f.severity), f.line, f.value) for f in checked.findings]


def test_a_clean_export_has_no_findings_and_is_recognised(tmp_path):
    given = result(tmp_path / "set", cvat_files(BOX))
    recognised = check(tmp_path / "set")

    assert (list(given.findings), given.format, given.classes) == ([], "cvat", ("bird",))
    assert [image.boxes for image in given.manifest.images] == [(BIRD_BOX,)] * 3
    assert recognised.manifest.version == given.manifest.version


def pixels(checked: CheckResult) -> list[float]:
    """Left, top, right, bottom of the one box on the first image."""
    [(_, x, y, width, height)] = checked.manifest.images[0].boxes
    left, top = (x - width / 2) * 32, (y - height / 2) * 24
    return [left, top, left + width * 32, top + height * 24]


@pytest.mark.parametrize(
    ("shape", "corners", "finding"),
    [
        # A box of 8 x 12 around (12, 12), turned by a quarter: 12 x 8.
        (BOX.replace("/>", ' rotation="90.0"/>'), [6, 8, 18, 16], ("label.rotated", "90 degrees")),
        # A box of 8 x 4 around (12, 12), turned by 30 degrees: half of its envelope is
        # 4 * cos 30 + 2 * sin 30 = 4.464102 wide and 4 * sin 30 + 2 * cos 30 = 3.732051 high.
        (
            '<box label="bird" xtl="8" ytl="10" xbr="16" ybr="14" rotation="30"/>',
            [7.535898, 8.267949, 16.464102, 15.732051],
            ("label.rotated", "30 degrees"),
        ),
        (BOX.replace("/>", ' rotation="360"/>'), [8, 6, 16, 18], None),
        (
            '<polygon label="bird" points="10.5,4.00;20,8;5,16.25"/>',
            [5, 4, 20, 16.25],
            ("label.polygon-to-box", "polygon"),
        ),
        (
            '<mask label="bird" rle="1,2,3" left="4" top="5" width="6" height="7"/>',
            [4, 5, 10, 12],
            ("label.polygon-to-box", "mask"),
        ),
        (
            '<ellipse label="bird" cx="16" cy="12" rx="8" ry="4"/>',
            [8, 8, 24, 16],
            ("label.polygon-to-box", "ellipse"),
        ),
        # Half of an ellipse's envelope is sqrt((8 cos 45)^2 + (4 sin 45)^2) = 6.324555.
        (
            '<ellipse label="bird" cx="16" cy="12" rx="8" ry="4" rotation="45"/>',
            [9.675445, 5.675445, 22.324555, 18.324555],
            ("label.polygon-to-box", "ellipse"),
        ),
        (
            '<cuboid label="bird" xtl1="4" ytl1="6" xbl1="4" ybl1="16" xtr1="12" ytr1="5" '
            'xbr1="12" ybr1="18" xtl2="20" ytl2="7" xbl2="20" ybl2="15" xtr2="10" ytr2="8" '
            'xbr2="10" ybr2="14"/>',
            [4, 5, 20, 18],
            ("label.polygon-to-box", "cuboid"),
        ),
    ],
)
def test_of_other_shapes_the_smallest_box_is_taken(tmp_path, shape, corners, finding):
    checked = result(tmp_path, cvat_files(shape))

    assert pixels(checked) == pytest.approx(corners, abs=1e-5)
    severity = "warning" if finding and finding[0] == "label.rotated" else "info"
    assert rows(checked) == ([(finding[0], severity, 5, finding[1])] if finding else [])


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ('<points label="bird" points="1,2"/>', ("label.not-a-box", "warning", 5, "points")),
        (
            '<polyline label="bird" points="1,2;3,4"/>',
            ("label.not-a-box", "warning", 5, "polyline"),
        ),
        (
            '<skeleton label="bird"><points label="beak" points="1,2"/></skeleton>',
            ("label.not-a-box", "warning", 5, "skeleton"),
        ),
        ('<blob label="bird"/>', ("label.not-a-box", "error", 5, "blob")),
        (
            '<polygon label="bird" points="1,2;3,4"/>',
            ("label.not-a-box", "error", 5, "1,2;3,4"),
        ),
        (
            '<polygon label="bird" points="1,2;3,4;5"/>',
            ("label.not-a-box", "error", 5, "1,2;3,4;5"),
        ),
        (
            '<polygon label="bird" points="1,2;3,inf;5,6"/>',
            ("label.not-finite", "error", 5, "inf"),
        ),
        ('<polygon label="bird"/>', ("label.not-a-box", "error", 5, "")),
        (BOX.replace('"8"', '"nan"'), ("label.not-finite", "error", 5, "nan")),
        (BOX.replace('"8"', '"1e999"'), ("label.not-finite", "error", 5, "1e999")),
        (BOX.replace('"8"', '"8,5"'), ("label.not-a-number", "error", 5, "8,5")),
        (BOX.replace('xtl="8"', ""), ("label.not-a-number", "error", 5, "")),
        (BOX.replace('"bird"', '" "'), ("classes.names", "error", 5, "<box>")),
        (BOX.replace('"bird"', '"cat"'), ("label.class-out-of-range", "error", 5, "cat")),
        (BOX.replace('"16"', '"8"'), ("label.degenerate-box", "error", 5, "8 6 8 18")),
        (
            BOX.replace('"16"', '"7"').replace("/>", ' rotation="45"/>'),
            ("label.degenerate-box", "error", 5, "8 6 7 18"),
        ),
        (BOX.replace('"18"', '"99"'), ("label.out-of-range", "error", 5, "8 6 16 99")),
    ],
)
def test_what_is_wrong_with_a_shape_is_found_at_its_line(tmp_path, shape, row):
    assert rows(result(tmp_path, cvat_files(shape))) == [row]


def test_a_tag_of_the_whole_image_is_passed_over(tmp_path):
    checked = result(tmp_path, cvat_files('<tag label="bird"/>'))
    assert (rows(checked), checked.background) == ([], 1)


def labels(*names: str) -> str:
    return "<labels>" + "".join(f"<label><name>{n}</name></label>" for n in names) + "</labels>"


@pytest.mark.parametrize("place", ["task", "project", "job"])
def test_the_declared_labels_are_the_classes_in_their_order(tmp_path, place):
    meta = f"<meta><{place}>{labels('cat', ' bird ')}</{place}></meta>"
    checked = result(tmp_path, cvat_files(BOX, meta=meta))

    assert checked.classes == ("cat", "bird")
    assert rows(checked) == [("classes.unused", "warning", None, "cat")]
    assert checked.manifest.images[0].boxes == ((1, *BIRD_BOX[1:]),)


def test_the_points_of_a_skeleton_are_no_classes(tmp_path):
    beak = "<label><name>beak</name><type>points</type><parent>bird</parent></label></labels>"
    checked = result(tmp_path, cvat_files(BOX, meta=META.replace("</labels>", beak)))
    assert (rows(checked), checked.classes) == ([], ("bird",))


def test_a_class_whose_only_shape_is_refused_is_not_unused_as_well(tmp_path):
    meta = f"<meta><task>{labels('bird', 'cat')}</task></meta>"
    cat = BOX.replace("bird", "cat").replace('"8"', '"x"')
    assert rows(result(tmp_path, cvat_files(cat, meta=meta))) == [
        ("label.not-a-number", "error", 5, "x")
    ]


def test_without_declared_labels_the_classes_are_those_of_the_shapes(tmp_path):
    checked = result(tmp_path, cvat_files(BOX.replace("bird", "cat"), meta="<meta/>"))
    assert (rows(checked), checked.classes) == ([], ("bird", "cat"))


def test_subsets_are_splits(tmp_path):
    files = cvat_files() | {"images/3.jpg": picture(3)}
    subsets = ["Train", "val", "test", "Default"]
    files[FILE] = export(
        *(image(n, BOX, extra=f'subset="{subset}"') for n, subset in enumerate(subsets))
    )
    checked = result(tmp_path, files)

    assert (checked.left_out, rows(checked)) == (1, [])
    assert [(i.path, i.split) for i in checked.manifest.images] == [
        ("images/0.jpg", "train"),
        ("images/1.jpg", "val"),
        ("images/3.jpg", None),
    ]


def test_a_subset_that_is_no_split_is_refused_once(tmp_path):
    files = cvat_files()
    files[FILE] = export(*(image(n, BOX, extra='subset="fold1"') for n in range(3)))
    assert rows(result(tmp_path, files)) == [("cvat.subset", "error", 4, "fold1")]


def test_images_of_one_name_lie_in_the_folders_of_their_subsets(tmp_path):
    files = {
        "images/train/0.jpg": picture(0),
        "images/val/0.jpg": picture(1),
        FILE: export(image(0, BOX, extra='subset="train"'), image(0, BOX, extra='subset="val"')),
    }
    checked = result(tmp_path, files)
    assert rows(checked) == []
    assert [image.split for image in checked.manifest.images] == ["train", "val"]


def test_tracks_of_a_video_are_refused_once(tmp_path):
    track = '<track id="0" label="bird"><box frame="0" xtl="8" ytl="6" xbr="16" ybr="18"/></track>'
    files = cvat_files() | {FILE: export(track, track)}
    assert rows(result(tmp_path, files)) == [("cvat.video", "error", 4, "<track>")]


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ("", ("files.missing-image", "error", 4, "")),
        ('name="gone.jpg"', ("files.missing-image", "error", 4, "gone.jpg")),
        ('name="../../0.jpg"', ("files.path-escape", "error", 4, "../../0.jpg")),
        ('name="C:\\0.jpg"', ("files.path-escape", "error", 4, "C:\\0.jpg")),
        ('name="1.jpg"', ("cvat.image-twice", "error", 7, "1.jpg")),
    ],
)
def test_what_is_wrong_with_an_images_name_is_found_at_its_line(tmp_path, given, row):
    files = cvat_files(BOX)
    files[FILE] = files[FILE].replace('name="0.jpg"', given)
    assert [r for r in rows(result(tmp_path, files)) if r[1] == "error"] == [row]


@pytest.mark.parametrize(
    ("size", "row"),
    [
        ("", ("cvat.size-missing", "info", 4, "")),
        ('width="0" height="24"', ("cvat.size-missing", "info", 4, "0 x 24")),
        ('width="33" height="24"', ("label.size-mismatch", "error", None, "33 x 24")),
    ],
)
def test_the_size_is_compared_or_taken_from_the_image(tmp_path, size, row):
    files = cvat_files(BOX)
    files[FILE] = files[FILE].replace('width="32" height="24"', size, 1)
    assert rows(result(tmp_path, files)) == [row]


def test_images_that_are_not_listed_are_left_out(tmp_path):
    checked = result(tmp_path, cvat_files(BOX) | {"images/3.jpg": picture(3)})
    assert rows(checked) == [("files.unlisted-image", "warning", None, "1 of 4 images")]
    assert checked.images == 3


def test_a_broken_file_is_one_error_and_what_comes_before_it_is_checked(tmp_path):
    files = cvat_files(BOX.replace('"8"', '"x"'))
    files[FILE] = "</img>".join(files[FILE].rsplit("</image>", 1))
    assert rows(result(tmp_path, files)) == [
        ("label.not-a-number", "error", 5, "x"),
        ("xml.invalid", "error", 12, "mismatched tag"),
    ]


def test_a_document_type_is_refused(tmp_path):
    files = cvat_files(BOX)
    files[FILE] = files[FILE].replace("<annotations>", '<!DOCTYPE a SYSTEM "x">\n<annotations>')
    assert rows(result(tmp_path, files)) == [("xml.forbidden", "error", 2, "<!DOCTYPE a")]


def test_several_exports_are_read_together(tmp_path):
    files = {
        "a.xml": export(image(0, BOX), meta=f"<meta><task>{labels('bird')}</task></meta>"),
        "b.xml": export(image(1, BOX), meta=f"<meta><task>{labels('cat', 'bird')}</task></meta>"),
        "c.xml": "<annotation/>",
        "images/0.jpg": picture(0),
        "images/1.jpg": picture(1),
    }
    checked = result(tmp_path, files)
    assert checked.classes == ("bird", "cat")
    assert [(f.code, f.file) for f in checked.findings] == [
        ("classes.unused", "a.xml"),
        ("files.not-labels", "c.xml"),
    ]


def test_a_set_without_an_export_is_refused(tmp_path):
    files = {"images/0.jpg": picture(0), "images/1.jpg": picture(1)}
    assert [r[0] for r in rows(result(tmp_path, files)) if r[1] == "error"] == ["label.none"]


GOOD = cvat_files(BOX, '<polygon label="bird" points="1,2;3,4;5,6"/>')[FILE].encode()


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    start, end = sorted(draw(st.integers(0, len(GOOD))) for _ in range(2))
    piece = draw(st.binary(max_size=8) | st.sampled_from([b'"', b"1e308", b"nan", b"<box/>", b""]))
    return GOOD[:start] + piece + GOOD[end:]


@given(mutated() | st.binary(max_size=64))
def test_arbitrary_bytes_and_mutations_give_only_findings(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("cvat")
    (folder / FILE).write_bytes(content)
    (folder / "0.jpg").write_bytes(b"")
    findings = Findings()
    tree = Tree(folder, {name: folder / name for name in (FILE, "0.jpg")})
    annotations = read_cvat(tree, ImportRules(), findings)

    assert {image.path for image in annotations.images} <= {"0.jpg"}
