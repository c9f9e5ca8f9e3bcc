import pytest
import torch

from perdure.errors import AttemptError
from perdure.training.checkpoint import weights_digest
from perdure.training.config import TrainConfig
from perdure.training.model import device_of, new_model, trainable_model


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


def machine(monkeypatch, *, gpus: int, built: bool = True, refusal: str = "") -> None:
    """Make torch see a machine with so many GPUs, or say why it sees none."""

    def init() -> None:
        raise RuntimeError(refusal)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    monkeypatch.setattr(torch.cuda, "init", init)


@pytest.mark.parametrize(
    ("built", "refusal"),
    [
        pytest.param(False, "", id="torch for CPUs"),
        pytest.param(True, "Found no NVIDIA driver on your system.", id="no driver"),
        pytest.param(True, "No CUDA GPUs are available", id="hidden"),
    ],
)
def test_a_gpu_that_is_not_there_is_a_wrong_configuration(monkeypatch, built, refusal):
    machine(monkeypatch, gpus=0, built=built, refusal=refusal)
    with pytest.raises(AttemptError) as caught:
        device_of(TrainConfig(device="cuda:0"))
    assert caught.value.failure == "config_invalid"
    assert caught.value.message == "this machine has no CUDA device; use device=auto"


def test_a_gpu_number_that_is_not_there_is_a_wrong_configuration(monkeypatch):
    machine(monkeypatch, gpus=2)
    assert device_of(TrainConfig(device="cuda:1")) == torch.device("cuda:1")
    with pytest.raises(AttemptError, match="has 2 CUDA devices, numbered from 0") as caught:
        device_of(TrainConfig(device="cuda:2"))
    assert caught.value.failure == "config_invalid"


def test_a_driver_that_is_too_old_is_a_fault_of_the_machine(monkeypatch):
    machine(monkeypatch, gpus=0, refusal="The NVIDIA driver on your system is too old")
    with pytest.raises(RuntimeError, match="is too old"):
        device_of(TrainConfig(device="cuda:0"))


def test_auto_takes_the_first_gpu_or_the_cpu(monkeypatch):
    machine(monkeypatch, gpus=0)
    assert device_of(TrainConfig()) == torch.device("cpu")
    machine(monkeypatch, gpus=1)
    assert device_of(TrainConfig()) == torch.device("cuda:0")
