"""Which images a YOLO data set has, and the splits they are in."""

import posixpath
from typing import Final

from perdure.datasets.annotation import SplitName
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.split_names import split_of_folders
from perdure.datasets.formats.yolo_config import Place, YoloConfig
from perdure.datasets.text import lines, read_text
from perdure.datasets.tree import Tree, is_image

_FOLDERS_EXIST: Final = "the folders of data.yaml must exist in the data set"
_LABELS_OF: Final = {"images": "labels", "Images": "Labels", "IMAGES": "LABELS"}
IMAGE_FOLDERS: Final = frozenset(_LABELS_OF)
LABEL_FOLDERS: Final = frozenset(_LABELS_OF.values())
_LIST_SUFFIX: Final = ".txt"
# Train, val and test, and one to spare: more would hide the advice.
_NAMED_FOLDERS: Final = 4


def split_images(
    tree: Tree, config: YoloConfig, config_file: str, findings: Findings
) -> tuple[dict[str, SplitName | None], int]:
    """The images to import, by name, each with the split it is given in (None: in none).

    And the number of test images, which are left out.
    """
    if "train" in config.splits or "val" in config.splits:
        return _from_config(tree, config, config_file, findings)
    return _from_folders(tree)


def label_name(image: str) -> str:
    """Where an image's labels lie: `labels` for the last `images` folder, or beside the image."""
    parts = posixpath.splitext(image)[0].split("/")
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] in _LABELS_OF:
            parts[place] = _LABELS_OF[parts[place]]
            break
    return "/".join(parts) + ".txt"


def _from_folders(tree: Tree) -> tuple[dict[str, SplitName | None], int]:
    images = tree.images()
    in_images = [name for name in images if IMAGE_FOLDERS.intersection(name.split("/")[:-1])]
    found: dict[str, SplitName | None] = {}
    left_out = 0
    for name in in_images or images:
        split = split_of_folders(name)
        if split == "test":
            left_out += 1
        else:
            found[name] = split
    return found, left_out


def _from_config(
    tree: Tree, config: YoloConfig, config_file: str, findings: Findings
) -> tuple[dict[str, SplitName | None], int]:
    found: dict[str, SplitName | None] = {}
    if "train" not in config.splits:
        findings.error(
            "yaml.path",
            config_file,
            "",
            "data.yaml must name the images to train on",
            "add train: images/train",
            problem="data.yaml names no images to train on",
        )
    names: tuple[SplitName, SplitName] = ("train", "val")
    for split in names:
        for place in config.splits.get(split, ()):
            for image in _images_at(tree, config, place, config_file, findings):
                if found.setdefault(image, split) != split:
                    findings.error(
                        "split.leakage",
                        image,
                        "",
                        "an image must be in train or in val, not in both",
                        f"correct {config_file}; without val Perdure makes a split itself",
                    )
    left_out = {
        image
        for place in config.splits.get("test", ())
        for image in _images_at(tree, config, place, config_file, Findings())
    }
    return found, len(left_out.difference(found))


def _images_at(
    tree: Tree, config: YoloConfig, place: Place, config_file: str, findings: Findings
) -> list[str]:
    found = _locate(tree, config, place, config_file, findings)
    if found is None:
        return []
    is_list = found not in tree.folders
    if is_list and not found.lower().endswith(_LIST_SUFFIX):
        rule = "a split must be a folder or a .txt file that lists images"
        fault = Fault(Severity.ERROR, "yaml.path", place.text, rule, "write train: images/train")
        findings.add(fault, config_file, place.line)
        return []
    before = len(findings)
    images = _listed(tree, found, findings) if is_list else tree.under(found)
    if not images and len(findings) == before:
        # Without this a data set whose val is empty would be split anew, against its data.yaml.
        fault = Fault(
            Severity.ERROR,
            "yaml.path",
            place.text,
            "a split must have images",
            "add them, or remove the entry: without val Perdure makes a split itself",
            problem=f"{found} holds no image",
        )
        findings.add(fault, config_file, place.line)
    return images


def _locate(
    tree: Tree, config: YoloConfig, place: Place, config_file: str, findings: Findings
) -> str | None:
    """The folder or list file that an entry of data.yaml means."""
    joined = posixpath.join(config.path, place.text.replace("\\", "/"))
    literal = tree.inside(joined)
    if literal is not None and tree.exists(literal):
        return literal
    candidates = _alternatives(tree, config.path, place.text)
    if len(candidates) == 1:
        rule, advice = _FOLDERS_EXIST, f"{candidates[0]} was read instead"
        fault = Fault(Severity.INFO, "yaml.path", joined, rule, advice)
        findings.add(fault, config_file, place.line)
        return candidates[0]
    if candidates:
        rule = "a path in data.yaml must mean one folder"
        advice = "write the one that is meant, relative to data.yaml"
        problem = f"this could mean {' or '.join(candidates)}"
    else:
        rule, advice = _FOLDERS_EXIST, _existing_folders(tree)
        problem = "a path in data.yaml leads to no folder or file of the data set"
    fault = Fault(Severity.ERROR, "yaml.path", joined, rule, advice, problem)
    findings.add(fault, config_file, place.line)
    return None


def _existing_folders(tree: Tree) -> str:
    """Advice that names the folders in which there are images."""
    folders = sorted({posixpath.dirname(name) or "." for name in tree.images()})
    if not folders:
        return "correct the entry, or add the folder"
    more = ", ..." if len(folders) > _NAMED_FOLDERS else ""
    return f"correct the entry: images lie in {', '.join(folders[:_NAMED_FOLDERS])}{more}"


def _alternatives(tree: Tree, path: str, place: str) -> list[str]:
    """What exists of that name when the beginning of `path` is left out.

    Of a place that lies outside of the data set, its own beginning may be left out too: it comes
    from the machine on which data.yaml was written.
    """
    outside = tree.inside(place) is None
    parts = _parts(place)
    before = [] if place.startswith("/") else _parts(path)
    joined = before + parts
    found = [
        ending
        for start in range(len(before) + 1)
        if tree.exists(ending := "/".join(joined[start:]))
    ]
    if found or not outside:
        return found
    endings = ("/".join(parts[start:]) for start in range(len(parts)))
    return [ending for ending in endings if tree.exists(ending)][:1]


def _parts(place: str) -> list[str]:
    return [part for part in place.replace("\\", "/").split("/") if part not in ("", ".", "..")]


def _listed(tree: Tree, list_file: str, findings: Findings) -> list[str]:
    """The images that a list file names, one a line, relative to it or to the data set."""
    text = read_text(tree.files[list_file], list_file, findings)
    found = []
    for number, line in enumerate(lines(text or ""), start=1):
        entry = line.strip()
        if not entry:
            continue
        beside = tree.inside(posixpath.join(posixpath.dirname(list_file), entry.replace("\\", "/")))
        direct = tree.inside(entry)
        name = next((name for name in (beside, direct) if name in tree.files), None)
        if name is not None and is_image(name):
            found.append(name)
        elif beside is None and direct is None:
            rule, advice = (
                "a list must name files of the data set",
                "write paths relative to the list",
            )
            fault = Fault(Severity.ERROR, "files.path-escape", entry, rule, advice)
            findings.add(fault, list_file, number)
        else:
            rule, advice = "a list must name images that exist", "add the image or remove the line"
            fault = Fault(Severity.ERROR, "files.missing-image", entry, rule, advice)
            findings.add(fault, list_file, number)
    return found
