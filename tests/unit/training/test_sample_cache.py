import errno
import logging
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from perdure.artifacts import files
from perdure.datasets import cache_room
from perdure.datasets.cache import LocalDataset, LocalImage
from perdure.training import dataset, sample_cache
from perdure.training.config import TrainConfig
from perdure.training.dataset import training_batches
from perdure.training.sample_cache import entry_name, kept_samples
from perdure.training.sample_file import Damage, encoded, read_samples, write_pieces
from tests.builders.misplaced import (
    WRONG_FOR_FILES,
    WRONG_FOR_FOLDERS,
    listed,
    outside_folder,
    put,
)

SIDE = 64
IMAGES = 6
EPOCHS = 2
BATCHES = 2 * EPOCHS  # of four and of two images
BATCH_BYTES = 4 * 3 * SIDE * SIDE  # and some for boxes and names


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Six images of noise; the first has no box, the others have one each."""
    folder = tmp_path_factory.mktemp("images")
    images = []
    for number in range(IMAGES):
        path = folder / f"{number}.png"
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
        cv2.imwrite(str(path), pixels)
        boxes = ((0, 0.5, 0.5, 0.5, 0.25),) if number else ()
        images.append(LocalImage(path, f"images/{number}", 48, 40, boxes))
    return LocalDataset(folder, "a" * 64, "b" * 64, ("bird",), tuple(images), ())


@pytest.fixture
def upgraded(monkeypatch):
    """Libraries that draw every sample otherwise."""

    def upgrade():
        monkeypatch.setattr(dataset, "sample_seed", lambda *_: 99)
        monkeypatch.setitem(sample_cache.LIBRARIES, "opencv", "99.0")

    return upgrade


def config(**options):
    return TrainConfig(**{"imgsz": SIDE, "batch": 4, "epochs": EPOCHS, "close_mosaic": 1} | options)


KEEPING = config(cache_samples=True)


def run(data, root, settings=KEEPING, *, workers=0, epoch=0, step=0):
    """The batches of a training as the model gets them."""
    with kept_samples(root, data, settings, sharers=workers) as kept:
        return list(
            training_batches(
                data,
                settings,
                workers=workers,
                pinned=False,
                epoch=epoch,
                step=step,
                kept=kept,
            )
        )


def bits(batches):
    return [
        (
            batch.sample_ids,
            batch.images.numpy().tobytes(),
            batch.image_index.numpy().tobytes(),
            batch.classes.numpy().tobytes(),
            batch.boxes.numpy().tobytes(),
        )
        for batch in batches
    ]


def stored(root):
    return sorted(root.rglob("*.samples"))


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in stored(root)}


def test_a_repeated_training_sees_the_same_bits_when_libraries_draw_otherwise(
    data, tmp_path, upgraded
):
    plain = bits(run(data, tmp_path, config()))
    first = bits(run(data, tmp_path))
    assert first == plain  # what is kept is what is seen without the cache
    upgraded()
    assert bits(run(data, tmp_path, config())) != plain
    assert bits(run(data, tmp_path)) == plain


def test_samples_are_as_torch_gives_them(data, tmp_path):
    run(data, tmp_path)
    batch = run(data, tmp_path)[0]
    assert (batch.images.dtype, batch.images.shape) == (torch.uint8, (4, 3, SIDE, SIDE))
    assert (batch.classes.dtype, batch.boxes.dtype) == (torch.float32, torch.float32)
    assert batch.boxes.shape == (len(batch.classes), 4)


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_made_again_by_any_number_of_loaders(data, tmp_path, upgraded, workers):
    first = bits(run(data, tmp_path, workers=2 - workers))
    assert len(stored(tmp_path)) == BATCHES
    before = contents(tmp_path)
    upgraded()
    assert bits(run(data, tmp_path, workers=workers)) == first
    assert contents(tmp_path) == before


def test_nothing_is_written_unless_it_is_asked_for(data, tmp_path):
    run(data, tmp_path, config())
    assert list(tmp_path.iterdir()) == []
    assert not TrainConfig().cache_samples


def test_without_a_folder_the_training_goes_on_and_says_so(data, caplog):
    assert bits(run(data, None)) == bits(run(data, None, config()))
    assert caplog.messages == ["samples are not kept: there is no folder for them"]


@pytest.mark.parametrize(
    "options",
    [{"seed": 1}, {"imgsz": 96}, {"hsv_h": 0.1}, {"mosaic": 0.5}, {"mixup": 0.1}, {"fliplr": 0}],
)
def test_another_seed_or_augmentation_has_another_key(data, options):
    assert entry_name(data, config(**options)) != entry_name(data, config())


@pytest.mark.parametrize("other", [{"version": "a" * 63 + "c"}, {"split_id": "b" * 63 + "c"}])
def test_another_version_or_split_has_another_key(data, other):
    assert entry_name(replace(data, **other), KEEPING) != entry_name(data, KEEPING)


@pytest.mark.parametrize(
    "options",
    [{"epochs": 9}, {"batch": 2}, {"workers": 3}, {"lr0": 0.1}, {"model": "yolo11s.yaml"}],
)
def test_what_does_not_change_a_sample_does_not_change_the_key(data, options):
    assert entry_name(data, config(**options)) == entry_name(data, config())


def test_every_setting_is_known_to_change_samples_or_not_to():
    in_key = set(TrainConfig.keys()) - sample_cache.NOT_IN_KEY
    assert in_key == (
        {"imgsz", "hsv_h", "hsv_s", "hsv_v", "degrees", "translate", "scale", "shear"}
        | {"perspective", "flipud", "fliplr", "mosaic", "mixup"}
    )
    assert set(TrainConfig.keys()) >= sample_cache.NOT_IN_KEY


def test_each_epoch_has_samples_of_its_own(data, tmp_path):
    run(data, tmp_path)
    folders = {path.parent.name for path in stored(tmp_path)}
    assert folders == {"00000-mixed", "00001-plain"}  # close_mosaic is 1


def test_a_longer_training_reads_the_epochs_that_are_the_same(data, tmp_path, upgraded):
    short = bits(run(data, tmp_path))
    upgraded()
    longer = bits(run(data, tmp_path, config(epochs=3, cache_samples=True)))
    assert longer[:2] == short[:2]
    assert longer[2:4] != short[2:]  # was without mosaic, and is with it


def test_a_training_that_goes_on_in_the_middle_reads_the_rest(data, tmp_path, upgraded):
    whole = bits(run(data, tmp_path))
    upgraded()
    assert bits(run(data, tmp_path, epoch=0, step=1)) == whole[1:]


@pytest.mark.parametrize("place", ["mark", "header", "images", "boxes", "digest", "end", "all"])
def test_a_damaged_batch_is_thrown_away_and_made_anew(data, tmp_path, caplog, place):
    first = bits(run(data, tmp_path))
    before = contents(tmp_path)
    path = stored(tmp_path)[1]
    whole = bytearray(path.read_bytes())
    header_bytes = struct.unpack_from("<I", whole, 8)[0]
    offsets = {"mark": 0, "header": 20, "images": 12 + header_bytes + 32 + 7}
    offsets |= {"boxes": len(whole) - 33, "digest": len(whole) - 1}
    if place in offsets:
        whole[offsets[place]] ^= 1
    path.write_bytes({"end": whole[:-1], "all": b""}.get(place, whole))
    with caplog.at_level(logging.INFO):
        assert bits(run(data, tmp_path)) == first
    assert contents(tmp_path) == before
    said = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    name = f"{path.parts[-3]}/{path.parts[-2]}/{path.name}"
    assert said[0].startswith(f"kept samples {name} cannot be used, and are made anew: ")
    same = place in {"images", "boxes", "digest", "end"}
    ending = "The libraries are those that made them: new ones are the same."
    unknown = "What made them is not known: new ones may differ from them."
    assert said[0].endswith(ending if same else unknown)


def test_a_damaged_batch_is_thrown_away_also_when_nothing_can_be_written(
    data, tmp_path, monkeypatch
):
    first = bits(run(data, tmp_path))
    path = stored(tmp_path)[1]
    path.write_bytes(b"")
    disk_of(monkeypatch, 0)
    assert bits(run(data, tmp_path)) == first
    assert not path.exists()


def test_it_is_said_when_other_libraries_make_a_damaged_batch_anew(
    data, tmp_path, caplog, upgraded
):
    run(data, tmp_path)
    path = stored(tmp_path)[1]
    path.write_bytes(path.read_bytes()[:-1])
    upgraded()
    with caplog.at_level(logging.INFO):
        run(data, tmp_path)
    change = f"(opencv {cv2.__version__} -> 99.0): new ones may differ from them."
    told = [message for message in caplog.messages if message.endswith(change)]
    assert len(told) == 2  # at the beginning, and of the batch
    assert "samples are read from" in told[0]
    assert path.name in told[1]


def test_samples_under_another_name_are_not_taken(data, tmp_path, caplog):
    first = bits(run(data, tmp_path))
    one, other = stored(tmp_path)[:2]
    other.write_bytes(one.read_bytes())
    assert bits(run(data, tmp_path)) == first
    assert "it holds other samples than its name says" in caplog.text


def test_a_training_killed_in_the_middle_leaves_whole_batches_and_no_others(data, tmp_path):
    """The child is killed while its second file has no name yet."""
    code = """
