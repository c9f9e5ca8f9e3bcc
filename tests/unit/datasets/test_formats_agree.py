"""The same labels in every format are the same data set, recognised, from a folder and a zip."""

import pytest

from perdure.datasets.check import check
from perdure.datasets.reading import READERS
from perdure.datasets.rules import FORMATS, ImportRules
from tests.builders.datasets import write_files
from tests.builders.formats import CLASSES, CORNERS, in_format, shares
from tests.builders.packing import pack_folder


def test_every_format_has_a_reader():
    assert set(READERS) == set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chosen", [False, True])
def test_every_format_gives_the_same_boxes(tmp_path, name, packed, chosen):
    path = write_files(tmp_path / "set", in_format(name))
    if packed:  # as a push sends it
        path = pack_folder(path, tmp_path / "set.zip")
    result = check(path, ImportRules(format=name) if chosen else ImportRules())

    assert [found.text() for found in result.findings] == []
    assert (result.format, result.classes) == (name, CLASSES)
    images = {image.path: image.boxes for image in result.manifest.images}
    assert images.keys() == {f"images/{image}.jpg" for image in CORNERS}
    for image in CORNERS:
        found = images[f"images/{image}.jpg"]
        assert [box[0] for box in found] == [box[0] for box in shares(image)]
        for box, expected in zip(found, shares(image), strict=True):
            assert box == pytest.approx(expected, abs=1e-12)


def test_formats_with_exact_numbers_give_the_same_version(tmp_path):
    exact = [name for name in FORMATS if name != "label-studio"]  # it has per cent
    versions = {
        check(write_files(tmp_path / name, in_format(name))).manifest.version for name in exact
    }
    assert len(versions) == 1
