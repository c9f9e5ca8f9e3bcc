"""Checkpoints of a training: the whole state at full precision, whole on disk, checked when read.

A checkpoint file is what torch.save writes of tensors, numbers, texts and containers, followed by
a seal: SEAL_MARK and the BLAKE3 digest of all bytes before it. No file runs code when it is read.
"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from blake3 import blake3

from perdure.artifacts.files import make_folder, new_file
from perdure.artifacts.hashing import digest_file
from perdure.errors import DamagedCheckpoint
from perdure.training.config import TrainConfig
from perdure.training.model import new_model

CHECKPOINT_FORMAT: Final = "perdure.checkpoint/1"
DETECTOR_FORMAT: Final = "perdure.detector/1"
SEAL_MARK: Final = b"PERDURE1"
SEAL_BYTES: Final = len(SEAL_MARK) + 32
KEPT_CHECKPOINTS: Final = 2  # the newest, and the one before it in case the newest is damaged
SUFFIX: Final = ".pt"
BEST_NAME: Final = "best.pt"

State = dict[str, Any]


@dataclass(frozen=True)
class Best:
    """The epoch with the highest mAP50-95 so far (1 for the first), and its averaged weights."""

    epoch: int
    map50: float
    map50_95: float
    ema: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Snapshot:
    """Everything that the next step depends on.

    `epoch` counts completed epochs and `step` the steps done in the one after them; when all of
    its steps are done and it is not yet validated, `step` is the number of steps per epoch.
    """

    config: str  # canonical JSON
    dataset_version: str
    split_id: str
    classes: tuple[str, ...]
    threads: int  # sums are cut into as many parts: another number gives other bits
    epoch: int
    step: int
    optimizer_steps: int
    last_step: int  # the step (over all epochs) after which the optimizer stepped last; -1: never
    model: dict[str, torch.Tensor]
    ema: dict[str, torch.Tensor]
    ema_updates: int
    optimizer: State
    scaler: State
    gradients: dict[str, torch.Tensor]  # summed since the optimizer's last step
    loss_sums: tuple[float, float, float]  # of this epoch's steps: box, cls, dfl
    seen: tuple[str, ...]  # sample ids that entered this epoch's steps
    skipped_steps: int  # optimizer steps in a row that the scaler left out
    best: Best | None
    stopped: bool  # early stopping has ended the training


@dataclass(frozen=True)
class StoredFile:
    """A file that lies whole on disk: its BLAKE3 digest (64 hex digits) and size."""

    path: Path
    digest: str
    size_bytes: int


def write_checkpoint(folder: Path, snapshot: Snapshot) -> StoredFile:
    """Store `snapshot` in `folder` and remove all but the newest KEPT_CHECKPOINTS.

    The file appears whole or not at all, is on disk when this returns, and has been read back.
    Raises OSError, and DamagedCheckpoint when the disk gives other bytes back.
    """
    make_folder(folder)
    name = f"epoch{snapshot.epoch:05d}-step{snapshot.step:07d}{SUFFIX}"
    state = {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__}
    best = snapshot.best
    if best is not None:
        state["best"] = {name: getattr(best, name) for name in Best.__dataclass_fields__}
    stored = _write(folder / name, {"format": CHECKPOINT_FORMAT, **state})
    for old in local_checkpoints(folder)[:-KEPT_CHECKPOINTS]:
        old.unlink(missing_ok=True)
    return stored


def local_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in `folder`, oldest first."""
    return sorted(folder.glob(f"epoch*{SUFFIX}"))


def read_checkpoint(path: Path) -> Snapshot:
    """Read a checkpoint back, all tensors in host memory.

    Raises DamagedCheckpoint when it is not, byte for byte, what was written.
    """
    state = _read(path, CHECKPOINT_FORMAT)
    try:
        if state["best"] is not None:
            state["best"] = Best(**state["best"])
        return Snapshot(**state)
    except (KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"{path}: not a whole checkpoint: {error}") from error


def export_best(snapshot: Snapshot, folder: Path) -> StoredFile:
    """Store the best epoch's averaged weights alone, with what is needed to build the detector."""
    if snapshot.best is None:
        raise ValueError("no epoch has been validated yet: there is no best one")
    make_folder(folder)
    best = snapshot.best
    return _write(
        folder / BEST_NAME,
        {
            "format": DETECTOR_FORMAT,
            "model": TrainConfig.from_canonical(snapshot.config).model,
            "classes": snapshot.classes,
            "config": snapshot.config,
            "dataset_version": snapshot.dataset_version,
            "epoch": best.epoch,
            "map50": best.map50,
            "fitness": best.map50_95,
            "weights": best.ema,
        },
    )


def load_detector(path: Path, device: str = "cpu") -> torch.nn.Module:
    """Build the detector that `export_best` stored: float32, in evaluation mode.

    Called with images (n, 3, side, side), RGB from 0 to 1, it gives as its first result a tensor
    (n, 4 + classes, anchors): centre x, centre y, width, height in pixels, then confidences.
    `names` and `stride` are its attributes. Raises DamagedCheckpoint.
    """
    state = _read(path, DETECTOR_FORMAT)
    try:
        model = new_model(state["model"], state["classes"])
        model.load_state_dict(state["weights"])
    except (KeyError, RuntimeError) as error:
        raise DamagedCheckpoint(f"{path}: not a detector of this version: {error}") from error
    detector: torch.nn.Module = model.float().eval().to(device)
    return detector


def weights_digest(weights: dict[str, torch.Tensor]) -> str:
    """Hash tensors by name, type, shape and values: BLAKE3, 64 hex digits."""
    hasher = blake3()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        hasher.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        hasher.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return hasher.hexdigest()


class _SealingWriter:
    """Hashes what is written to a file on its way, and keeps the file's own error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hasher = blake3()
        self.size_bytes = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self._hasher.update(data)
        self.size_bytes += len(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error  # torch's writer turns it into a RuntimeError without its number
            raise

    def flush(self) -> None:
        """Nothing: the file is flushed when all is written."""

    def seal(self) -> str:
        """Write the seal, and give the digest of the whole file."""
        self.write(SEAL_MARK + self._hasher.digest())
        return self._hasher.hexdigest()


def _write(path: Path, state: State) -> StoredFile:
    with new_file(path) as file:
        writer = _SealingWriter(file)
        try:
            torch.save(_on_host(state), writer)  # type: ignore[arg-type]  # it only writes
        except RuntimeError as error:
            raise writer.error or error from error
        digest = writer.seal()
    if digest_file(path) != digest:
        raise DamagedCheckpoint(f"{path}: the disk gave back other bytes than were written to it")
    return StoredFile(path, digest, writer.size_bytes)


def _on_host(value: Any) -> Any:
    """Bring all tensors in `value` into host memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_host(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_on_host(item) for item in value)
    return value


def _read(path: Path, wanted: str) -> State:
    """Check the seal, then read what was saved. Nothing is unpickled of a file that is not ours."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{path}: cannot be read: {error}") from error
    body, seal = data[:-SEAL_BYTES], data[-SEAL_BYTES:]
    if not seal.startswith(SEAL_MARK) or seal[len(SEAL_MARK) :] != blake3(body).digest():
        raise DamagedCheckpoint(
            f"{path}: damaged or cut short ({len(data)} bytes); go on from the checkpoint before it"
        )
    state: State = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    found = state.pop("format")
    if found != wanted:
        raise DamagedCheckpoint(f"{path}: holds {found}, where {wanted} is needed")
    return state
