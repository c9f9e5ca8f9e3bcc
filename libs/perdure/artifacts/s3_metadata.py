"""What an S3 object carries about itself: `x-amz-meta-perdure-blake3` and `-perdure-size`.

The digest is there because an S3 server keeps none that says the same for every way of uploading.
"""

from collections.abc import Mapping
from typing import Final

from perdure.artifacts.hashing import is_digest
from perdure.artifacts.port import StoredObject
from perdure.errors import DamagedObject

_DIGEST: Final = "perdure-blake3"
_SIZE: Final = "perdure-size"
_PREFIX: Final = "x-amz-meta-"


def metadata(stored: StoredObject) -> dict[str, str | list[str] | tuple[str]]:
    """The user metadata to store an object with."""
    return {_DIGEST: stored.digest, _SIZE: str(stored.size_bytes)}


def recorded_digest(key: str, headers: Mapping[str, str], size_bytes: int) -> str | None:
    """The digest that an object was stored with; None when Perdure did not store it.

    `headers` are those of the server's answer, `size_bytes` is the size that it says. Raises
    DamagedObject when that is not the size the object was stored with.
    """
    digest, size = headers.get(_PREFIX + _DIGEST, ""), headers.get(_PREFIX + _SIZE, "")
    if not is_digest(digest):
        return None
    if size != str(size_bytes):
        raise DamagedObject(
            f"object {key} has {size_bytes} bytes, but {size or 'an unknown number'} were stored: "
            "store it again"
        )
    return digest
