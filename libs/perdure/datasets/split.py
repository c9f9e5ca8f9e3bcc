"""Splits: which images train and which validate, fixed once and stored as a snapshot."""

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import rfc8785

from perdure.artifacts.hashing import digest_bytes
from perdure.datasets.manifest import Manifest
from perdure.datasets.stratification import Group, validating
from perdure.errors import DamagedObject, InvalidDataset, InvalidInput

FORMAT: Final = "perdure.split/1"

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

    A made split follows the hashes of contents, keeps groups and byte-identical images on one side,
    and has each class on both, as stratification.py says.

    Raises InvalidInput for a ratio or a seed out of range, and InvalidDataset when there are
    not two different images, or all are of one group.
    """
    if not 0 < val_ratio < 1:
        raise InvalidInput(f"val_ratio is {val_ratio}: give a share between 0 and 1, e.g. 0.2")
    if not 0 <= seed <= _MAX_SEED:
        raise InvalidInput(f"seed is {seed}: give a whole number, 0..{_MAX_SEED}")
    if names_splits(manifest):
        val = tuple(image.path for image in manifest.images if image.split == "val")
        train = tuple(image.path for image in manifest.images if image.split != "val")
        return Split(manifest.version, None, None, train, val)
    group_of = _group_keys(manifest)
    classes: dict[str, set[int]] = defaultdict(set)
    for image in manifest.images:
        classes[group_of[image.digest]].update(box[0] for box in image.boxes)
    if len(classes) < 2:
        raise InvalidDataset(
            "a data set needs two different images that may be parted: one to train and one to "
            "validate",
            code="split.too-few-images",
        )
    groups = [Group(key, frozenset(of_group)) for key, of_group in classes.items()]
    in_val = validating(groups, seed=seed, val_ratio=val_ratio)
    sides = {image.path: group_of[image.digest] in in_val for image in manifest.images}
    return Split(
        manifest.version,
        seed,
        val_ratio,
        train=tuple(path for path, validates in sides.items() if not validates),
        val=tuple(path for path, validates in sides.items() if validates),
    )


def _group_keys(manifest: Manifest) -> dict[str, str]:
    """The key of the group that a content is in: a digest, or the name that a user's rule gave it.

    Contents that share a group are one, and so are groups that share a content.
    """
    parent: dict[str, str] = {}

    def root(key: str) -> str:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for image in manifest.images:
        # A slash is in no digest: a group called like one is another key.
        named = f"group/{image.group}" if image.group else image.digest
        one, other = root(image.digest), root(named)
        # The name of the group goes before: its key stays when an image is added to it.
        first, second = sorted((one, other), key=lambda key: (not key.startswith("group/"), key))
        parent[second] = first
    return {image.digest: root(image.digest) for image in manifest.images}


def count_groups(manifest: Manifest) -> int:
    """How many groups of images a split may part."""
    return len(set(_group_keys(manifest).values()))


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
