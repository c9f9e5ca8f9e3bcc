"""Which image a label file of Pascal VOC is of: by its <filename>, or by its own name."""

import posixpath
from collections import defaultdict
from typing import Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName
from perdure.datasets.image_names import ImageNames
from perdure.datasets.tree import Tree, is_image
from perdure.datasets.xml_file import Element

_FILENAME: Final = "voc.filename"


class VocImages:
    """Finds images. Of equal names in several folders, it is the one with most folders in common:
    `train/Annotations/1.xml` is of `train/JPEGImages/1.jpg`.
    """

    def __init__(self, tree: Tree, labels: LabelsByName, findings: Findings) -> None:
        self._names = ImageNames(tree)
        self._labels = labels
        self._findings = findings
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for image in tree.images():
            self._by_stem[_stem(image)].append(image)

    def of_stem(self, stem: str, file: str) -> list[str]:
        """The images that a name without ending in `file` could mean; one, if it is clear."""
        plain = posixpath.normpath(stem.replace("\\", "/"))
        same = self._by_stem.get(posixpath.basename(plain), [])
        places = (posixpath.normpath(posixpath.join(posixpath.dirname(file), plain)), plain)
        for place in places:
            if found := [image for image in same if posixpath.splitext(image)[0] == place]:
                return found
        ending = "/" + plain
        found = [image for image in same if ("/" + posixpath.splitext(image)[0]).endswith(ending)]
        folders = set(file.split("/")[:-1])
        shared = [len(folders.intersection(image.split("/")[:-1])) for image in found]
        most = max(shared, default=0)
        return [image for image, count in zip(found, shared, strict=True) if count == most]

    def of_file(self, file: str, root: Element) -> str | None:
        """The image of a label file; None, with a finding, where it is none or not clear."""
        element = root.first("filename")
        line = root.line if element is None else element.line
        name = "" if element is None else element.text
        own = self.of_stem(_stem(file), file)
        named = self._named(name, file, own)
        if isinstance(named, Fault):
            self._refuse(named, file, line, own)
            return None
        if named is None:
            return self._own(name, file, line, own)
        if own and named not in own:
            rule = f"a label file must have the name of its image, or name another; {own[0]} exists"
            advice = f"see whether the labels are of {named} or of {own[0]}, and correct the name"
            problem = "a label file is called after one image and names another"
            fault = Fault(Severity.ERROR, _FILENAME, name, rule, advice, problem)
            self._refuse(fault, file, line, [*own, named])
            return None
        if not is_image(name):
            self._note(name, file, line, named)
        return named

    def leave_out(self, file: str) -> None:
        """Say that a label file cannot be read: its image is not one without labels."""
        for image in self.of_stem(_stem(file), file):
            self._labels.leave_out(image)

    def _named(self, name: str, file: str, own: list[str]) -> str | Fault | None:
        """The image that <filename> names; None where it names none that is there."""
        if not name:
            return None
        found = self._names.look_up(name, file, prefer=own.__contains__)
        if isinstance(found, str) or found.code != "files.missing-image":
            return found
        stems = [] if is_image(name) else self.of_stem(name, file)
        return stems[0] if len(stems) == 1 else None

    def _own(self, name: str, file: str, line: int, own: list[str]) -> str | None:
        """The image with the label file's own name."""
        if len(own) == 1:
            self._note(name, file, line, own[0])
            return own[0]
        if own:
            rule, advice = "an image must have a label file of its own", "name it in <filename>"
            problem = "a label file could be of several images"
            value = ", ".join(own)
            fault = Fault(
                Severity.ERROR, "files.stem-collision", value, rule, advice, problem=problem
            )
            self._refuse(fault, file, line, own)
        else:
            rule, advice = (
                "a label file must belong to an image",
                "add the image or remove the file",
            )
            fault = Fault(Severity.WARNING, "files.label-without-image", name, rule, advice)
            self._findings.add(fault, file, line)
        return None

    def _note(self, name: str, file: str, line: int, image: str) -> None:
        rule = "<filename> must name an image of the data set"
        advice = f"the labels were taken for {image}"
        self._findings.add(Fault(Severity.INFO, _FILENAME, name, rule, advice), file, line)

    def _refuse(self, fault: Fault, file: str, line: int, images: list[str]) -> None:
        self._findings.add(fault, file, line)
        for image in images:
            self._labels.leave_out(image)


def _stem(name: str) -> str:
    return posixpath.splitext(posixpath.basename(name))[0]
