"""The text in which a check's result is stored and printed: one JSON object, a finding in a line.

So its beginning can be read without the rest, which may have a million lines.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perdure.datasets.findings import Finding
from perdure.errors import DamagedObject

_OPENED: Final = ', "findings": ['
_CLOSED: Final = "]}"


def document(head: dict[str, Any], findings: Iterable[Finding]) -> Iterator[str]:
    """Pieces of the text: `head`, and the member "findings"."""
    yield json.dumps(head, ensure_ascii=False).removesuffix("}") + _OPENED
    for number, finding in enumerate(findings):
        comma = "," if number else ""
        yield f"{comma}\n{json.dumps(finding.to_json(), ensure_ascii=False)}"
    yield _CLOSED + "\n"


def parse_lines(lines: Iterable[bytes]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The head of a document whose lines are read one by one, and its findings as they come.

    Raises DamagedObject for another text; the iterator does too.
    """
    remaining = iter(lines)
    head = _value(next(remaining, b"").rstrip(), _CLOSED)
    if head.pop("findings", None) != []:
        raise _damaged()
    return head, (_value(line.rstrip(), "") for line in remaining)


def _value(line: bytes, end: str) -> dict[str, Any]:
    # All lines but the last one lack the end of the whole text, or have a comma after them.
    text = line.decode(errors="replace").removesuffix(_CLOSED).removesuffix(",") + end
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _damaged() from error
    if not isinstance(value, dict):
        raise _damaged()
    return value


def _damaged() -> DamagedObject:
    return DamagedObject("the stored findings cannot be read: push the data set again")
