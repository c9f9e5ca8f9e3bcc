"""Splits: which images train and which validate, fixed once and stored as a snapshot."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import rfc8785

from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.manifest import Manifest
from perdure.errors import DamagedObject, InvalidDataset, InvalidInput

FORMAT: Final = "perdure.split/1"

# A place in 0..1 takes the first 52 bits of a digest: all that a double can tell apart.
_SCORE_HEX_DIGITS: Final = 13
# The largest integer that every JSON reader keeps exactly.
_MAX_SEED: Final = (1 << 53) - 1


@dataclass(frozen=True)
class Split:
    """A snapshot. `seed` and `val_ratio` are None where the data set itself names its splits."""

    version: str
    seed: int | None
    val_ratio: float | None
    train: tuple[str, ...]
    val: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The canonical form: JSON after RFC 8785."""
        value = {
            "format": FORMAT,
            "version": self.version,
            "seed": self.seed,
            "val_ratio": self.val_ratio,
            "train": list(self.train),
            "val": list(self.val),
        }
        return rfc8785.dumps(value).decode()

    @cached_property
    def split_id(self) -> str:
        """The BLAKE3 digest of the text, 64 hex digits."""
        return digest_bytes(self.text.encode())


def make_split(manifest: Manifest, *, seed: int, val_ratio: float) -> Split:
    """The split of a data set: the one that it names, or one made from `seed` and `val_ratio`.

    A made split puts an image to the validation side when the hash of the seed and of its content,
    read as a number in 0..1, is below `val_ratio`. So byte-identical images are on one side, and an
    image keeps its side when others are added; the share is met on average only. Where that leaves
    a side empty, the content nearest to the border crosses it.

    Raises InvalidInput for a ratio or a seed out of range, and InvalidDataset when there are
    not two different images.
    """
    if not 0 < val_ratio < 1:
        raise InvalidInput(f"val_ratio is {val_ratio}: give a share between 0 and 1, e.g. 0.2")
    if not 0 <= seed <= _MAX_SEED:
        raise InvalidInput(f"seed is {seed}: give a whole number, 0..{_MAX_SEED}")
    if names_splits(manifest):
        val = tuple(image.path for image in manifest.images if image.split == "val")
        train = tuple(image.path for image in manifest.images if image.split != "val")
        return Split(manifest.version, None, None, train, val)
    scores = sorted((_score(seed, digest), digest) for digest in distinct_contents(manifest))
    if len(scores) < 2:
        raise InvalidDataset(
            "a data set needs at least two different images: one to train and one to validate",
            code="split.too-few-images",
        )
    count = sum(score < val_ratio for score, _ in scores)
    val_digests = {digest for _, digest in scores[: min(max(count, 1), len(scores) - 1)]}
    return Split(
        manifest.version,
        seed,
        val_ratio,
        train=tuple(image.path for image in manifest.images if image.digest not in val_digests),
        val=tuple(image.path for image in manifest.images if image.digest in val_digests),
    )


def names_splits(manifest: Manifest) -> bool:
    """Whether the data set itself says what trains and what validates."""
    return {"train", "val"} <= {image.split for image in manifest.images}


def distinct_contents(manifest: Manifest) -> set[str]:
    """The digests of the images, byte-identical ones once."""
    return {image.digest for image in manifest.images}


def parse_split(text: str, split_id: str) -> Split:
    """Read a snapshot back. Raises DamagedObject when it is not that of `split_id`."""
    if digest_bytes(text.encode()) != split_id:
        raise DamagedObject(f"split {split_id} has changed since it was stored: prepare it again")
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        ratio = value["val_ratio"]
        return Split(
            version=value["version"],
            seed=value["seed"],
            val_ratio=None if ratio is None else float(ratio),
            train=tuple(value["train"]),
            val=tuple(value["val"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedObject(
            f"split {split_id} cannot be read ({error}): "
            "run a version of Perdure at least as new as the one that wrote it"
        ) from error


def _score(seed: int, digest: str) -> float:
    hashed = digest_bytes(f"{seed}:{digest}".encode())
    return float(int(hashed[:_SCORE_HEX_DIGITS], 16) / 16**_SCORE_HEX_DIGITS)
