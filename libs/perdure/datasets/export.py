"""A data set version as files for other tools: YOLO, or COCO.

Images keep their paths, boxes their exact numbers, and groups go along: a version that is exported
and imported again is the same version. There are three exceptions. Where two images of one folder
would share a label file of YOLO's, or a name would break a list, an image gets the name of its
content. Where a set without splits has images in a folder `images` and others outside of it, YOLO
gets all of them in it. And beside images of named splits those of none go to train.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, get_args

import yaml

from perdure.artifacts.files import new_folder
from perdure.datasets.annotation import Box
from perdure.datasets.formats.coco_boxes import SHARES_KEY, bbox_of
from perdure.datasets.formats.image_groups import GROUP_KEY, GROUPS_FILE
from perdure.datasets.formats.yolo_config import GROUPS_KEY
from perdure.datasets.formats.yolo_layout import IMAGE_FOLDERS, label_name
from perdure.datasets.manifest import Manifest, ManifestImage
from perdure.datasets.split import names_splits
from perdure.errors import Conflict, InvalidInput

ExportFormat = Literal["yolo", "coco"]
EXPORT_FORMATS: Final[tuple[ExportFormat, ...]] = get_args(ExportFormat)

# Puts the bytes of an image at a path that is free.
Fetch = Callable[[ManifestImage, Path], None]
# Called with the images that are written, and their number.
Progress = Callable[[int, int], None]

# Names of files that the export writes beside the images.
_OURS: Final = frozenset({"data.yaml", "classes.txt", "train.txt", "val.txt"})


def export(
    manifest: Manifest, format_: ExportFormat, fetch: Fetch, out: Path, progress: Progress
) -> None:
    """Write the version to the new folder `out`: whole, or not at all.

    Raises Conflict when `out` holds something, InvalidInput for a manifest with a path that leads
    out of it, OSError, and what `fetch` raises.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Conflict(f"{out} exists and is not empty: name a new folder")
    names = _names(manifest, format_)
    with new_folder(out) as folder:
        for number, image in enumerate(manifest.images):
            progress(number, len(manifest.images))
            target = folder / names[image.path]
            target.parent.mkdir(parents=True, exist_ok=True)
            fetch(image, target)
        for name, text in _WRITERS[format_](manifest, names).items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        progress(len(manifest.images), len(manifest.images))


def _names(manifest: Manifest, format_: ExportFormat) -> dict[str, str]:
    """The path of each image in the export, by its path in the manifest."""
    names: dict[str, str] = {}
    # COCO's labels are in one file, where no two images come into each other's way.
    taken_by = label_name if format_ == "yolo" else str
    taken = {taken_by(name) for name in _OURS}
    # Without lists, readers of YOLO take a folder of this name for where all images are.
    in_folder = format_ == "yolo" and any(_in_image_folder(image.path) for image in manifest.images)
    for image in manifest.images:
        path = PurePosixPath(image.path)
        if path.is_absolute() or ".." in path.parts or "\0" in image.path or not path.name:
            raise InvalidInput(
                f"the image {image.path!r} of data set version {manifest.version} has a path that "
                "leads out of a folder: nothing was written"
            )
        name = image.path
        if in_folder and not _in_image_folder(name) and not names_splits(manifest):
            name = f"images/{name}"
        if not name.isprintable() or name != name.strip() or taken_by(name) in taken:
            name = f"images/{image.digest}-{len(names)}{path.suffix.lower()}"
        taken.add(taken_by(name))
        names[image.path] = name
    return names


def _in_image_folder(path: str) -> bool:
    return not IMAGE_FOLDERS.isdisjoint(path.split("/")[:-1])


def _yolo(manifest: Manifest, names: Mapping[str, str]) -> dict[str, str]:
    """Label files, and a data.yaml with lists and groups, where there are splits and groups."""
    files = {
        label_name(names[image.path]): "".join(map(_row, image.boxes)) for image in manifest.images
    }
    config: dict[str, Any] = {"names": dict(enumerate(manifest.classes))}
    for split, images in _by_split(manifest).items():
        if split is not None:
            files[f"{split}.txt"] = "".join(f"./{names[image.path]}\n" for image in images)
            config = {split: f"{split}.txt"} | config
    groups = {names[image.path]: image.group for image in manifest.images if image.group}
    if groups:
        files[GROUPS_FILE] = json.dumps(groups, indent=0)
        config[GROUPS_KEY] = GROUPS_FILE
    files["data.yaml"] = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return files


def _row(box: Box) -> str:
    # Python's shortest form of a number reads back as the same number.
    return f"{' '.join(map(repr, box))}\n"


def _coco(manifest: Manifest, names: Mapping[str, str]) -> dict[str, str]:
    """One file with annotations for each split; ids count from 1, as most tools expect."""
    files = {}
    for split, images in _by_split(manifest).items():
        value = {
            "images": [
                {
                    "id": number,
                    "file_name": names[image.path],
                    "width": image.width,
                    "height": image.height,
                    **({GROUP_KEY: image.group} if image.group else {}),
                }
                for number, image in enumerate(images, start=1)
            ],
            "annotations": _annotations(images),
            "categories": [
                {"id": number, "name": name} for number, name in enumerate(manifest.classes, 1)
            ],
        }
        name = "instances.json" if split is None else f"instances_{split}.json"
        files[name] = json.dumps(value, ensure_ascii=False)
    return files


def _annotations(images: list[ManifestImage]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, image in enumerate(images, start=1):
        for index, x, y, width, height in image.boxes:
            shares = (x, y, width, height)
            box = bbox_of(shares, image.width, image.height)
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": number,
                    "category_id": index + 1,
                    "bbox": list(box),
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                    SHARES_KEY: list(shares),
                }
            )
    return found


def _by_split(manifest: Manifest) -> dict[str | None, list[ManifestImage]]:
    """The images by split; beside named splits an image of none trains."""
    splits = {image.split for image in manifest.images}
    found: dict[str | None, list[ManifestImage]] = {}
    for image in manifest.images:
        split = image.split or ("train" if len(splits) > 1 else None)
        found.setdefault(split, []).append(image)
    return found


_WRITERS: Final[dict[ExportFormat, Callable[[Manifest, Mapping[str, str]], dict[str, str]]]] = {
    "yolo": _yolo,
    "coco": _coco,
}
