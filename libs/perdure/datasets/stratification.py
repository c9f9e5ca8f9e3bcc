"""Which groups of images validate: by a hash of their content, with each class on both sides.

A group is what may not be divided: images that the user has put together, and byte-identical ones.
It validates when the hash of the seed and of its key, as a number in 0..1, is below `val_ratio`. So
a group keeps its side when images are added, and the share is met on average.

For a class with few groups the average says little. So the classes are gone through, rarest first,
and where a class has fewer or more validating groups than its bounds allow, the groups nearest to
the border cross it, as long as no class that was gone through before leaves its bounds. Where many
classes are on the same few groups, not every one of them can have its share, or both sides.

Adding images moves only groups that crossed, or that the new images tie together.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from perdure.artifacts.hashing import digest_bytes

# A place in 0..1 takes the first 52 bits of a digest: all that a double can tell apart.
_SCORE_HEX_DIGITS: Final = 13
# How far a class may be from its share, in standard deviations of what the hashes give by
# themselves, and at least one group. Less would part classes more evenly, and move more groups when
# images are added: so, one class in eight needs a correction.
_SLACK_DEVIATIONS: Final = 1.5
_SLACK_GROUPS: Final = 1.0


@dataclass(frozen=True)
class Group:
    """Images that stay together: `classes` are the indices of those on them."""

    key: str
    classes: frozenset[int]


def validating(groups: Sequence[Group], *, seed: int, val_ratio: float) -> frozenset[str]:
    """The keys of the groups that validate; of two or more groups at least one does, and never all.

    A class that only one group has trains, where no other class needs that group to validate.
    """
    scores = {group.key: _score(seed, group.key) for group in groups}
    in_val = {key for key, score in scores.items() if score < val_ratio}
    strata = _strata(groups)
    done: dict[int, tuple[int, int]] = {}
    of_key = {group.key: group.classes for group in groups}
    counts = {number: len(in_val & keys) for number, keys in strata.items()}

    def may_cross(key: str, change: int) -> bool:
        bounds = ((number, done[number]) for number in of_key[key] if number in done)
        return all(low <= counts[number] + change <= high for number, (low, high) in bounds)

    def cross(key: str, change: int) -> None:
        in_val.symmetric_difference_update({key})
        for number in of_key[key]:
            counts[number] += change

    # A class on one group comes last: it would hold the groups that others need to validate.
    in_turn = sorted(strata, key=lambda n: (len(strata[n]) == 1, len(strata[n]), n))
    for number in in_turn:
        low, high = _bounds(len(strata[number]), val_ratio)
        in_order = sorted(strata[number], key=lambda key: (scores[key], key))
        for key in in_order:  # the ones just above the border first
            if counts[number] >= low:
                break
            if key not in in_val and may_cross(key, +1):
                cross(key, +1)
        for key in reversed(in_order):
            if counts[number] <= high:
                break
            if key in in_val and may_cross(key, -1):
                cross(key, -1)
        done[number] = (low, high)
    return frozenset(_neither_empty(in_val, scores))


def _neither_empty(in_val: set[str], scores: Mapping[str, float]) -> set[str]:
    """`in_val`, with the group nearest to the border across it where a side would be empty."""
    if not in_val:
        return {min(scores, key=lambda key: (scores[key], key))}
    if len(in_val) == len(scores):
        return in_val - {max(scores, key=lambda key: (scores[key], key))}
    return in_val


def _strata(groups: Sequence[Group]) -> dict[int, set[str]]:
    strata: dict[int, set[str]] = defaultdict(set)
    for group in groups:
        for number in group.classes:
            strata[number].add(group.key)
    return strata


def _bounds(count: int, val_ratio: float) -> tuple[int, int]:
    """How many of `count` groups with a class may validate: lowest and highest number."""
    if count == 1:
        return 0, 0
    expected = count * val_ratio
    deviation = math.sqrt(count * val_ratio * (1 - val_ratio))
    slack = max(_SLACK_DEVIATIONS * deviation, _SLACK_GROUPS)
    low = max(math.ceil(expected - slack), 1)
    high = min(math.floor(expected + slack), count - 1)
    return min(low, count - 1), max(high, 1)


def _score(seed: int, key: str) -> float:
    hashed = digest_bytes(f"{seed}:{key}".encode())
    return float(int(hashed[:_SCORE_HEX_DIGITS], 16) / 16**_SCORE_HEX_DIGITS)
