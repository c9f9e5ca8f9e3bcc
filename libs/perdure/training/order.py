"""Which samples a step sees, and with what luck, as pure functions of (seed, epoch, sample id).

Nothing here depends on the number of loader processes, on prefetching, or on what was drawn before:
a training that goes on from any step sees what it would have seen.
"""

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
from blake3 import blake3

# A sample of one epoch: (epoch, index into the data set).
SampleKey = tuple[int, int]


def epoch_order(seed: int, epoch: int, sample_ids: Sequence[str]) -> list[int]:
    """Give the indices of `sample_ids` in the order of this epoch (0 for the first).

    Samples are sorted by a hash of (seed, epoch, id), so the order does not depend on that of the
    argument, nor on any library's shuffle.
    """
    ranks = [_digest("order", seed, epoch, sample_id) for sample_id in sample_ids]
    return sorted(range(len(sample_ids)), key=ranks.__getitem__)


def sample_seed(seed: int, epoch: int, sample_id: str) -> int:
    """Give the seed (64 bits) of this sample's augmentation in this epoch."""
    return int.from_bytes(_digest("augmentation", seed, epoch, sample_id)[:8], "big")


def seed_generators(seed: int) -> None:
    """Seed the two global generators that Ultralytics' transforms draw from, `random` and numpy."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def steps_per_epoch(samples: int, batch: int) -> int:
    """Give the number of batches of an epoch; the last one may be smaller."""
    return math.ceil(samples / batch)


class BatchPlan:
    """All batches of a training from a given step on, as lists of sample keys. A batch sampler.

    One plan spans all epochs, so that loader processes live through them and fetch ahead across
    their borders.
    """

    def __init__(
        self,
        sample_ids: Sequence[str],
        *,
        seed: int,
        batch: int,
        epochs: int,
        epoch: int = 0,
        step: int = 0,
    ) -> None:
        """`epoch` and `step` (within it) say where the first batch lies; both start at 0."""
        self._sample_ids = sample_ids
        self._seed = seed
        self._batch = batch
        self._epochs = epochs
        self._epoch = epoch
        self._step = step

    def __iter__(self) -> Iterator[list[SampleKey]]:
        for epoch in range(self._epoch, self._epochs):
            order = epoch_order(self._seed, epoch, self._sample_ids)
            first = self._step if epoch == self._epoch else 0
            for start in range(first * self._batch, len(order), self._batch):
                yield [(epoch, index) for index in order[start : start + self._batch]]


def _digest(purpose: str, seed: int, epoch: int, sample_id: str) -> bytes:
    return blake3(f"{purpose}\0{seed}\0{epoch}\0{sample_id}".encode()).digest()
