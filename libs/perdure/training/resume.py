"""Whether, and how, a checkpoint can go on under a given data set and configuration."""

from dataclasses import replace
from typing import Final

from perdure.datasets.cache import LocalDataset
from perdure.errors import AttemptError
from perdure.training.checkpoint import Snapshot
from perdure.training.config import TrainConfig
from perdure.training.order import steps_per_epoch

# What a retry may change: where it runs, what it keeps there, and how much fits on the device.
CHANGEABLE: Final = frozenset({"device", "workers", "batch", "nbs", "cache_samples"})


def fit_to_config(saved: Snapshot, data: LocalDataset, config: TrainConfig) -> Snapshot:
    """Check that `saved` belongs to this training, and fit its position to another batch size.

    With the configuration that it was made with, the checkpoint is given back unchanged. With
    another batch size an epoch that had begun is begun again, with the weights as they are.

    Raises AttemptError when the data set or any other hyper-parameter differs.
    """
    if (saved.dataset_version, saved.split_id) != (data.version, data.split_id):
        raise AttemptError(
            "dataset_invalid",
            f"the checkpoint was made with data set {saved.dataset_version[:12]}, split "
            f"{saved.split_id[:12]}, and cannot go on with {data.version[:12]}, split "
            f"{data.split_id[:12]}",
        )
    before = TrainConfig.from_canonical(saved.config)
    after = config.model_dump()
    changed = [name for name, value in before.model_dump().items() if value != after[name]]
    fixed = [name for name in changed if name not in CHANGEABLE]
    if fixed:
        listed = ", ".join(
            f"{name} {getattr(before, name)} -> {getattr(config, name)}" for name in fixed
        )
        raise AttemptError(
            "config_invalid",
            f"the checkpoint was made with another configuration ({listed}); submit a new task",
        )
    if not {"batch", "nbs"} & set(changed):
        return saved
    steps = steps_per_epoch(len(data.train), config.batch)
    return replace(
        saved,
        step=0,
        last_step=saved.epoch * steps - 1,
        gradients={},
        loss_sums=(0.0, 0.0, 0.0),
        seen=(),
    )
