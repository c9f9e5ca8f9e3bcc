"""Splits that the names of folders and files tell: train, val, test, as tools write them."""

from typing import Final, Literal

NamedSplit = Literal["train", "val", "test"]

_SPLITS: Final[dict[str, NamedSplit]] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def split_of_name(name: str) -> NamedSplit | None:
    """The split that a folder's or list's name means. COCO's are called train2017 and val2017."""
    return _SPLITS.get(name.lower().rstrip("0123456789"))


def split_of_folders(path: str) -> NamedSplit | None:
    """The split that the first folder on the way to `path` names that names one."""
    found = map(split_of_name, path.split("/")[:-1])
    return next((split for split in found if split is not None), None)
