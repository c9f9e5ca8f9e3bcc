"""How long to wait before the next try, while the log does not answer."""

from collections.abc import Iterator

FIRST_RETRY_S = 0.1
LAST_RETRY_S = 5.0  # how late, at most, it is noticed that the log is back


def retry_delays() -> Iterator[float]:
    """Delays in seconds, doubling up to LAST_RETRY_S, without end."""
    delay_s = FIRST_RETRY_S
    while True:
        yield delay_s
        delay_s = min(2 * delay_s, LAST_RETRY_S)
