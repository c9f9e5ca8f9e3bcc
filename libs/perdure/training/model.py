"""Detectors by name: Ultralytics' architectures with our class names, seeded, never downloaded."""

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final

import torch
import yaml
from torch.utils import deterministic
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import ROOT

from perdure.errors import AttemptError
from perdure.training.config import MODELS, TrainConfig

FOLDERS: Final = {"yolo11": "11", "yolo12": "12", "yolov8": "v8"}  # in Ultralytics' cfg/models
FROZEN: Final = ".dfl"  # fixed integration weights, no parameters to learn
# How torch says that there is no GPU, rather than one that cannot be used.
NO_GPU_TEXTS: Final = ("Found no NVIDIA driver", "No CUDA GPUs are available")


def new_model(name: str, classes: Sequence[str]) -> DetectionModel:
    """Build the untrained detector `name`, one of config.MODELS, for these classes.

    The architecture is read from the Ultralytics package itself; a file of that name in the working
    folder is not looked at.
    """
    match = re.fullmatch(r"(.+?)([nsmlx])\.yaml", name)
    if name not in MODELS or match is None:
        raise ValueError(f"{name} is not one of {', '.join(MODELS)}")
    family, scale = match.groups()
    path = ROOT / "cfg" / "models" / FOLDERS[family] / f"{family}.yaml"
    described = yaml.safe_load(path.read_text(encoding="utf-8"))
    described |= {"nc": len(classes), "scale": scale, "yaml_file": name}
    model = DetectionModel(described, ch=3, nc=len(classes), verbose=False)  # type: ignore[no-untyped-call]
    model.names = dict(enumerate(classes))
    return model


def trainable_model(config: TrainConfig, classes: Sequence[str]) -> DetectionModel:
    """Build a detector with seeded weights; called with a batch it gives loss and loss parts."""
    torch.manual_seed(config.seed)
    model = new_model(config.model, classes)
    gains = SimpleNamespace(box=config.box, cls=config.cls, dfl=config.dfl)
    vars(model)["args"] = gains  # where the loss looks for them
    for parameter_name, parameter in model.named_parameters():
        parameter.requires_grad_(FROZEN not in parameter_name)
    return model.train()


def use_threads(count: int) -> None:
    """Compute with `count` CPU threads, in a way that gives the same bits each time."""
    torch.set_num_threads(count)
    torch.set_deterministic_debug_mode("warn")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Filling fresh memory with NaN only helps to find reads before writes.
    deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property


def device_of(config: TrainConfig) -> torch.device:
    """Give the device to train on; "auto" is the first GPU where there is one.

    Raises AttemptError(config_invalid) when the configuration names a device that this machine does
    not have, and RuntimeError when it has one that cannot be used, such as under an old driver.
    """
    if config.device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device(config.device)
    if device.type == "cuda":
        _check_gpu(device.index)
    return device


def _check_gpu(index: int) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index < count:
        return
    if count:
        raise AttemptError(
            "config_invalid",
            f"device=cuda:{index}: this machine has {count} CUDA devices, numbered from 0; "
            "use device=auto",
        )
    if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            # Anything else, such as a driver that is too old, is a fault of the machine.
            if not any(text in str(error) for text in NO_GPU_TEXTS):
                raise
    raise AttemptError("config_invalid", "this machine has no CUDA device; use device=auto")
