"""JSON label files, as anybody wrote them: bounded, and with names for the places in them."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from perdure.datasets.findings import Fault, Findings, Severity, quoted
from perdure.datasets.text import MAX_TEXT_BYTES, read_text

_INVALID: Final = "json.invalid"
# Of what cannot be read, enough to find the place.
_EXCERPT_CHARACTERS: Final = 40
# A box and a polygon of few points; of longer lists only their length is said.
_MAX_QUOTED_VALUES: Final = 12
# Tools count in 64 bits. What has more digits is no id or size, and too much for floats.
_MAX_WHOLE_DIGITS: Final = 19
_WHOLE_LIMIT: Final = 10**_MAX_WHOLE_DIGITS
_WHOLE: Final = re.compile(rf"\s*([+-]?\d{{1,{_MAX_WHOLE_DIGITS}}})(\.0*)?\s*", re.ASCII)
# An object that names a key twice, and that key.
_Repeated = tuple[dict[str, Any], str]


def read_json(
    path: Path, name: str, findings: Findings, *, max_bytes: int = MAX_TEXT_BYTES
) -> dict[str, Any] | list[Any] | None:
    """The object or list in the file `name`; None, with an error, where there is none to read.

    NaN and Infinity are read as floats, so that whoever knows what they stand for can name them. A
    key that an object has twice is an error; the last one is read, for the other findings.
    """
    text = read_text(path, name, findings, max_bytes=max_bytes)
    if text is None:
        return None
    repeated: list[_Repeated] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            times = Counter(key for key, _ in pairs)
            repeated.extend((value, key) for key, count in times.items() if count > 1)
        return value

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        findings.add(
            _unreadable(text[error.pos : error.pos + _EXCERPT_CHARACTERS], error.msg),
            name,
            error.lineno,
        )
        return None
    except ValueError as error:  # a whole number of thousands of digits
        findings.add(_unreadable("", str(error)), name)
        return None
    except RecursionError:
        findings.add(_unreadable("", "it is nested too deeply"), name)
        return None
    if repeated:
        _report_repeated(repeated, value, name, findings)
    if not isinstance(value, dict | list):
        fault = json_fault(value, "the file must hold an object or a list", "see what wrote it")
        findings.add(fault, name)
        return None
    return value


def pointer(*parts: str | int) -> str:
    """The JSON pointer (RFC 6901) to a value by keys and positions; very long keys are cut."""
    return "".join(
        f"/{part}"
        if isinstance(part, int)
        else "/" + quoted(part).replace("~", "~0").replace("/", "~1")
        for part in parts
    )


def coordinate(value: object) -> float | Fault:
    """A number in a label file as a finite float, or the fault why it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        rule, advice = "a coordinate must be a number", "correct the coordinate"
        return Fault(Severity.ERROR, "label.not-a-number", json_text(value), rule, advice)
    try:
        number = float(value)
    except OverflowError:  # of a whole number above all floats
        number = math.inf
    if math.isfinite(number):
        return number
    return not_finite(value)


def not_finite(value: object) -> Fault:
    """The fault of a coordinate that is infinite, or not a number in the sense of floats."""
    rule, advice = "a coordinate must be finite", "correct the coordinate or remove the box"
    return Fault(Severity.ERROR, "label.not-finite", json_text(value), rule, advice)


def whole_number(value: object) -> int | None:
    """The whole number that `value` is: 7, 7.0 and "7" are; true and 7.5 are not."""
    if isinstance(value, str):
        found = _WHOLE.fullmatch(value)
        return int(found[1]) if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if -_WHOLE_LIMIT < value < _WHOLE_LIMIT else None


def json_fault(value: object, rule: str, advice: str) -> Fault:
    """The fault of a value that is JSON, and not what it must be."""
    said = value if isinstance(value, str) else json_text(value)
    problem = "a JSON file holds something else than expected"
    return Fault(Severity.ERROR, _INVALID, said, rule, advice, problem)


def json_text(value: object) -> str:
    """A value as it stands in a file, to be quoted; of an object or a long list only its size."""
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list) and (
        len(value) > _MAX_QUOTED_VALUES or any(isinstance(part, dict | list) for part in value)
    ):
        return f"a list of {len(value)} values"
    return json.dumps(value, ensure_ascii=False)


def _unreadable(value: str, why: str) -> Fault:
    return Fault(
        Severity.ERROR,
        _INVALID,
        value,
        "a .json file must be JSON",
        f"export it again, or correct it: {why}",
    )


def _report_repeated(
    repeated: list[_Repeated], value: object, name: str, findings: Findings
) -> None:
    """Record each key that an object has twice, with the pointer to it."""
    owners = {id(owner) for owner, _ in repeated}
    places = dict(_places(value, owners))
    rule, advice = "an object must name a key once", "remove the wrong one of the two"
    problem = "a key of a JSON file is there twice"
    for owner, key in repeated:
        fault = Fault(Severity.ERROR, _INVALID, key, rule, advice, problem)
        parts = places.get(id(owner))  # of a value that was itself replaced, none
        findings.add(fault, name, pointer=None if parts is None else pointer(*parts, key))


def _places(value: object, wanted: set[int]) -> Iterator[tuple[int, tuple[str | int, ...]]]:
    """The way to each object in `value` whose identity is wanted."""
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        part, way = waiting.pop()
        if id(part) in wanted:
            yield id(part), way
        if isinstance(part, dict):
            waiting += [(child, (*way, key)) for key, child in part.items()]
        elif isinstance(part, list):
            waiting += [(child, (*way, number)) for number, child in enumerate(part)]
