"""perdure dataset diff: what changed from one version of a data set to another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from perdure.cli.dataset_sources import is_version, manifest_of_path
from perdure.cli.output import SHORT_ID, AsJson, given_source, print_json, say
from perdure.cli.server import connect
from perdure.datasets.difference import Difference, difference
from perdure.datasets.manifest import Manifest
from perdure.datasets.report import plural

# Enough to see the pattern; --json lists all of them.
_SHOWN: Final = 10


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A version, or a folder or zip.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The version to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Name the images and classes that differ between two versions.

    The exit code is 0 whether they differ or not.
    """
    one = _manifest(before, as_json=as_json)
    other = _manifest(after, as_json=as_json)
    found = difference(one, other)
    if as_json:
        versions = {"from": one.version, "to": other.version, "same": found.is_empty}
        print_json(versions | found.to_json())
        return
    say(f"from {one.version[:SHORT_ID]} to {other.version[:SHORT_ID]}")
    for line in _lines(found) or ["the two are the same"]:
        say(line)


def _manifest(source: str, *, as_json: bool) -> Manifest:
    """That of a version of the server, or of a data set on this machine, which is checked."""
    path = Path(given_source(source))
    if path.exists():
        return manifest_of_path(path, "compared", as_json=as_json)[0]
    is_version(source)
    with connect() as client:
        return client.manifest(client.find_dataset_version(source))


def _lines(found: Difference) -> list[str]:
    lines: list[str] = []
    images = {
        "added": found.added,
        "removed": found.removed,
        "moved": [f"{of} -> {to}" for of, to in found.moved],
        "with other pixels": found.replaced,
        "relabelled": found.relabelled,
        "in another split": found.resplit,
    }
    for what, names in images.items():
        lines += _counted(f"{plural(len(names), 'image', 'images')} {what}", names)
    lines += _counted("classes added", found.classes_added)
    lines += _counted("classes removed", found.classes_removed)
    if found.classes_renumbered:
        lines.append("classes have other ids")
    return lines


def _counted(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = [f"  and {len(names) - _SHOWN} more (all of them: --json)"] * (len(names) > _SHOWN)
    return [f"{title}:", *(f"  {name}" for name in names[:_SHOWN]), *more]
