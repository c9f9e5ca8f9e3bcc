"""Augmented samples kept on this machine, so that a training can be repeated to the bit after
OpenCV, NumPy or Ultralytics were upgraded.

    <root>/<version>-<key>/         a training's samples: an entry of `cache_room`
        <epoch>-mixed/              of one epoch, with mosaic and mixup, or -plain/, without
            <digest>.samples        of one batch, named by its sample ids in their order

The key is a digest of data set version, split, seed, and what else in the configuration decides how
samples look. A batch is kept when it is whole, so a training that was killed goes on with what it
kept, at any step. Nothing here ever ends a training: without room, it goes on without the cache.
"""

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from shutil import disk_usage
from typing import Final

import cv2
import numpy as np
import rfc8785
import torch
import ultralytics

from perdure import __version__
from perdure.artifacts.files import make_folder
from perdure.artifacts.hashing import digest_bytes
from perdure.artifacts.places import clear_for_file, clear_for_folder, is_folder, remove
from perdure.datasets.cache import LocalDataset
from perdure.datasets.cache_room import make_room, on_disk, pinned_folder
from perdure.errors import Unavailable
from perdure.training.config import TrainConfig
from perdure.training.sample_file import (
    Damage,
    Libraries,
    Sample,
    encoded,
    libraries_of,
    read_samples,
    write_pieces,
)

# Of the disk, beside the data sets: samples of the trainings of a small set, or of one of a large.
SHARE_OF_DISK: Final = 0.1
# Room is asked for in this many parts, as each time all files are looked at.
PARTS_OF_ROOM: Final = 64
# A batch is written in seconds: a file that is not finished after so long has no writer any more.
ABANDONED_S: Final = 3600.0
# What has no influence on how a sample looks, or stands in the key or the path by itself (seed,
# and `epochs` and `close_mosaic`, which say in which epochs images are mixed).
NOT_IN_KEY: Final = frozenset(
    {"model", "epochs", "close_mosaic", "batch", "nbs", "seed", "val_ratio", "patience"}
    | {"device", "workers", "cache_samples", "box", "cls", "dfl"}
    | {"optimizer", "lr0", "lrf", "momentum", "weight_decay", "warmup_epochs", "cos_lr"}
)
LIBRARIES: Final = {
    "perdure": __version__,
    "numpy": np.__version__,
    "opencv": cv2.__version__,
    "pillow": version("pillow"),
    "simplejpeg": version("simplejpeg"),
    "torch": str(torch.__version__),
    "ultralytics": ultralytics.__version__,
}
_KEY_DIGITS: Final = 32
_VERSION_DIGITS: Final = 16

log = logging.getLogger(__name__)


