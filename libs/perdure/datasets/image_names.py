"""Which image of the data set a label file means: names come from other machines and tools."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.tree import Tree

_DRIVE: Final = re.compile(r"[A-Za-z]:")
# Candidates that are named where a name is ambiguous.
_NAMED: Final = 3


class ImageNames:
    """Finds the images of a data set by the names that label files give them.

    A name is looked for beside the label file, then from the data set's root, and then as the end
    of one image's path. It may go up from the label file's folder ("../images/a.jpg"), and not out
    of the data set: nothing outside of it is ever looked at.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._images = frozenset(tree.images())
        self._by_base: dict[str, list[str]] = defaultdict(list)
        for image in sorted(self._images):
            self._by_base[posixpath.basename(image)].append(image)

    def find(
        self,
        name: str,
        file: str,
        findings: Findings,
        *,
        line: int | None = None,
        pointer: str | None = None,
        prefer: Callable[[str], bool] | None = None,
        spellings: Sequence[str] = (),
    ) -> str | None:
        """The image that `name` in the label file `file` means; None, with an error, if none is.

        Of several that it could be, it is the one whose path `prefer` accepts. `spellings` are
        looked for in place of the name, the first one that is found counts.
        """
        found = self.look_up(name, file, prefer=prefer, spellings=spellings)
        if isinstance(found, str):
            return found
        findings.add(found, file, line, pointer)
        return None

    def look_up(
        self,
        name: str,
        file: str,
        *,
        prefer: Callable[[str], bool] | None = None,
        spellings: Sequence[str] = (),
    ) -> str | Fault:
        """As `find`, for a reader that knows what else to do: the fault is not recorded."""
        folder = posixpath.dirname(file)
        for spelling in spellings or (name,):
            plain = _plain(spelling)
            if _is_absolute(plain) or _leads_out(posixpath.join(folder, plain)):
                return _outside(name)
            found = self._candidates(plain, folder)
            if len(found) > 1 and prefer:
                found = [image for image in found if prefer(image)] or found
            if found:
                return found[0] if len(found) == 1 else _ambiguous(name, found)
        return _missing(name)

    def _candidates(self, plain: str, folder: str) -> list[str]:
        for place in (posixpath.join(folder, plain), plain):
            if (normal := posixpath.normpath(place)) in self._images:
                return [normal]
        ending = "/" + plain
        return [
            image
            for image in self._by_base.get(posixpath.basename(plain), ())
            if ("/" + image).endswith(ending)
        ]


def _plain(name: str) -> str:
    """The name with forward slashes, and without detours."""
    return posixpath.normpath(name.replace("\\", "/"))


def _is_absolute(plain: str) -> bool:
    return plain.startswith("/") or _DRIVE.match(plain) is not None or "\0" in plain


def _leads_out(path: str) -> bool:
    normal = posixpath.normpath(path)
    return normal == ".." or normal.startswith("../")


def _outside(name: str) -> Fault:
    rule = "a name must lie in the data set's folder"
    advice = "write the image's name relative to the data set's folder"
    return Fault(Severity.ERROR, "files.path-escape", name, rule, advice)


def _missing(name: str) -> Fault:
    return Fault(
        Severity.ERROR,
        "files.missing-image",
        name,
        "a label must be of an image in the data set",
        "add the image, or remove its labels",
        problem="labels are of an image that does not exist",
    )


def _ambiguous(name: str, found: list[str]) -> Fault:
    named = ", ".join(found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
    return Fault(
        Severity.ERROR,
        "files.image-ambiguous",
        name,
        f"a name must mean one image; this could be {named}",
        "write the image's path from the data set's folder",
    )
