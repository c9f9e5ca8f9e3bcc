"""The object store on an S3 server: Amazon's, MinIO, SeaweedFS, ...

An object's digest and size lie beside it as user metadata (s3_metadata.py). Objects that were put
there by hand have none: their digest is computed when it is asked for, which reads them whole.
"""

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from blake3 import blake3
from urllib3.response import BaseHTTPResponse

from perdure.artifacts.credentials import Credentials
from perdure.artifacts.files import new_file
from perdure.artifacts.hashing import CHUNK_BYTES, digest_bytes
from perdure.artifacts.keys import checked_key, checked_prefix, is_key
from perdure.artifacts.port import StoredObject
from perdure.artifacts.s3_address import S3Address
from perdure.artifacts.s3_bucket import S3Bucket
from perdure.artifacts.s3_errors import Replaced
from perdure.artifacts.s3_metadata import recorded_digest
from perdure.artifacts.s3_reader import ObjectReader
from perdure.artifacts.s3_writes import PART_BYTES, copy, put
from perdure.artifacts.verification import check_digest
from perdure.errors import InvalidInput, NotFound, StoreUnavailable

# How often we begin again with an object that is replaced while it is read or copied.
TRIES: Final = 20
# The digests of a listing take a request each: so many at once, some for each thread ahead.
LOOKUP_THREADS: Final = 8
LOOKUP_BATCH: Final = 8 * LOOKUP_THREADS
READ_AHEAD_BYTES: Final = 256 << 10

Result = TypeVar("Result")


