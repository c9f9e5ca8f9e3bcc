import pytest

from perdure.errors import AttemptError
from perdure.training.accounting import SampleCount


def test_a_whole_epoch_is_accepted_in_any_order():
    count = SampleCount(["b"])
    count.add(["a", "c"])
    count.check(["a", "b", "c"])
    assert len(count) == 3
    assert sorted(count.seen) == ["a", "b", "c"]


def test_samples_left_out_or_seen_twice_are_named():
    count = SampleCount(["a", "a"])
    with pytest.raises(AttemptError, match=r"1 samples \(b\) left out, 1 samples \(a\) too many"):
        count.check(["a", "b"])
