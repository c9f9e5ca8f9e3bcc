"""Coordinates in the text of tables: what Python's float takes is more than what people mean."""

import math
import re
from typing import Final

from perdure.datasets.findings import Fault, Severity

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE | re.ASCII)


def coordinate_in_text(text: str) -> float | Fault:
    """The finite number that `text` is, or the fault why it is none."""
    if _NUMBER.fullmatch(text):
        if math.isfinite(number := float(text)):
            return number
    elif not _NOT_FINITE.fullmatch(text):
        rule, advice = "a coordinate must be a number", "correct the coordinate"
        return Fault(Severity.ERROR, "label.not-a-number", text, rule, advice)
    rule, advice = "a coordinate must be finite", "correct the coordinate or remove the row"
    return Fault(Severity.ERROR, "label.not-finite", text, rule, advice)
