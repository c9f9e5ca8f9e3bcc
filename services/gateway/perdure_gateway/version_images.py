"""Which images belong to a data set version, by its manifest."""

import asyncio
import re
from collections import OrderedDict
from typing import Final

from blake3 import blake3

from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.artifacts.port import ObjectStore
from perdure.datasets.snapshot import manifest_key
from perdure.errors import DamagedObject

# An export asks for one version's images, one after the other; some run at once. An image takes
# about 100 bytes here, so that the largest versions together take 200 MB.
KEPT_VERSIONS: Final = 4
# The manifest is canonical JSON: quotes within its strings are escaped, so nothing else in it looks
# like this. To parse one with a million boxes would take seconds and a gigabyte.
_DIGEST: Final = re.compile(rb'"digest":"([0-9a-f]{64})"')
_DIGEST_BYTES: Final = len('"digest":""') + 64


class VersionImages:
    """The digests of the images of the versions that were asked for last."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, frozenset[bytes]] = OrderedDict()
        self._loading = asyncio.Lock()

    async def hold(self, version: str, digest: str) -> bool:
        """Whether `version`, which exists, has an image of this digest.

        Raises NotFound and DamagedObject for its manifest, and StoreUnavailable.
        """
        async with self._loading:  # whoever asks for the same version meanwhile finds it there
            if version not in self._kept:
                self._kept[version] = await asyncio.to_thread(_digests, self._store, version)
            self._kept.move_to_end(version)
            while len(self._kept) > KEPT_VERSIONS:
                self._kept.popitem(last=False)
            return bytes.fromhex(digest) in self._kept[version]


def _digests(store: ObjectStore, version: str) -> frozenset[bytes]:
    hasher = blake3()
    found: set[bytes] = set()
    rest = b""
    with store.open(manifest_key(version)) as manifest:
        while chunk := manifest.read(CHUNK_BYTES):
            hasher.update(chunk)
            text = rest + chunk
            found.update(bytes.fromhex(digest.decode()) for digest in _DIGEST.findall(text))
            rest = text[1 - _DIGEST_BYTES :]  # a digest may lie across two chunks
    if hasher.hexdigest() != version:
        raise DamagedObject(
            f"the manifest of data set version {version} has changed since it was stored: "
            "push the data set again"
        )
    return frozenset(found)
