"""Print what the project needs with the extras that are named: one requirement a line.

    python needed_packages.py gateway scheduler relay

Extras that name other extras of the project (`perdure[service]`) are followed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def needed(project: dict[str, Any], extras: Iterable[str]) -> list[str]:
    """Requirements of `project`, a [project] table, with `extras`: sorted, each once.

    Raises KeyError for an extra that it does not have.
    """
    own = re.compile(rf"{re.escape(project['name'])}\[(.+)\]")
    requirements = set(project["dependencies"])
    open_extras, seen = list(extras), set[str]()
    while open_extras:
        extra = open_extras.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in project["optional-dependencies"][extra]:
            if match := own.fullmatch(requirement):
                open_extras += [name.strip() for name in match[1].split(",")]
            else:
                requirements.add(requirement)
    return sorted(requirements)


if __name__ == "__main__":
    with Path("pyproject.toml").open("rb") as file:
        print("\n".join(needed(tomllib.load(file)["project"], sys.argv[1:])))
