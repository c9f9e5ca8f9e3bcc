"""Completing a thin archive: the images that it names come from the object store."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

from perdure.artifacts.archive import ArchiveLimits, check_distinct, check_size, refusal
from perdure.artifacts.port import ObjectStore
from perdure.datasets.inspection import Progress
from perdure.datasets.snapshot import TRANSFER_THREADS, fetch_image
from perdure.datasets.thin_archive import IMAGES_FILE, NamedImage, read_images
from perdure.errors import DamagedObject, NotFound, PerdureError

_AGAIN: Final = "push the data set again"

_Named = tuple[PurePosixPath, NamedImage]


def complete_folder(
    store: ObjectStore,
    folder: Path,
    archive_bytes: int,
    progress: Progress,
    *,
    limits: ArchiveLimits | None = None,
) -> set[str]:
    """Put the images that an unpacked archive of `archive_bytes` names into its `folder`, and give
    their digests. Nothing happens to an archive that brings its images itself.

    All of the names are judged, with those in the folder, by the rules for entries of an archive
    before the first image is fetched. Raises UnsafeArchive; NotFound when the store does not hold
    an image; DamagedObject when it holds it damaged, which is removed there: pushed again, it is
    sent again.
    """
    listing = folder / IMAGES_FILE
    if not listing.is_file():
        return set()
    named = read_images(listing)
    listing.unlink()  # it is none of the data set's files
    _check(named, folder, archive_bytes, limits or ArchiveLimits())
    _fetch(store, named, folder, progress)
    return {image.digest for _, image in named}


def _check(
    named: Sequence[_Named], folder: Path, archive_bytes: int, limits: ArchiveLimits
) -> None:
    there: list[PurePosixPath] = []
    folders: list[PurePosixPath] = []
    unpacked_bytes = 0
    for place, subfolders, names in os.walk(folder):
        here = PurePosixPath(Path(place).relative_to(folder).as_posix())
        folders += [here / name for name in subfolders]
        there += [here / name for name in names]
        unpacked_bytes += sum(Path(place, name).stat().st_size for name in names)
    if len(there) + len(named) > limits.max_entries:
        raise refusal(
            "archive.too-many-entries",
            f"the archive and its images are more than {limits.max_entries} files",
            "split the data set",
        )
    check_distinct([*there, *(path for path, _ in named)], folders, limits)
    # What arrived: each content once. A thousand names for one image are a bomb too.
    contents = {image.digest: image.size_bytes for _, image in named}
    check_size(
        unpacked_bytes + sum(image.size_bytes for _, image in named),
        archive_bytes + sum(contents.values()),
        limits,
    )


def _fetch(store: ObjectStore, named: Sequence[_Named], folder: Path, progress: Progress) -> None:
    """Fetch all, also after one that cannot be had: one more push is to bring all of those."""

    def fetch(item: _Named) -> PerdureError | None:
        path, image = item
        try:
            _fetch_one(store, image, folder / path)
        except (NotFound, DamagedObject) as error:
            return error
        return None

    lost: list[tuple[PurePosixPath, PerdureError]] = []
    progress("collecting", 0, len(named))
    with ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="fetch") as pool:
        try:
            for done, error in enumerate(pool.map(fetch, named), start=1):
                if error is not None:
                    lost.append((named[done - 1][0], error))
                progress("collecting", done, len(named))
        finally:
            pool.shutdown(cancel_futures=True)
    if lost:
        path, error = lost[0]
        raise type(error)(
            f"{len(lost)} of {len(named)} images cannot be had from the object store; first: "
            f"{path}: {error.message}. Push the data set again: what is missing is sent then"
        )


def _fetch_one(store: ObjectStore, image: NamedImage, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    stored = fetch_image(store, image.digest, target)
    # The bytes that were counted are those that come: a size is a stranger's word.
    if stored.size_bytes != image.size_bytes:
        target.unlink()
        raise refusal(
            "archive.broken",
            f"{IMAGES_FILE} says {image.size_bytes} bytes of {image.digest}, which has "
            f"{stored.size_bytes}",
            _AGAIN,
        )
