"""Ids on their way into paths, and back from their beginnings."""

from urllib.parse import quote

from perdure.errors import InvalidInput, NotFound


def part(text: str) -> str:
    """`text` as one part of a path. Raises NotFound for what no path can have."""
    if not text.strip("."):
        raise NotFound(f"there is nothing called {text!r}")
    return quote(text, safe="")


def unique(what: str, prefix: str, found: list[str]) -> str:
    """The one of `found` that `prefix` means: equal to it, or the only one that begins with it.

    Raises NotFound, and InvalidInput when there are several.
    """
    if not prefix or not found:
        raise NotFound(f"there is no {what} that begins with {prefix!r}")
    if prefix in found:
        return prefix
    if len(found) > 1:
        raise InvalidInput(f"more than one {what} begins with {prefix!r}: give more of it")
    return found[0]
