import errno
import pickle
from dataclasses import replace

import pytest
import torch
from blake3 import blake3

from perdure.errors import DamagedCheckpoint
from perdure.training.checkpoint import (
    Best,
    Snapshot,
    _SealingWriter,
    export_best,
    load_detector,
    local_checkpoints,
    read_checkpoint,
    weights_digest,
    write_checkpoint,
)
from perdure.training.config import TrainConfig
from perdure.training.model import new_model

BEST = Best(epoch=1, map50=0.5, map50_95=0.25, ema={"w": torch.tensor([1.5])})
SNAPSHOT = Snapshot(
    config=TrainConfig().canonical(),
    dataset_version="v",
    split_id="s",
    classes=("heron", "kingfisher"),
    threads=2,
    epoch=1,
    step=3,
    optimizer_steps=7,
    last_step=6,
    model={"w": torch.tensor([0.1, 1e-40])},  # a denormal: lost in half precision
    ema={"w": torch.tensor([0.2])},
    ema_updates=7,
    optimizer={"state": {0: {"step": torch.tensor(7.0)}}, "param_groups": [{"betas": (0.9, 0.99)}]},
    scaler={},
    gradients={"w": torch.tensor([0.3])},
    loss_sums=(0.1, 0.2, 0.3),
    seen=("a", "b"),
    skipped_steps=0,
    best=BEST,
    stopped=False,
)


def test_a_checkpoint_reads_back_as_it_was(tmp_path):
    stored = write_checkpoint(tmp_path, SNAPSHOT)
    back = read_checkpoint(stored.path)
    for name in ("model", "ema", "gradients"):
        assert weights_digest(getattr(back, name)) == weights_digest(getattr(SNAPSHOT, name))
    assert back.best is not None
    assert weights_digest(back.best.ema) == weights_digest(BEST.ema)
    tensors = {"model": {}, "ema": {}, "gradients": {}, "best": None}
    assert replace(back, **tensors) == replace(SNAPSHOT, **tensors)
    data = stored.path.read_bytes()
    assert (blake3(data).hexdigest(), len(data)) == (stored.digest, stored.size_bytes)


@pytest.mark.parametrize("kept", [0, 1, 39, 500, -1])
def test_a_truncated_checkpoint_is_noticed(tmp_path, kept):
    path = write_checkpoint(tmp_path, SNAPSHOT).path
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path)


def test_a_single_flipped_bit_is_noticed_wherever_it_is(tmp_path):
    path = write_checkpoint(tmp_path, SNAPSHOT).path
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DamagedCheckpoint):
            read_checkpoint(path)


def test_a_missing_checkpoint_is_damaged(tmp_path):
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(tmp_path / "none.pt")


class Canary:
    def __reduce__(self):
        return (pytest.fail, ("a foreign file ran code",))


def test_a_foreign_file_runs_no_code(tmp_path):
    path = tmp_path / "foreign.pt"
    path.write_bytes(pickle.dumps(Canary()))
    with pytest.raises(DamagedCheckpoint):
        read_checkpoint(path)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    for epoch in (1, 2, 10):
        write_checkpoint(tmp_path, replace(SNAPSHOT, epoch=epoch))
    epochs = [read_checkpoint(path).epoch for path in local_checkpoints(tmp_path)]
    assert epochs == [2, 10]


def test_nothing_but_checkpoints_is_left_in_the_folder(tmp_path):
    path = write_checkpoint(tmp_path, SNAPSHOT).path
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("room", [0, 100, 1000])
def test_a_full_disk_is_named_and_the_checkpoint_before_it_stays(tmp_path, monkeypatch, room):
    before = write_checkpoint(tmp_path, SNAPSHOT).path
    real = _SealingWriter.write

    def write(self, data):
        if self.size_bytes + len(data) > room:
            self._file = FullDisk()
        return real(self, data)

    monkeypatch.setattr(_SealingWriter, "write", write)
    with pytest.raises(OSError) as caught:
        write_checkpoint(tmp_path, replace(SNAPSHOT, epoch=2))
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == [before]
    assert read_checkpoint(before).epoch == 1


class FullDisk:
    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_best_weights_come_back_as_a_detector(tmp_path):
    weights = new_model("yolo11n.yaml", SNAPSHOT.classes).state_dict()
    stored = export_best(replace(SNAPSHOT, best=replace(BEST, ema=weights)), tmp_path)
    detector = load_detector(stored.path)
    assert weights_digest(detector.state_dict()) == weights_digest(weights)
    assert detector.names == {0: "heron", 1: "kingfisher"}
    assert not detector.training
    with torch.no_grad():
        output = detector(torch.zeros(1, 3, 64, 64))[0]
    assert output.shape == (1, 4 + 2, 8 * 8 + 4 * 4 + 2 * 2)


def test_a_training_checkpoint_is_no_detector(tmp_path):
    with pytest.raises(DamagedCheckpoint):
        load_detector(write_checkpoint(tmp_path, SNAPSHOT).path)


def test_digests_depend_on_names_types_shapes_and_values():
    tensor = torch.tensor([[1.0, 2.0]])
    digests = {
        weights_digest({"a": tensor}),
        weights_digest({"b": tensor}),
        weights_digest({"a": tensor.T}),
        weights_digest({"a": tensor.half()}),
        weights_digest({"a": tensor + 1}),
    }
    assert len(digests) == 5