import os, signal, sys
from pathlib import Path
from perdure.artifacts import files
from tests.unit.training.test_sample_cache import KEEPING, run
from tests.unit.training.test_sample_cache import data as fixture
class Factory:
    def mktemp(self, name): return Path(sys.argv[2])
data = fixture.__wrapped__(Factory())
sync, left = os.fsync, [2]
def fsync(descriptor):
    if os.path.isfile(f"/proc/self/fd/{descriptor}"):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
files.os.fsync = fsync
run(data, Path(sys.argv[1]))
"""
    root, images = tmp_path / "kept", tmp_path / "images"
    images.mkdir()
    command = [sys.executable, "-c", code, str(root), str(images)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path])}
    killed = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(stored(root)) == 1
    left = list(root.rglob(".*.tmp"))
    assert len(left) == 1
    assert bits(run(data, root)) == bits(run(data, root, config()))
    assert len(stored(root)) == BATCHES
    assert left[0].exists()  # its writer might live
    an_hour_ago_s = time.time() - sample_cache.ABANDONED_S - 1
    os.utime(left[0], (an_hour_ago_s, an_hour_ago_s))
    run(data, root)
    assert list(root.rglob(".*.tmp")) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_disk_ends_the_keeping_with_one_warning_and_not_the_training(
    data, tmp_path, monkeypatch, capfd, workers
):
    tries = multiprocessing.Value("i", 0)
    together = multiprocessing.Barrier(max(1, workers))  # all loaders find out at the same time

    def full(_descriptor):
        with tries.get_lock():
            tries.value += 1
        together.wait(timeout=60)
        raise OSError(errno.ENOSPC, "No space left on device")

    plain = bits(run(data, tmp_path, config(epochs=6)))
    monkeypatch.setattr(files.os, "fsync", full)
    handler = logging.StreamHandler(sys.stderr)
    sample_cache.log.addHandler(handler)
    try:
        settings = config(epochs=6, cache_samples=True)
        (tmp_path / entry_name(data, settings)).mkdir()
        assert bits(run(data, tmp_path, settings, workers=workers)) == plain
    finally:
        sample_cache.log.removeHandler(handler)
    assert stored(tmp_path) == []
    assert list(tmp_path.rglob("*.tmp")) == []
    assert tries.value == max(1, workers)
    said = [line for line in capfd.readouterr().err.splitlines() if "not all kept" in line]
    assert len(said) == 1
    assert "No space left on device" in said[0]


PLACES = {
    "the entry": (lambda entry, _batch: entry, WRONG_FOR_FOLDERS),
    "an epoch": (lambda _entry, batch: batch.parent, WRONG_FOR_FOLDERS),
    "a batch": (lambda _entry, batch: batch, WRONG_FOR_FILES),
    "left behind": (lambda _entry, batch: batch.with_name(".x.tmp"), WRONG_FOR_FILES),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("place", "kind"), [(place, kind) for place, (_, kinds) in PLACES.items() for kind in kinds]
)
def test_what_is_misplaced_among_kept_samples_is_put_right(
    data, tmp_path, monkeypatch, caplog, place, kind
):
    monkeypatch.setattr(sample_cache, "ABANDONED_S", -1.0)
    root, outside = tmp_path / "samples", outside_folder(tmp_path)
    before, first = listed(outside), bits(run(data, root))
    files_before = contents(root)
    entry = root / entry_name(data, KEEPING)
    put(kind, PLACES[place][0](entry, min(entry.glob("*/*.samples"))), outside, monkeypatch)

    assert bits(run(data, root)) == first

    assert listed(outside) == before
    assert contents(root) == files_before
    assert "not all kept" not in caplog.text
    assert not os.path.lexists(PLACES["left behind"][0](entry, min(entry.glob("*/*.samples"))))


def test_a_folder_that_cannot_be_made_ends_the_keeping_and_not_the_training(data, tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    assert bits(run(data, blocked / "kept")) == bits(run(data, None, config()))
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("samples are not kept: FileExistsError: ")


def disk_of(monkeypatch, total_bytes):
    """A disk of which samples may take up a tenth."""
    usage = cache_room.shutil.disk_usage(Path.cwd())._replace(total=total_bytes)
    monkeypatch.setattr(sample_cache, "disk_usage", lambda _root: usage)


def test_what_is_kept_is_bounded_and_the_training_goes_on_without(
    data, tmp_path, monkeypatch, caplog
):
    room_bytes = int(2.5 * BATCH_BYTES)  # batches of four, two, four and two images
    disk_of(monkeypatch, room_bytes * 10)
    plain = bits(run(data, tmp_path, config()))
    assert bits(run(data, tmp_path)) == plain
    assert 2 <= len(stored(tmp_path)) < BATCHES
    assert sum(map(len, contents(tmp_path).values())) <= room_bytes
    said = [message for message in caplog.messages if "not all kept" in message]
    assert len(said) == 1
    assert said[0].startswith("samples from epoch 2 on are not all kept, and the training goes on")
    assert "the training goes on: all samples together would take up more than" in said[0]


def test_samples_used_least_recently_make_room(data, tmp_path, monkeypatch):
    disk_of(monkeypatch, int(8.5 * BATCH_BYTES) * 10)  # a training of two epochs has three
    for seed in (1, 2):
        run(data, tmp_path, config(cache_samples=True, seed=seed))
    later, earlier = (tmp_path / entry_name(data, config(seed=seed)) for seed in (1, 2))
    os.utime(later / "in-use", (2e9, 2e9))
    os.utime(earlier / "in-use", (1e9, 1e9))
    run(data, tmp_path, config(cache_samples=True, seed=3))
    assert later.is_dir()
    assert not earlier.exists()


def test_samples_in_use_stay(data, tmp_path):
    run(data, tmp_path)
    with kept_samples(tmp_path, data, KEEPING, sharers=0):
        assert not cache_room.make_room(tmp_path, 0)
    assert len(stored(tmp_path)) == BATCHES
    cache_room.make_room(tmp_path, 0)
    assert stored(tmp_path) == []


SAMPLES = [
    {
        "img": torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2),
        "cls": torch.tensor([[1.0], [0.0]]),
        "bboxes": torch.tensor([[0.5, 0.25, 1.0, 0.5], [0.125, 0.5, 0.25, 1.0]]),
        "sample_id": "ü/one",
    },
    {
        "img": torch.full((3, 2, 2), 255, dtype=torch.uint8),
        "cls": torch.zeros((0, 1)),
        "bboxes": torch.zeros((0, 4)),
        "sample_id": "two",
    },
]
IDS = ["ü/one", "two"]
LITERAL_HEADER = (
    rb'{"label": "here", "libraries": {"numpy": "1"}, "side": 2, '
    rb'"samples": [["\u00fc/one", 2], ["two", 0]]}'
)


def literal_file():
    head = b"PERDSMP1" + struct.pack("<I", len(LITERAL_HEADER)) + LITERAL_HEADER
    body = bytes(range(12)) + b"\xff" * 12
    body += struct.pack("<2f", 1, 0) + struct.pack("<8f", 0.5, 0.25, 1, 0.5, 0.125, 0.5, 0.25, 1)
    return head + blake3(head).digest() + body + blake3(body).digest()


def test_the_file_is_as_documented():
    pieces = encoded(SAMPLES, "here", {"numpy": "1"})
    assert b"".join(bytes(piece) for piece in pieces) == literal_file()
    assert sum(map(len, pieces)) == len(literal_file())


def test_samples_read_back_as_they_were(tmp_path):
    write_pieces(tmp_path / "file", encoded(SAMPLES, "here", {"numpy": "1"}))
    found = read_samples(tmp_path / "file", "here", IDS)
    for sample, before in zip(found, SAMPLES, strict=True):
        assert sample["sample_id"] == before["sample_id"]
        for name in ("img", "cls", "bboxes"):
            assert torch.equal(sample[name], before[name])
            assert sample[name].shape == before[name].shape
            assert sample[name].dtype == before[name].dtype


WHOLE = literal_file()


@given(
    st.one_of(
        st.binary(max_size=300),
        st.integers(0, len(WHOLE) - 1).map(lambda end: WHOLE[:end]),
        st.binary(min_size=1, max_size=40).map(lambda more: WHOLE + more),
        st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)).map(
            lambda at: WHOLE[: at[0]] + bytes([WHOLE[at[0]] ^ at[1]]) + WHOLE[at[0] + 1 :]
        ),
    )
)
def test_any_other_bytes_are_damage(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "arbitrary.samples"
    path.write_bytes(content)
    assert isinstance(read_samples(path, "here", IDS), Damage)
