"""What stands for a data set on the command line: a version of the server, or a path here."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from perdure.cli.findings import checked, refuse
from perdure.datasets.manifest import Manifest
from perdure.errors import InvalidInput

_VERSION: Final = re.compile(r"[0-9a-f]{4,64}")


def is_version(source: str) -> None:
    """Raises InvalidInput for what is neither a path that exists nor like a version."""
    if not _VERSION.fullmatch(source):
        raise InvalidInput(
            f"{source!r}: there is no such folder or archive, and it is no data set version "
            "(see: perdure dataset ls)"
        )


def manifest_of_path(
    path: Path, becomes: str, *, as_json: bool
) -> tuple[Manifest, Mapping[str, Path]]:
    """The manifest of a data set here, and where its images lie (nowhere, for a zip).

    One with errors ends the command with its findings: it cannot be `becomes` ("compared").
    """
    result = checked(path)
    if result.manifest is None:
        refuse(result, as_json=as_json, end=f"{path} cannot be {becomes}: correct the errors")
    return result.manifest, result.files
