"""Which samples entered the steps of an epoch, counted apart from what loads them."""

from collections import Counter
from collections.abc import Iterable

from perdure.errors import AttemptError

NAMED_SAMPLES = 5  # in a message; the rest is a number


class SampleCount:
    """Counts the sample ids of an epoch."""

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = Counter(seen)

    def add(self, sample_ids: Iterable[str]) -> None:
        """Count the samples of a step."""
        self._seen.update(sample_ids)

    @property
    def seen(self) -> tuple[str, ...]:
        """All ids counted, each as often as it was counted."""
        return tuple(self._seen.elements())

    def __len__(self) -> int:
        return self._seen.total()

    def check(self, expected: Iterable[str]) -> None:
        """Compare with what the data set holds.

        Raises AttemptError when a sample was left out, or entered more than one step.
        """
        wanted = Counter(expected)
        if self._seen == wanted:
            return
        missing = sorted((wanted - self._seen).elements())
        surplus = sorted((self._seen - wanted).elements())
        raise AttemptError(
            "unknown",
            f"the epoch's steps did not see the data set: {_named(missing)} left out, "
            f"{_named(surplus)} too many. The loader lost samples; the log has what came before.",
        )


def _named(sample_ids: list[str]) -> str:
    listed = ", ".join(sample_ids[:NAMED_SAMPLES])
    return f"{len(sample_ids)} samples ({listed})" if sample_ids else "none"