class S3Store:
    """Objects in a bucket; any number of threads and processes may share it. Use `open_store`.

    Every method raises StoreUnavailable when the server is away (after some 30 s), and StoreDenied
    when it refuses the keys. The bucket is made at the first use, when it is missing and the key
    may.
    """

    def __init__(self, address: S3Address, credentials: Credentials) -> None:
        """Connects to nothing yet. Raises InvalidSetting when the host's name cannot be one."""
        self._bucket = S3Bucket(address, credentials)

    def put_file(self, key: str, path: Path) -> StoredObject:
        """See ObjectStore. Raises OSError when `path` cannot be read, and DamagedObject when it
        changes all the time meanwhile.
        """
        checked_key(key)
        with path.open("rb") as file:
            return put(self._bucket, key, file)

    def put_bytes(self, key: str, data: bytes) -> StoredObject:
        """See ObjectStore."""
        return put(self._bucket, key, io.BytesIO(data))

    def put_stream(self, key: str, stream: BinaryIO, *, max_bytes: int) -> StoredObject:
        """See ObjectStore. What is too long for memory goes through the temporary folder."""
        checked_key(key)
        size_bytes = 0
        with tempfile.SpooledTemporaryFile(max_size=PART_BYTES) as spool:
            while chunk := stream.read(CHUNK_BYTES):
                size_bytes += len(chunk)
                if size_bytes > max_bytes:
                    raise InvalidInput(
                        f"{key} has more than {max_bytes} bytes, the most that is accepted"
                    )
                try:
                    spool.write(chunk)
                except OSError as error:
                    raise StoreUnavailable(
                        f"{key} does not fit into {tempfile.gettempdir()} on its way to the object "
                        f"store: {error.strerror or error}; free some space there, then try again"
                    ) from error
            spool.seek(0)
            return put(self._bucket, key, spool)

    def get_bytes(self, key: str, *, digest: str | None = None) -> bytes:
        """See ObjectStore."""

        def read() -> bytes:
            with self._open(key) as reader:
                data = b"".join(reader.chunks())
            check_digest(key, digest_bytes(data), recorded=reader.digest, expected=digest)
            return data

        return _steadily(read)

    def get_file(self, key: str, path: Path, *, digest: str | None = None) -> StoredObject:
        """See ObjectStore. Raises OSError when `path` cannot be written."""

        def read() -> StoredObject:
            with self._open(key) as reader, new_file(path) as target:
                hasher = blake3()
                for chunk in reader.chunks():
                    hasher.update(chunk)
                    target.write(chunk)
                actual = hasher.hexdigest()
                check_digest(key, actual, recorded=reader.digest, expected=digest)
            return StoredObject(key, actual, reader.size_bytes)

        return _steadily(read)

    def open(self, key: str) -> BinaryIO:
        """See ObjectStore."""
        return io.BufferedReader(self._open(key), READ_AHEAD_BYTES)

    def stat(self, key: str) -> StoredObject | None:
        """See ObjectStore."""
        found = self._look_up(key)
        return found[0] if found else None

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See ObjectStore."""
        keys = [key for key, _ in self.sizes(prefix)]
        with ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="look-up") as pool:
            for start in range(0, len(keys), LOOKUP_BATCH):
                for stored in pool.map(self.stat, keys[start : start + LOOKUP_BATCH]):
                    # An object that was deleted since the names were read is not one any more.
                    if stored is not None:
                        yield stored

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """See ObjectStore."""
        bucket, top = self._bucket, self._bucket.address.prefix
        start = top + checked_prefix(prefix)
        found = bucket.ask(
            f"listing {start}*",
            lambda: [
                ((each.object_name or "").removeprefix(top), each.size or 0)
                for each in bucket.client.list_objects(bucket.name, start, recursive=True)
            ],
        )
        # Not every server keeps to the order of keys. What we cannot have stored is not ours.
        return iter(sorted((key, size_bytes) for key, size_bytes in found if is_key(key)))

    def copy(self, source: str, target: str) -> StoredObject:
        """See ObjectStore. The server copies; the bytes do not come here."""
        checked_key(target)

        def try_once() -> StoredObject:
            found = self._look_up(source)
            if found is None:
                raise NotFound(f"the object store has no object {source}")
            stored, etag = found
            copied = StoredObject(target, stored.digest, stored.size_bytes)
            copy(self._bucket, source, etag, copied)
            return copied

        return _steadily(try_once)

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        bucket, place = self._bucket, self._bucket.place(key)
        bucket.ask(f"deleting {key}", lambda: bucket.client.remove_object(bucket.name, place))

    def _look_up(self, key: str) -> tuple[StoredObject, str] | None:
        """An object and its ETag; None when there is no such object."""
        bucket, place = self._bucket, self._bucket.place(key)

        def compute() -> tuple[StoredObject, str]:
            with self._open(key) as reader:
                digest = reader.digest or _hash(reader.chunks())
            return StoredObject(key, digest, reader.size_bytes), reader.etag

        try:
            found = bucket.ask(
                f"looking up {key}", lambda: bucket.client.stat_object(bucket.name, place), key
            )
            size_bytes = found.size or 0
            digest = recorded_digest(key, found.metadata or {}, size_bytes)
            if digest is None:
                return _steadily(compute)
        except NotFound:
            return None
        return StoredObject(key, digest, size_bytes), found.etag or ""

    def _open(self, key: str) -> ObjectReader:
        bucket, place = self._bucket, self._bucket.place(key)

        def fetch(offset: int, etag: str) -> BaseHTTPResponse:
            headers: dict[str, str | list[str] | tuple[str]] = {"If-Match": etag} if etag else {}
            return bucket.ask(
                f"reading {key}",
                lambda: bucket.client.get_object(
                    bucket.name, place, offset=offset, request_headers=headers
                ),
                key,
            )

        return ObjectReader(bucket.address, key, fetch)


def _steadily(call: Callable[[], Result]) -> Result:
    """What `call` gives, which begins again when the object is replaced meanwhile."""
    for _ in range(TRIES - 1):
        try:
            return call()
        except Replaced:
            continue
    return call()


def _hash(chunks: Iterable[bytes]) -> str:
    hasher = blake3()
    for chunk in chunks:
        hasher.update(chunk)
    return hasher.hexdigest()
