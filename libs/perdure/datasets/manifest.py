"""The manifest: what a data set version is. Its canonical text is what the version is a hash of."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import rfc8785

from perdure.artifacts.hashing import digest_bytes, is_digest
from perdure.datasets.annotation import Box, SplitName
from perdure.errors import DamagedObject

FORMAT: Final = "perdure.manifest/1"


@dataclass(frozen=True)
class ManifestImage:
    """One image: where it was, what it is, what is on it. Sizes are those of the upright image."""

    path: str
    digest: str
    size_bytes: int
    width: int
    height: int
    boxes: tuple[Box, ...]
    split: SplitName | None
    group: str = ""  # images of one group stay in one split; "" for an image of its own


@dataclass(frozen=True)
class Manifest:
    """A data set version: class names by index, and its images by path. Made by `manifest_of`."""

    classes: tuple[str, ...]
    images: tuple[ManifestImage, ...]

    @cached_property
    def text(self) -> str:
        """The canonical form: JSON after RFC 8785, images by path, boxes in order."""
        images = [
            {
                "path": image.path,
                "digest": image.digest,
                "size_bytes": image.size_bytes,
                "width": image.width,
                "height": image.height,
                "boxes": [list(box) for box in image.boxes],
                "split": image.split,
                # Left out where there are no groups: such versions keep the text they always had.
                **({"group": image.group} if image.group else {}),
            }
            for image in self.images
        ]
        value: dict[str, Any] = {"format": FORMAT, "classes": list(self.classes), "images": images}
        return rfc8785.dumps(value).decode()

    @cached_property
    def version(self) -> str:
        """The data set version: the BLAKE3 digest of the text, 64 hex digits."""
        return digest_bytes(self.text.encode())


def manifest_of(classes: tuple[str, ...], images: tuple[ManifestImage, ...]) -> Manifest:
    """A manifest in canonical order: the order of files and of label rows does not matter."""
    ordered = sorted(images, key=lambda image: image.path)
    return Manifest(
        classes,
        tuple(
            ManifestImage(
                image.path,
                image.digest,
                image.size_bytes,
                image.width,
                image.height,
                tuple(sorted(image.boxes)),
                image.split,
                image.group,
            )
            for image in ordered
        ),
    )


def parse_manifest(text: str, version: str) -> Manifest:
    """Read a manifest back. Raises DamagedObject when it is not that of `version`."""
    if digest_bytes(text.encode()) != version:
        raise DamagedObject(
            f"the manifest of data set version {version} has changed since it was stored: "
            "push the data set again"
        )
    try:
        value = json.loads(text)
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        return Manifest(
            tuple(value["classes"]), tuple(_parse_image(image) for image in value["images"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedObject(
            f"the manifest of data set version {version} cannot be read ({error}): "
            "run a version of Perdure at least as new as the one that wrote it"
        ) from error


def _parse_image(value: Mapping[str, Any]) -> ManifestImage:
    if not is_digest(value["digest"]):
        raise ValueError(f"digest {value['digest']!r}")
    return ManifestImage(
        path=value["path"],
        digest=value["digest"],
        size_bytes=value["size_bytes"],
        width=value["width"],
        height=value["height"],
        # Canonical JSON writes 1.0 as 1: what comes back as an integer was a float.
        boxes=tuple(
            (int(index), float(x), float(y), float(width), float(height))
            for index, x, y, width, height in value["boxes"]
        ),
        split=value["split"],
        group=value.get("group", ""),
    )
