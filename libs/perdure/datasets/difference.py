"""What differs between two data set versions: images, labels, splits, classes."""

from dataclasses import asdict, dataclass
from typing import Any

from perdure.datasets.annotation import Box
from perdure.datasets.manifest import Manifest, ManifestImage


@dataclass(frozen=True)
class Difference:
    """From one version to another. Images are named by their paths, in order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[tuple[str, str], ...]  # the same content under another path: from, to
    replaced: tuple[str, ...]  # another content under the same path
    relabelled: tuple[str, ...]  # other boxes, compared by the names of classes
    resplit: tuple[str, ...]  # in another split or group
    classes_added: tuple[str, ...]
    classes_removed: tuple[str, ...]
    classes_renumbered: bool  # the common classes have other ids, or another order

    @property
    def is_empty(self) -> bool:
        """Whether the versions are the same."""
        return not any(asdict(self).values())

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        return asdict(self)


def difference(before: Manifest, after: Manifest) -> Difference:
    """What changed from `before` to `after`."""
    old = {image.path: image for image in before.images}
    new = {image.path: image for image in after.images}
    moved = _moved(old, new)
    came_from = {path: path for path in old.keys() & new.keys()} | {to: of for of, to in moved}
    gone = {of for of, _ in moved}
    pairs = [(old[came_from[path]], new[path]) for path in sorted(came_from)]
    kept = [name for name in before.classes if name in after.classes]
    return Difference(
        added=tuple(sorted(path for path in new if path not in came_from)),
        removed=tuple(sorted(path for path in old if path not in new and path not in gone)),
        moved=moved,
        replaced=tuple(two.path for one, two in pairs if one.digest != two.digest),
        relabelled=tuple(
            two.path
            for one, two in pairs
            if _named(one.boxes, before.classes) != _named(two.boxes, after.classes)
        ),
        resplit=tuple(
            two.path for one, two in pairs if (one.split, one.group) != (two.split, two.group)
        ),
        classes_added=tuple(name for name in after.classes if name not in before.classes),
        classes_removed=tuple(name for name in before.classes if name not in after.classes),
        classes_renumbered=any(
            before.classes.index(name) != after.classes.index(name) for name in kept
        ),
    )


def _moved(
    old: dict[str, ManifestImage], new: dict[str, ManifestImage]
) -> tuple[tuple[str, str], ...]:
    """Images that went from a path that is gone to one that is new."""
    left: dict[str, list[str]] = {}
    for path in sorted(old.keys() - new.keys(), reverse=True):
        left.setdefault(old[path].digest, []).append(path)
    found = [
        (of.pop(), path)
        for path in sorted(new.keys() - old.keys())
        if (of := left.get(new[path].digest))
    ]
    return tuple(sorted(found))


def _named(boxes: tuple[Box, ...], classes: tuple[str, ...]) -> list[tuple[str, ...]]:
    return sorted((classes[index], *map(repr, place)) for index, *place in boxes)
