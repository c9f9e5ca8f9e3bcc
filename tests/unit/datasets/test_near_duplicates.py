import io
from dataclasses import replace

import cv2
import numpy as np
import pytest
from PIL import Image, ImageEnhance

from perdure.datasets.appearance import Appearance, appearance_of
from perdure.datasets.check import check
from perdure.datasets.findings import Findings
from perdure.datasets.near_duplicates import NearDuplicate, near_duplicates, report_crossing
from perdure.datasets.rules import ImportRules
from tests.builders.datasets import ROW, encoded, picture, write_files


def scene(number: int, *, width: int = 160, height: int = 120) -> Image.Image:
    """A picture of soft shapes, as photographs have them: no two numbers give similar ones."""
    coarse = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))


def look(image: Image.Image) -> Appearance:
    return appearance_of(np.asarray(image.convert("RGB")))


def encoded_again(image: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(encoded(image, "JPEG", quality=quality)))


COPIES = {
    "half": lambda image: image.resize((80, 60)),
    "double": lambda image: image.resize((320, 240)),
    "other shape of pixels": lambda image: image.resize((113, 83), Image.Resampling.NEAREST),
    "quality 30": lambda image: encoded_again(image, 30),
    "quality 95": lambda image: encoded_again(image, 95),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.1),
    "less contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.8),
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_is_found_and_nothing_else(copy):
    looks = {f"{number}.png": look(scene(number)) for number in range(60)}
    looks |= {f"{number}-copy.png": look(COPIES[copy](scene(number))) for number in range(20)}

    pairs = near_duplicates(looks, {path: path for path in looks})

    assert [(pair.first, pair.second) for pair in pairs] == sorted(
        (f"{number}-copy.png", f"{number}.png") for number in range(20)
    )


def test_few_pairs_of_a_validation_image_are_named_and_all_images_are_counted():
    pairs = [NearDuplicate("v1", f"x{number}", 0) for number in range(9)]
    pairs += [NearDuplicate("v2", "x0", 0)]
    sides = {f"x{number}": "train" for number in range(9)}
    findings = Findings()
    report_crossing(pairs, sides | {"v1": "val", "v2": "val", "v3": "val"}, findings)

    assert [found.file for found in findings] == ["v1"] * 3 + ["v2"]
    assert "2 of 3 validation images" in findings[0].rule


def test_identical_bytes_are_no_near_duplicates():
    looks = {"a": look(scene(1)), "b": look(scene(1)), "c": look(scene(1))}
    assert near_duplicates(looks, {"a": "x", "b": "x", "c": "y"}) == (
        NearDuplicate("a", "c", 0),
        NearDuplicate("b", "c", 0),
    )


def test_pages_with_nothing_on_them_do_not_look_alike():
    pages = {str(level): look(Image.new("RGB", (64, 48), (level,) * 3)) for level in (250, 251)}
    assert near_duplicates(pages, {path: path for path in pages}) == ()


def test_walls_of_one_colour_do_not_look_alike():
    walls = {str(red): look(Image.new("RGB", (64, 48), (red, 180, 120))) for red in (200, 201)}
    assert near_duplicates(walls, {path: path for path in walls}) == ()


def test_frames_of_a_fixed_camera_differ_by_what_is_in_them():
    frames = {}
    for number in range(12):
        frame = scene(1, width=640, height=480)
        frame.paste((20, 20, 20), (50 * number, 200, 50 * number + 40, 240))
        frames[str(number)] = look(frame)
    assert near_duplicates(frames, {path: path for path in frames}) == ()


@pytest.mark.parametrize("bits", range(5))
def test_every_pair_within_the_distance_is_a_candidate(bits):
    rng = np.random.default_rng(bits)
    seen = look(scene(1))
    for _ in range(200):
        phash = int(rng.integers(2**63))
        flipped = sum(1 << int(bit) for bit in rng.choice(64, bits, replace=False))
        looks = {"a": replace(seen, phash=phash), "b": replace(seen, phash=phash ^ flipped)}
        assert near_duplicates(looks, {"a": "a", "b": "b"}) == (NearDuplicate("a", "b", bits),)


def test_a_set_of_one_scene_stays_feasible():
    looks = {f"{number:04}": look(scene(1)) for number in range(3000)}
    pairs = near_duplicates(looks, {path: path for path in looks})
    assert len(pairs) < 3000 * 31


@pytest.mark.parametrize("copy", ["half", "quality 30"])
def test_a_picture_in_train_and_again_in_val_is_a_warning(tmp_path, copy):
    # Row 39 of the handed cases.
    files: dict[str, str | bytes] = {
        "data.yaml": "train: images/train\nval: images/val\nnames: [bird]\n"
    }
    for number in range(4):
        split = "train" if number < 2 else "val"
        files[f"images/{split}/{number}.png"] = encoded(scene(number), "PNG")
        files[f"labels/{split}/{number}.txt"] = ROW
    files["images/val/again.png"] = encoded(COPIES[copy](scene(0)), "PNG")
    files["labels/val/again.txt"] = ROW
    result = check(write_files(tmp_path / "set", files))

    assert result.ok
    assert [(f.code, f.severity, f.file, f.value) for f in result.findings] == [
        ("split.near-duplicate", "warning", "images/val/again.png", "images/train/0.png")
    ]
    assert "1 of 3 validation images" in result.findings[0].rule


def test_an_image_in_train_and_in_val_is_refused_or_allowed(tmp_path):
    files: dict[str, str | bytes] = {
        "data.yaml": "train: images/train\nval: images/val\nnames: [bird]\n"
    }
    for number, split in ((0, "train"), (1, "val"), (2, "val")):
        files[f"images/{split}/{number}.jpg"] = picture(number)
        files[f"labels/{split}/{number}.txt"] = ROW
    files["images/val/2.jpg"] = picture(0)
    folder = write_files(tmp_path / "set", files)

    def found(rules: ImportRules) -> list[tuple[str, str, str, str]]:
        return [(f.code, f.severity, f.file, f.value) for f in check(folder, rules).findings]

    place = ("images/val/2.jpg", "images/train/0.jpg")
    assert found(ImportRules()) == [("split.leakage", "error", *place)]
    assert found(ImportRules(allow_leakage=True)) == [("split.leakage", "warning", *place)]


def test_groups_that_a_given_split_divides_are_named(tmp_path):
    files: dict[str, str | bytes] = {
        "data.yaml": "train: images/train\nval: images/val\nnames: [bird]\n"
    }
    for number, name in enumerate(("train/p1_a", "train/p2_a", "val/p1_b", "val/p3_a")):
        files[f"images/{name}.jpg"] = picture(number)
        files[f"labels/{name}.txt"] = ROW
    result = check(write_files(tmp_path / "set", files), ImportRules(group_by=r"(p\d+)_"))
    assert [(f.code, f.severity, f.file, f.value) for f in result.findings] == [
        ("split.group-divided", "warning", "images/val/p1_b.jpg", "images/train/p1_a.jpg")
    ]


def test_images_of_one_group_cannot_be_split(tmp_path):
    files: dict[str, str | bytes] = {"classes.txt": "bird"}
    for number in range(3):
        files[f"images/{number}.jpg"] = picture(number)
        files[f"labels/{number}.txt"] = ROW
    result = check(write_files(tmp_path / "set", files), ImportRules(group_by="images"))
    assert [(f.code, f.severity, f.value) for f in result.findings] == [
        ("split.too-few-images", "error", "1 group")
    ]
