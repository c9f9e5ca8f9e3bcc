"""What is said of an error."""

import asyncio

import pytest

from perdure.errors import LogUnavailable, described


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such epoch"), "ValueError: no such epoch"),
        (KeyError("epoch"), "KeyError: 'epoch'"),
        (LogUnavailable("the log is away"), "the log is away"),
        (TimeoutError(), "TimeoutError: no answer in time"),
        (asyncio.CancelledError(), "CancelledError: it gives no reason"),
        (OSError(""), "OSError: it gives no reason"),
    ],
)
def test_an_error_is_told_in_words_also_when_it_has_none(error: BaseException, text: str) -> None:
    assert described(error) == text
