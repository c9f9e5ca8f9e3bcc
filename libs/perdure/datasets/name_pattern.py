"""Regular expressions that a user gives, matched in time linear in the text, whatever they are.

Python's own engine goes back and tries again: `(a+)+$` takes it years on a name of fifty letters,
and no other thread may run meanwhile. RE2 does without going back, and so without look-around and
back-references; its syntax is that of https://github.com/google/re2/wiki/Syntax.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

from perdure.errors import InvalidInput

# A pattern is applied to the name of each image: longer ones are no rule for names any more.
MAX_PATTERN_CHARACTERS: Final = 200
# Of a compiled pattern with its tables. Patterns for names take some kilobytes; one that counts
# letters of all scripts in the thousands does not fit, and is refused.
_MAX_MEMORY_BYTES: Final = 1 << 20
# A process checks one data set at a time; a few submissions may be validated beside it.
_KEPT_PATTERNS: Final = 8


@dataclass(frozen=True)
class NamePattern:
    """A regular expression for the names of images. Made by `compile_pattern`."""

    _compiled: Any  # re2 has no types

    def found_in(self, name: str) -> str:
        """What is found in a name: the first group, or all without groups; "" for no match."""
        found = self._compiled.search(name)
        if found is None:
            return ""
        return str((found[1] or "") if self._compiled.groups else found[0])


@lru_cache(_KEPT_PATTERNS)
def compile_pattern(pattern: str, option: str) -> NamePattern:
    """The pattern, ready to use. Raises InvalidInput, which names the `option` it was given in."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise InvalidInput(
            f"{option} has {len(pattern)} characters: give at most {MAX_PATTERN_CHARACTERS}"
        )
    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False  # they are raised
    try:
        return NamePattern(re2.compile(pattern, options))
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{option} is no text ({error.reason}): correct it") from error
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        raise InvalidInput(
            f"{option} is no regular expression that can be used ({said}): correct it; "
            "look-around and back-references cannot be used"
        ) from error
