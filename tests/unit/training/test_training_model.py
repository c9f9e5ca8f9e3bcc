import pytest
import torch

from perdure.training.checkpoint import weights_digest
from perdure.training.config import TrainConfig
from perdure.training.model import new_model, trainable_model


@pytest.mark.parametrize("name", ["yolo11n.yaml", "yolo12n.yaml", "yolov8n.yaml"])
def test_each_family_gives_a_detector_with_our_classes(name):
    model = new_model(name, ["heron", "kingfisher", "coot"]).eval()
    assert model.names == {0: "heron", 1: "kingfisher", 2: "coot"}
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 64, 64))[0].shape == (1, 7, 84)


def test_scales_differ_in_size():
    sizes = [
        sum(weight.numel() for weight in new_model(f"yolo11{scale}.yaml", ["a"]).parameters())
        for scale in "ns"
    ]
    assert sizes[1] > 3 * sizes[0]


def test_a_file_of_that_name_in_the_working_folder_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yolo11.yaml").write_text("nc: broken")
    (tmp_path / "yolo11n.yaml").write_text("nc: broken")
    new_model("yolo11n.yaml", ["a"])


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="is not one of"):
        new_model("yolo26n.yaml", ["a"])


def test_the_seed_decides_the_weights():
    digests = [
        weights_digest(trainable_model(TrainConfig(seed=seed), ["a"]).state_dict())
        for seed in (1, 1, 2)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_a_batch_gives_a_loss_with_gradients_for_all_but_the_fixed_weights():
    model = trainable_model(TrainConfig(), ["a"])
    batch = {
        "img": torch.rand(2, 3, 64, 64),
        "batch_idx": torch.zeros(1),
        "cls": torch.zeros(1, 1),
        "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4]]),
    }
    loss, parts = model(batch)
    assert set(parts) == {"box_loss", "cls_loss", "dfl_loss"}
    loss.sum().backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert all(".dfl." in name for name in without)
