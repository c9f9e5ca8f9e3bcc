"""The files of a data set's folder, listed once. No link leads out of it."""

import os
import posixpath
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perdure.artifacts.entry_names import collision_key, plain_name
from perdure.artifacts.packing import IMAGE_SUFFIXES, belongs
from perdure.datasets.findings import Findings
from perdure.datasets.signatures import format_of
from perdure.datasets.text import unreadable_file

# Archives often hold one folder that holds the data set; more wrapping than this is an error.
_MAX_WRAPPING: Final = 3
_LITTER: Final = frozenset({"__MACOSX"})
# Files beside a single folder that show that the data set begins here, and not in that folder.
_OF_THE_TOP: Final = (".yaml", ".yml", "classes.txt", *IMAGE_SUFFIXES)


@dataclass(frozen=True)
class Tree:
    """Files and folders by their names relative to `root`, with forward slashes; "." is `root`."""

    root: Path
    files: dict[str, Path] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    given: str | None = None  # the name of the file that was given in place of the folder

    def images(self) -> list[str]:
        """The names of all image files, sorted."""
        return sorted(name for name in self.files if is_image(name))

    def under(self, folder: str) -> list[str]:
        """The image files in a folder and its subfolders, sorted."""
        prefix = "" if folder == "." else folder + "/"
        return [name for name in self.images() if name.startswith(prefix)]

    def inside(self, name: str) -> str | None:
        """`name` made plain and relative to the root, or None when it lies outside."""
        plain = name.replace("\\", "/")
        if plain[1:2] == ":":
            return None
        if plain.startswith("/"):
            absolute = Path(plain)
            if not absolute.is_relative_to(self.root):
                return None
            plain = absolute.relative_to(self.root).as_posix()
        plain = posixpath.normpath(plain)
        return None if plain == ".." or plain.startswith("../") else plain

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this plain name."""
        return name in self.files or name in self.folders


def is_image(name: str) -> bool:
    """Whether a file's name says that it is an image."""
    return posixpath.splitext(name)[1].lower() in IMAGE_SUFFIXES


def read_tree(folder: Path, findings: Findings, given: str | None = None) -> Tree:
    """List the data set in `folder`, or in the one folder that it holds.

    `given` is the name of a file in it that was given in its place.

    Hidden files and folders are passed over. A link that leads out of the folder or nowhere, a name
    that is not UTF-8, and a folder that cannot be read are errors in `findings`.
    """
    root = folder.resolve()

    def unreadable(error: OSError) -> None:
        name = Path(os.fsdecode(error.filename or root)).relative_to(root).as_posix()
        findings.add(unreadable_file(error), name)

    with suppress(OSError):  # os.walk meets it again, and it is recorded then
        root = _unwrapped(root)
    tree = Tree(root, given=given)
    for place, folders, names in os.walk(root, onerror=unreadable):
        here = Path(place).relative_to(root).as_posix()
        folders[:] = sorted(name for name in folders if not _is_litter(name))
        tree.folders.add(here)
        for name in [*folders, *names]:
            path = Path(place, name)
            relative = path.relative_to(root).as_posix()
            if _is_litter(name) or not _is_usable(path, relative, root, findings):
                continue
            if name not in folders and path.is_file():
                tree.files[relative] = path
    _check_names(tree, findings)
    return tree


def _check_names(tree: Tree, findings: Findings) -> None:
    """What is to be packed must be called so that it can be unpacked everywhere."""
    seen: dict[str, str] = {}
    for name in filter(belongs, sorted(tree.files)):
        plain = plain_name(name)
        if str(plain) != name:
            fault = plain if isinstance(plain, str) else "it has a backslash"
            rule = f"a name must be one on every system; {fault}"
            findings.error("files.name-unusable", name, "", rule, "rename the file")
        other = seen.setdefault(collision_key(name), name)
        if other != name:
            rule = "names must differ in more than case and the encoding of accents"
            findings.error("files.name-collision", name, other, rule, "rename one of the two")


def _unwrapped(folder: Path) -> Path:
    for _ in range(_MAX_WRAPPING):
        entries = [entry for entry in folder.iterdir() if not _is_litter(entry.name)]
        folders = [entry for entry in entries if entry.is_dir()]
        if len(folders) != 1 or folders[0].is_symlink() or folders[0].name.lower() == "images":
            break
        if any(_is_of_the_top(entry) for entry in entries if entry.is_file()):
            break  # a README or a licence beside the folder does not matter
        folder = folders[0]
    return folder


def _is_of_the_top(file: Path) -> bool:
    return file.name.lower().endswith(_OF_THE_TOP) or format_of(file) is not None


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in _LITTER


def _is_usable(path: Path, relative: str, root: Path, findings: Findings) -> bool:
    try:
        relative.encode()
    except UnicodeEncodeError:
        findings.error(
            "files.name-encoding",
            relative,
            "",
            "file names must be UTF-8",
            "rename the file",
        )
        return False
    if not path.is_symlink():
        return True
    advice = "put the files themselves there"
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # a loop; which of the two depends on Python's version
        target = path
    if not target.is_relative_to(root):
        rule = "links must not lead out of the data set's folder"
        findings.error("files.path-escape", relative, str(path.readlink()), rule, advice)
    elif target.is_symlink() or not target.exists():
        rule = "a link must lead to a file"
        findings.error("files.broken-link", relative, str(path.readlink()), rule, advice)
    elif target.is_dir():
        rule = "folders must not be links"
        findings.warning("files.linked-folder", relative, str(path.readlink()), rule, advice)
    return target.is_relative_to(root) and target.is_file()
