"""Probes of generated sets. What is expected is counted by hand, or by OpenCV."""

import json
from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
import pytest
from PIL import Image, ImageFilter

from perdure.datasets.appearance import appearance_of
from perdure.datasets.check import CheckResult, check, check_folder
from perdure.datasets.manifest import ManifestImage, manifest_of
from perdure.datasets.probe_measures import (
    COINCIDENT_IOU,
    boxes_of,
    coincident,
    deviations,
    strangeness,
)
from perdure.datasets.probe_summary import count_warnings, describe_probe
from perdure.datasets.probes import Oddity, Probe, probe
from perdure.errors import InvalidInput
from tests.builders.datasets import ROW, encoded, write_files

Files = dict[str, str | bytes]
COPIED = "images/000.png"


def scene(number: int, *, width: int = 320, height: int = 240) -> Image.Image:
    """A picture of soft shapes with some noise: all are about as bright and as sharp."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(60, 200, (9, 12, 3), dtype=np.uint8))
    soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noisy = soft + rng.integers(-10, 11, soft.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def png(image: Image.Image) -> bytes:
    return encoded(image, "PNG", compress_level=1)


def files_of(images: int = 40, *, label: str = ROW) -> Files:
    """A set in which nothing is odd: one class, one box on each image."""
    files: Files = {"data.yaml": "train: images\nnames: [bird]\n"}
    for number in range(images):
        files[f"images/{number:03}.png"] = png(scene(number))
        files[f"labels/{number:03}.txt"] = label
    return files


def probed(tmp_path, files: Files) -> Probe:
    return probe(check_folder(write_files(tmp_path / "set", files)))


def odd(found: Probe, code: str) -> Oddity:
    return next(oddity for oddity in found.oddities if oddity.code == code)


def test_a_set_like_any_other_gives_no_warning(tmp_path):
    found = probed(tmp_path, files_of())
    assert found.oddities == ()
    assert (found.images, found.boxes, found.empty, found.split) == (40, 40, 0, "")
    assert count_warnings(found) == "nothing stands out"


def changed(number: int, change: Callable[[Image.Image], Image.Image]) -> Files:
    return {f"images/{number:03}.png": png(change(scene(number)))}


def dark(image: Image.Image) -> Image.Image:
    return image.point(lambda value: value // 3)


def poster(image: Image.Image) -> Image.Image:
    """Stripes of two colours, as bright and as noisy as the others."""
    pixels = np.asarray(image, np.int16) // 4
    pixels[:, ::2] += 20
    pixels[:, :160] += (180, 60, 60)
    pixels[:, 160:] += (20, 130, 130)
    return Image.fromarray(pixels.astype(np.uint8))


PICTURES: dict[str, tuple[Files, list[str]]] = {
    "probe.brightness": (changed(7, dark), ["images/007.png"]),
    "probe.contrast": (
        changed(8, lambda image: Image.new("RGB", image.size, (130, 130, 130))),
        ["images/008.png"],
    ),
    "probe.blur": (
        changed(9, lambda image: image.filter(ImageFilter.GaussianBlur(3))),
        ["images/009.png"],
    ),
    "probe.unlike": (
        changed(10, poster),
        ["images/010.png"],
    ),
    "probe.image-small": (
        changed(11, lambda image: image.crop((0, 0, 159, 119))),
        ["images/011.png"],
    ),
    "probe.image-aspect": (
        {"images/012.png": png(scene(12, width=640, height=159))},
        ["images/012.png"],
    ),
    "probe.empty-labels": ({"labels/013.txt": ""}, ["images/013.png"]),
    "probe.duplicate-images": ({"images/014.png": png(scene(0))}, [COPIED]),
}


@pytest.mark.parametrize("code", PICTURES)
def test_one_odd_picture_is_found_and_nothing_else(tmp_path, code):
    files, expected = PICTURES[code]
    found = probed(tmp_path, files_of() | files)
    of_pictures = [oddity for oddity in found.oddities if oddity.code in PICTURES]
    assert [oddity.code for oddity in of_pictures] == [code]
    [oddity] = of_pictures
    assert (oddity.count, oddity.total) == (1, 40)
    assert [case.subject for case in oddity.cases] == expected
    assert oddity.warns == (oddity.kind.limit < 1 / 40)


def test_the_other_copy_is_named(tmp_path):
    found = probed(tmp_path, files_of() | {"images/014.png": png(scene(0))})
    [case] = odd(found, "probe.duplicate-images").cases
    assert (case.subject, case.other, case.value) == (COPIED, "images/014.png", 2)


def test_a_resized_copy_looks_alike(tmp_path):
    files = files_of() | {"images/015.png": png(scene(0).resize((300, 225)))}
    oddity = odd(probed(tmp_path, files), "probe.near-duplicates")
    assert (oddity.count, oddity.warns) == (2, False)
    assert (oddity.cases[0].subject, oddity.cases[0].other) == (COPIED, "images/015.png")


# An image of 320 x 240 is scaled by 2: 8 pixels of 640 are 4 of 320, a share of 0.0125.
# Boxes are numbered in the order of the manifest, which sorts them.
BOXES: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "probe.tiny-boxes": ("0 .5 .5 .03 .03\n0 .5 .5 .0124 .3\n0 .3 .3 .04 .04\n", 2, (1, 2)),
    "probe.full-image-boxes": ("0 .5 .5 .98 .98\n0 .5 .5 .9 .9\n", 1, (1,)),
    # 320 * 0.8 / (240 * 0.05) = 21.3; 320 * 0.7 / 12 = 18.7
    "probe.box-aspect": ("0 .5 .5 .8 .05\n0 .5 .3 .7 .05\n", 1, (1,)),
    "probe.box-twice": ("0 .5 .5 .4 .4\n0 .5 .5 .4 .399\n0 .5 .5 .3 .3\n", 1, (1, 2)),
    "probe.box-two-classes": ("0 .5 .5 .4 .4\n1 .5 .5 .4 .399\n", 1, (0, 1)),
}


@pytest.mark.parametrize("code", BOXES)
def test_odd_boxes_are_found_and_nothing_else(tmp_path, code):
    label, count, numbers = BOXES[code]
    files = files_of() | {"labels/003.txt": label}
    files["data.yaml"] = "train: images\nnames: [bird, fish]\n"
    found = probed(tmp_path, files)
    assert [oddity.code for oddity in found.oddities if oddity.code in BOXES] == [code]
    oddity = odd(found, code)
    assert oddity.count == count
    assert oddity.total == 39 + label.count("\n")
    [case] = oddity.cases
    assert case.subject == "images/003.png"
    assert sorted(case.boxes) == sorted(numbers)


def test_the_worst_come_first(tmp_path):
    files = files_of() | {
        "labels/001.txt": "0 .5 .5 .02 .02\n",
        "labels/002.txt": "0 .5 .5 .015 .015\n0 .2 .2 .03 .03\n",
    }
    cases = odd(probed(tmp_path, files), "probe.tiny-boxes").cases
    assert [(case.subject, case.value) for case in cases] == [
        ("images/002.png", 0.000225),
        ("images/001.png", 0.0004),
    ]
    assert cases[0].note == "2 boxes of bird"


def test_warnings_come_before_what_is_below_its_limit(tmp_path):
    found = probed(tmp_path, files_of() | PICTURES["probe.blur"][0] | {"labels/013.txt": ""})
    assert [(oddity.code, oddity.warns) for oddity in found.oddities] == [
        ("probe.blur", True),
        ("probe.empty-labels", False),
    ]
    assert found.warnings == found.oddities[:1]


def test_boxes_that_were_cut_are_counted_from_the_findings(tmp_path):
    found = probed(tmp_path, files_of() | {"labels/004.txt": "0 .05 .5 .2 .2\n0 .9 .4 .3 .2\n"})
    oddity = odd(found, "probe.clipped-boxes")
    assert (oddity.count, oddity.total, oddity.warns) == (2, 41, True)
    assert [(case.subject, case.note) for case in oddity.cases] == [
        ("labels/004.txt", "line 1"),
        ("labels/004.txt", "line 2"),
    ]
    assert found.findings == (("warning", "label.clipped", 2),)


def classes_of(rows: dict[str, str], names: str) -> Files:
    """Images 0..29 train and 30..39 validate; `rows` are their labels, by number."""
    files = files_of()
    for number in range(40):
        split = "train" if number < 30 else "val"
        for folder, suffix in (("images", "png"), ("labels", "txt")):
            content = files.pop(f"{folder}/{number:03}.{suffix}")
            files[f"{split}/{folder}/{number:03}.{suffix}"] = content
        if label := rows.get(f"{number:03}"):
            files[f"{split}/labels/{number:03}.txt"] = label
    files["data.yaml"] = f"train: train/images\nval: val/images\nnames: {names}\n"
    return files


def test_classes_are_counted_by_split(tmp_path):
    rows = {
        "000": "1 .5 .5 .2 .2\n1 .2 .2 .2 .2\n0 .8 .8 .2 .2\n",
        "035": "2 .5 .5 .2 .2\n2 .2 .2 .2 .2\n",
    }
    found = probed(tmp_path, classes_of(rows, "[bird, cat, dog, eel]"))
    counted = {
        c.name: (c.boxes, c.images, c.train_boxes, c.train_images, c.val_boxes, c.val_images)
        for c in found.classes
    }
    assert counted == {
        "bird": (39, 39, 30, 30, 9, 9),
        "cat": (2, 1, 2, 1, 0, 0),
        "dog": (2, 1, 0, 0, 2, 1),
        "eel": (0, 0, 0, 0, 0, 0),
    }
    assert found.split == "given"
    alone = odd(found, "probe.class-one-split")
    assert [(case.subject, case.note) for case in alone.cases] == [
        ("cat", "all in train"),
        ("dog", "all in val"),
    ]
    rare = odd(found, "probe.class-rare")
    assert (rare.count, rare.total, rare.warns) == (2, 4, True)
    assert [(case.subject, case.value) for case in rare.cases] == [("cat", 1), ("dog", 1)]


def test_a_split_that_was_made_counts_too(tmp_path):
    checked = check(write_files(tmp_path / "set", files_of(20)))
    assert probe(checked).classes[0].val_images == 0
    sides = {image.path: "train" for image in checked.manifest.images} | {COPIED: "val"}
    found = probe(checked, sides)
    assert (found.split, found.classes[0].train_images, found.classes[0].val_images) == (
        "made",
        19,
        1,
    )


@pytest.mark.parametrize(("boxes", "warns"), [(100, False), (101, True)])
def test_a_class_far_behind_another_is_named(tmp_path, boxes, warns):
    label = "".join(f"0 {0.1 + n * 0.006:.4f} .5 .05 .05\n" for n in range(boxes))
    files = files_of(2) | {"labels/000.txt": label, "labels/001.txt": "1 .5 .5 .2 .2\n"}
    files["data.yaml"] = "train: images\nnames: [bird, fish]\n"
    found = probed(tmp_path, files)
    named = [o.cases[0].subject for o in found.oddities if o.code == "probe.class-imbalance"]
    assert named == (["fish"] if warns else [])


def test_a_share_at_the_limit_is_no_warning(tmp_path):
    files = files_of(10) | dict.fromkeys(["labels/000.txt", "labels/001.txt", "labels/002.txt"], "")
    assert not odd(probed(tmp_path / "three", files), "probe.empty-labels").warns
    files["labels/003.txt"] = ""
    oddity = odd(probed(tmp_path / "four", files), "probe.empty-labels")
    assert (oddity.share, oddity.warns) == (0.4, True)


def test_the_json_says_all_and_is_the_same_each_time(tmp_path):
    folder = write_files(tmp_path / "set", files_of() | PICTURES["probe.blur"][0])
    one, other = probe(check(folder)), probe(check(folder))
    assert (one.text, one.digest) == (other.text, other.digest)
    form = json.loads(one.text)
    assert (form["format"], form["version"]) == ("perdure.probe/1", check(folder).manifest.version)
    assert (form["images"], form["boxes"], form["empty_share"], form["split"]) == (40, 40, 0, None)
    assert form["warnings"] == ["probe.blur"]
    [oddity] = form["oddities"]
    assert (oddity["share"], oddity["limit"], oddity["warning"]) == (0.025, 0.01, True)
    assert oddity["cases"][0]["subject"] == "images/009.png"
    by_name = {histogram["name"]: histogram for histogram in form["histograms"]}
    for histogram in by_name.values():
        assert len(histogram["edges"]) == len(histogram["counts"]) + 1
        assert sum(histogram["counts"]) == 40
    sizes = by_name["image-longer-side"]
    assert sizes["counts"][sizes["edges"].index(256)] == 40
    areas = by_name["box-area"]  # 0.2 * 0.4
    assert areas["counts"][areas["edges"].index(0.05)] == 40


def test_a_set_with_errors_is_not_probed(tmp_path):
    folder = write_files(tmp_path / "set", files_of(3) | {"labels/000.txt": "9 .5 .5 .1 .1"})
    with pytest.raises(InvalidInput, match="correct them first"):
        probe(check(folder))


def test_images_without_any_box_can_be_probed(tmp_path):
    checked = check(write_files(tmp_path / "set", files_of(3)))
    bare = tuple(replace(image, boxes=()) for image in checked.manifest.images)
    found = probe(replace(checked, manifest=manifest_of(("bird",), bare)))
    assert (found.empty, found.boxes, found.classes[0].boxes) == (3, 0, 0)
    assert [oddity.code for oddity in found.oddities] == ["probe.empty-labels"]


def test_warnings_are_told_in_lines(tmp_path):
    lines = describe_probe(probed(tmp_path, files_of() | PICTURES["probe.blur"][0]))
    assert lines[0] == "40 images, 40 boxes, 1 class: bird"
    assert lines[1].startswith("warning probe.blur (1 of 40 images, 2.5 %): images are far less")
    assert lines[3].startswith("  images/009.png: sharpness ")
    assert lines[-1] == "1 warning: probe.blur"


# ---- measures ------------------------------------------------------------------------------------


def test_brightness_and_contrast_are_those_of_the_luma():
    gray = appearance_of(np.full((50, 70, 3), 90, np.uint8))
    assert (gray.brightness, gray.contrast, gray.sharpness) == (90, 0, 0)
    halves = np.zeros((64, 64, 3), np.uint8)
    halves[:, 32:] = 255
    seen = appearance_of(halves)
    assert (seen.brightness, seen.contrast) == (127.5, 127.5)
    red = appearance_of(np.full((40, 40, 3), (255, 0, 0), np.uint8))
    assert red.brightness == 76  # 0.299 * 255


@pytest.mark.parametrize(("width", "height"), [(640, 480), (300, 500), (97, 61)])
def test_sharpness_is_the_variance_of_the_laplacian(width, height):
    pixels = np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    expected = cv2.Laplacian(gray, cv2.CV_64F)[1:-1, 1:-1].var()
    assert appearance_of(pixels).sharpness == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("times", [2, 3, 1.5])
def test_sharpness_does_not_depend_on_the_size_of_the_file(times):
    # Detail of three pixels: a single one depends on where the smaller image's pixels fall.
    pixels = np.asarray(
        scene(5, width=213, height=160).resize((640, 480), Image.Resampling.BICUBIC)
    )
    larger = cv2.resize(pixels, None, fx=times, fy=times, interpolation=cv2.INTER_CUBIC)
    assert appearance_of(larger).sharpness == pytest.approx(
        appearance_of(pixels).sharpness, rel=0.35
    )
    blurred = cv2.GaussianBlur(larger, (0, 0), 2 * times)
    assert appearance_of(blurred).sharpness < appearance_of(pixels).sharpness / 3


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 900, 3), (3, 3, 3), (1, 4000, 3), (20, 2, 3)])
def test_the_smallest_images_have_a_look(shape):
    assert appearance_of(np.full(shape, 7, np.uint8)).brightness == 7


def test_deviations_are_modified_z_scores():
    # Median 3, median absolute deviation 1: 0.6745 * 97.
    assert deviations(np.array([1.0, 2, 3, 4, 100]))[-1] == pytest.approx(65.4265)
    # Most are equal: the mean absolute deviation stands in, 10 / 5 / 0.7979.
    assert deviations(np.array([1.0, 1, 1, 1, 11]))[-1] == pytest.approx(10 / (2 / 0.7979))
    assert deviations(np.ones(4)).tolist() == [0, 0, 0, 0]
    assert len(deviations(np.empty(0))) == 0


def iou_of(one, other) -> float:
    def shared(x, size, y, other_size):
        return max(0, min(x + size / 2, y + other_size / 2) - max(x - size / 2, y - other_size / 2))

    inside = shared(one[1], one[3], other[1], other[3]) * shared(one[2], one[4], other[2], other[4])
    return inside / (one[3] * one[4] + other[3] * other[4] - inside)


def test_coincident_boxes_are_those_that_comparing_all_pairs_finds():
    rng = np.random.default_rng(11)
    images = []
    for number in range(30):
        kept = rng.random((12, 4)) * [0.4, 0.4, 0.2, 0.2] + [0.3, 0.3, 0.05, 0.05]
        near = kept[:6] + rng.normal(0, 0.0012, (6, 4))
        rows = [(int(rng.integers(2)), *map(float, row)) for row in np.concatenate([kept, near])]
        images.append(ManifestImage(f"{number:02}", "", 1, 100, 80, tuple(rows), None))
    expected = set()
    first = 0
    for image in images:
        for one in range(18):
            for other in range(one + 1, 18):
                if iou_of(image.boxes[one], image.boxes[other]) > COINCIDENT_IOU:
                    expected.add((first + one, first + other))
        first += 18
    one, other, iou = coincident(boxes_of(images))
    assert len(expected) > 50
    assert set(zip(one.tolist(), other.tolist(), strict=True)) == expected
    assert iou.min() > COINCIDENT_IOU


def test_of_several_scenes_each_is_its_own_company():
    looks = [appearance_of(np.asarray(scene(number))) for number in range(30)]
    dark = [appearance_of(np.asarray(scene(n)) // 6) for n in range(30, 60)]
    alone = appearance_of(np.asarray(scene(99)) // 2 + 128)
    strange = strangeness([*looks, *dark, alone])
    assert strange.argmax() == 60
    assert strange[60] > 2 * np.sort(strange)[-2]


def test_strangeness_needs_company():
    assert strangeness([appearance_of(np.asarray(scene(1)))] * 5).tolist() == [0] * 5


def test_the_result_of_a_check_has_a_look_for_each_image(tmp_path):
    checked: CheckResult = check(write_files(tmp_path / "set", files_of(3)))
    assert set(checked.appearances) == {image.path for image in checked.manifest.images}
