"""Whether and when a failed stage is tried again."""

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.domain.failures import (
    BACKOFF_S,
    MAX_INFRASTRUCTURE_RETRIES,
    MAX_RETRIES,
    POLICIES,
    Failure,
    Response,
)


@dataclass(frozen=True)
class Retry:
    """Try again: the `number`-th retry since there was progress, `delay_s` from now."""

    number: int
    delay_s: int


def next_retry(failures: Sequence[Failure]) -> Retry | None:
    """What follows the last of a stage's `failures` since it last made progress, oldest first;
    None: give up.

    Losses of infrastructure and failures of the task are counted apart, so that a bad node does not
    use up a task's retries.
    """
    failure = failures[-1]
    policy = POLICIES[failure]
    if sum(f is failure for f in failures) > policy.max_retries:
        return None
    alike = sum(POLICIES[f].infrastructure is policy.infrastructure for f in failures)
    if alike > (MAX_INFRASTRUCTURE_RETRIES if policy.infrastructure else MAX_RETRIES):
        return None
    at_once = policy.response is Response.RETRY_AT_ONCE
    delay_s = 0 if at_once else BACKOFF_S[min(alike, len(BACKOFF_S)) - 1]
    return Retry(number=len(failures), delay_s=delay_s)