class SampleCache:
    """The kept samples of one training. Its loader processes share it."""

    def __init__(self, entry: Path, max_bytes: int, sharers: int) -> None:
        """`entry` lies in the folder whose entries take up `max_bytes` at most; `sharers`
        processes write to it.
        """
        self._entry = entry
        self._max_bytes = max_bytes
        self._sharers = sharers
        self._granted_bytes = 0  # room that this process may still fill
        self._full = multiprocessing.Value("b", False)  # seen by all sharers

    def batch(
        self, epoch: int, ids: Sequence[str], make: Callable[[], list[Sample]], *, mixed: bool
    ) -> list[Sample]:
        """The samples `ids` of an epoch (0 for the first), as they were kept; else those of
        `make`, which are kept.
        """
        folder = self._entry / f"{epoch:05d}-{'mixed' if mixed else 'plain'}"
        path = folder / f"{digest_bytes(chr(0).join(ids).encode())[:_KEY_DIGITS]}.samples"
        label = f"{self._entry.name}/{folder.name}"
        kept = _read(path, label, ids)
        if kept is not None:
            return kept
        samples = make()
        if samples and not self._full.value:
            self._keep(path, samples, label)
        return samples

    def _keep(self, path: Path, samples: list[Sample], label: str) -> None:
        pieces = encoded(samples, label, LIBRARIES)
        try:
            if not self._has_room(on_disk(sum(map(len, pieces)))):
                self._give_up(
                    path,
                    f"all samples together would take up more than {self._max_bytes / 1e9:.3g} GB, "
                    "or more than the disk has free",
                )
                return
            clear_for_folder(path.parent)
            make_folder(path.parent)
            clear_for_file(path)
            write_pieces(path, pieces)
        except (OSError, Unavailable) as error:
            self._give_up(path, f"{type(error).__name__}: {error}")

    def _has_room(self, size_bytes: int) -> bool:
        """Take room for a file from what is granted to this process, and ask for more first.

        So much has to be free that all sharers can be granted it at the same moment; trainings at
        the same time may together go beyond the limit by one part each.
        """
        if self._granted_bytes < size_bytes:
            part = max(size_bytes, self._max_bytes // (PARTS_OF_ROOM * self._sharers))
            if not make_room(self._entry.parent, self._max_bytes, part * self._sharers):
                return False
            self._granted_bytes = part
        self._granted_bytes -= size_bytes
        return True

    def _give_up(self, path: Path, why: str) -> None:
        """Keep no further samples, and say so, once for all sharers."""
        with self._full.get_lock():
            told, self._full.value = bool(self._full.value), True
        if not told:
            log.warning(
                "samples from epoch %d on are not all kept, and the training goes on: %s. After an "
                "upgrade of libraries it may not be repeated to the bit.",
                int(path.parent.name.partition("-")[0]) + 1,
                why,
            )


@contextmanager
def kept_samples(
    root: Path | None, data: LocalDataset, config: TrainConfig, *, sharers: int
) -> Iterator[SampleCache | None]:
    """The cache of a training's samples under `root`, safe from eviction within the block.

    None when the configuration does not ask for it, and, with a warning, when it cannot be had.
    `sharers` is the number of processes that load samples.
    """
    if not config.cache_samples:
        yield None
        return
    if root is None:
        log.warning("samples are not kept: there is no folder for them")
        yield None
        return
    entry = root / entry_name(data, config)
    try:
        make_folder(root)
        max_bytes = int(disk_usage(root).total * SHARE_OF_DISK)
        pinned = pinned_folder(entry)
        _clear_abandoned(entry)
        _tell(entry)
    except (OSError, Unavailable) as error:
        log.warning("samples are not kept: %s: %s", type(error).__name__, error)
        yield None
        return
    try:
        yield SampleCache(entry, max_bytes, max(1, sharers))
    finally:
        pinned.release()


def entry_name(data: LocalDataset, config: TrainConfig) -> str:
    """The folder of a training's samples: equal for all trainings that see the same ones."""
    settings = config.model_dump(mode="json", exclude=set(NOT_IN_KEY))
    key = rfc8785.dumps(
        {
            "version": data.version,
            "split": data.split_id,
            "seed": config.seed,
            "settings": settings,
        }
    )
    return f"{data.version[:_VERSION_DIGITS]}-{digest_bytes(key)[:_KEY_DIGITS]}"


def _read(path: Path, label: str, ids: Sequence[str]) -> list[Sample] | None:
    """What is kept; None when there is nothing, or nothing whole: that is said and removed."""
    try:
        found = read_samples(path, label, ids)
    except FileNotFoundError:
        return None
    except OSError as error:
        found = Damage(f"{type(error).__name__}: {error}")
    if not isinstance(found, Damage):
        return found
    log.warning(
        "kept samples %s cannot be used, and are made anew: %s. %s",
        "/".join(path.parts[-3:]),
        found.reason,
        _compared(found.libraries),
    )
    with suppress(OSError):  # then it is replaced, or found again
        remove(path)
    return None


def _tell(entry: Path) -> None:
    """Say where samples are kept, and whether other libraries have made those that are there."""
    first = next(iter(sorted(entry.glob("*/*.samples"))), None)
    if first is None:
        log.info("samples are kept in %s", entry)
        return
    log.info("samples are read from %s where they are there. %s", entry, _compared(_made(first)))


def _made(path: Path) -> Libraries | None:
    try:
        return libraries_of(path)
    except OSError:  # told when it is read
        return None


def _compared(before: Libraries | None) -> str:
    """Whether samples that are made now are those that `before` made, in words."""
    if before is None:
        return "What made them is not known: new ones may differ from them."
    changed = [
        f"{name} {before.get(name, 'unknown')} -> {now}"
        for name, now in LIBRARIES.items()
        if before.get(name) != now
    ]
    if not changed:
        return "The libraries are those that made them: new ones are the same."
    return f"Other libraries made them ({', '.join(changed)}): new ones may differ from them."


def _clear_abandoned(entry: Path) -> None:
    """Remove what killed processes had not written to its end."""
    for path in entry.glob("*/.*.tmp"):
        with suppress(FileNotFoundError):  # its writer lives, and has finished it
            if time.time() - path.lstat().st_mtime > ABANDONED_S and is_folder(path.parent):
                remove(path)
