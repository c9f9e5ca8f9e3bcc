"""Data set versions and splits in the object store.

datasets/blobs/<2 hex>/<digest>       the bytes of an image; identical ones once
datasets/manifests/<version>.json     written last: where it exists, all blobs do
datasets/splits/<split_id>.json
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from blake3 import blake3

from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.datasets.manifest import Manifest, ManifestImage, parse_manifest
from perdure.datasets.split import Split, parse_split
from perdure.errors import DamagedObject, InvalidDataset, NotFound

# Storing and fetching wait for the disk or the network, not for the processor.
TRANSFER_THREADS: Final = 8


def blob_key(digest: str) -> str:
    """Where an image's bytes lie."""
    return f"datasets/blobs/{digest[:2]}/{digest}"


def manifest_key(version: str) -> str:
    """Where a version's manifest lies."""
    return f"datasets/manifests/{version}.json"


def split_key(split_id: str) -> str:
    """Where a split's snapshot lies."""
    return f"datasets/splits/{split_id}.json"


def store_images(
    store: ObjectStore,
    manifest: Manifest,
    files: Mapping[str, Path],
    progress: Callable[[int, int], None],
    *,
    whole: AbstractSet[str] = frozenset(),
) -> int:
    """Store the images that the store does not hold, or holds damaged, and return how many those
    were.

    `progress(done, total)` counts contents. `whole` are digests of blobs that the caller has just
    read from the store; any other that is there is read, to know that it is what it was.

    Raises InvalidDataset when a file has changed since its manifest was made.
    """
    contents = {image.digest: image for image in manifest.images}

    def put(image: ManifestImage) -> bool:
        key = blob_key(image.digest)
        if image.digest in whole or _holds(store, key, image.digest):
            return False
        if store.put_file(key, files[image.path]).digest != image.digest:
            store.delete(key)
            raise InvalidDataset(
                f"{image.path} changed while it was imported: import again when nothing writes "
                "to the folder",
                code="files.changed",
            )
        return True

    new = 0
    with ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="store") as pool:
        try:
            for done, was_new in enumerate(pool.map(put, contents.values()), start=1):
                new += was_new
                progress(done, len(contents))
        finally:
            pool.shutdown(cancel_futures=True)
    return new


def fetch_image(store: ObjectStore, digest: str, path: Path) -> StoredObject:
    """Copy an image's bytes to `path`, where they appear whole or not at all.

    What comes damaged may have been damaged on its way, and is fetched once more. What is damaged
    in the store is removed there, so that the next push sends it. Raises NotFound and
    DamagedObject.
    """
    key = blob_key(digest)
    with suppress(DamagedObject):
        return store.get_file(key, path, digest=digest)
    try:
        return store.get_file(key, path, digest=digest)
    except DamagedObject:
        store.delete(key)
        raise


def store_manifest(store: ObjectStore, manifest: Manifest) -> StoredObject:
    """Store a manifest; call it after store_images."""
    return _put_once(store, manifest_key(manifest.version), manifest.text)


def store_split(store: ObjectStore, split: Split) -> StoredObject:
    """Store a split's snapshot."""
    return _put_once(store, split_key(split.split_id), split.text)


def load_manifest(store: ObjectStore, version: str) -> Manifest:
    """Read a version's manifest. Raises NotFound and DamagedObject."""
    return parse_manifest(store.get_bytes(manifest_key(version)).decode(), version)


def load_split(store: ObjectStore, split_id: str) -> Split:
    """Read a split's snapshot. Raises NotFound and DamagedObject."""
    return parse_split(store.get_bytes(split_key(split_id)).decode(), split_id)


def _holds(store: ObjectStore, key: str, digest: str) -> bool:
    """Whether the bytes at `key` are there and have this digest."""
    hasher = blake3()
    try:
        with store.open(key) as stored:
            while chunk := stored.read(CHUNK_BYTES):
                hasher.update(chunk)
    except (NotFound, DamagedObject):
        return False
    return hasher.hexdigest() == digest


def _put_once(store: ObjectStore, key: str, text: str) -> StoredObject:
    # The key is a hash of the text: what lies there already is the same, unless it was damaged.
    data = text.encode()
    known = store.stat(key)
    if known is not None:
        with suppress(NotFound, DamagedObject):  # mended by storing it again
            if store.get_bytes(key) == data:
                return known
    return store.put_bytes(key, data)
