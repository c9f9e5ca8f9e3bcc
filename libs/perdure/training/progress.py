"""What a training says while it runs: phases at once, steps a few times a second, time left."""

import time
from typing import Any, Final

from perdure.attempts.channel import Channel

STEP_INTERVAL_S: Final = 0.2  # often enough for a live page; more would only fill the pipe
SMOOTHING: Final = 0.1  # weight of the newest step in the running mean of step times


class Progress:
    """Tells `channel` where the training is. Step times are smoothed for rate and time left."""

    def __init__(self, channel: Channel, *, epochs: int, steps: int) -> None:
        self._channel = channel
        self._epochs = epochs
        self._steps = steps
        self._phase = ""
        self._said = 0.0
        self._step_s: float | None = None
        self._validation_s = 0.0

    def phase(self, name: str, *, epoch: int, step: int = 0, steps: int = 0) -> None:
        """Say that a phase goes on; `epoch` is the one in progress, 1 for the first."""
        now = time.monotonic()
        if name == self._phase and now - self._said < STEP_INTERVAL_S:
            return
        self._say(name, now, epoch=epoch, step=step, steps=steps)

    def step(self, *, epoch: int, step: int, images: int, took_s: float, **losses: float) -> None:
        """Say that step `step` of `epoch` (both from 1) is done, with its losses."""
        if self._step_s is None:
            self._step_s = took_s
        self._step_s += SMOOTHING * (took_s - self._step_s)
        now = time.monotonic()
        if self._phase == "training" and now - self._said < STEP_INTERVAL_S:
            return
        left_epochs = self._epochs - epoch
        left_steps = self._steps - step + left_epochs * self._steps
        self._say(
            "training",
            now,
            epoch=epoch,
            step=step,
            steps=self._steps,
            samples_per_s=images / max(took_s, 1e-9),
            eta_s=left_steps * self._step_s + (left_epochs + 1) * self._validation_s,
            **losses,
        )

    def validated(self, took_s: float) -> None:
        """Note how long the end of an epoch took, for the time left."""
        self._validation_s = took_s

    def _say(self, name: str, now: float, **fields: Any) -> None:
        self._channel.progress(name, epochs=self._epochs, **fields)
        self._phase, self._said = name, now
