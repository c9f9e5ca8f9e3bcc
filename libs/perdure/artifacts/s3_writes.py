"""Objects that come to be in a bucket: sent whole or in parts, or copied by the server.

The digest goes ahead of the bytes, so it is known before the first is sent, and holds for those
that are sent.
"""

import io
import math
from collections.abc import Callable
from typing import IO, BinaryIO, Final, cast

from blake3 import blake3
from minio.commonconfig import REPLACE, ComposeSource, CopySource
from minio.error import S3Error
from minio.helpers import MAX_MULTIPART_COUNT, ObjectWriteResult

from perdure.artifacts.hashing import CHUNK_BYTES, digest_bytes
from perdure.artifacts.port import StoredObject
from perdure.artifacts.s3_bucket import S3Bucket
from perdure.artifacts.s3_errors import unavailable
from perdure.artifacts.s3_metadata import metadata, recorded_digest
from perdure.errors import DamagedObject

# Smaller objects go in one request, and are held in memory for it. S3 wants parts of 5 MiB or more.
PART_BYTES: Final = 8 << 20
# What the server copies in one request: it answers within READ_TIMEOUT_S also on a slow disk.
COPY_PART_BYTES: Final = 64 << 20
# How often we begin again with a file that changes while it is stored.
TRIES: Final = 5

_NO_UPLOAD: Final = "NoSuchUpload"


class FileChanged(Exception):
    """The file is not any more the one that was measured."""


def put(bucket: S3Bucket, key: str, file: IO[bytes]) -> StoredObject:
    """Store a file that can seek, from where it stands: its start.

    Raises DamagedObject when it changes all the time, OSError when it cannot be read, and what
    S3Bucket.ask does.
    """
    place = bucket.place(key)
    data = file.read(PART_BYTES + 1)
    if len(data) > PART_BYTES:
        return _put_in_parts(bucket, key, file)
    stored = StoredObject(key, digest_bytes(data), len(data))
    bucket.ask(
        f"storing {key}",
        lambda: bucket.client.put_object(
            bucket.name,
            place,
            io.BytesIO(data),
            len(data),
            part_size=PART_BYTES,
            metadata=metadata(stored),
        ),
    )
    return stored


def copy(bucket: S3Bucket, source: str, etag: str, copied: StoredObject) -> None:
    """Have the server copy the object `source`, if it still has that ETag, to the new `copied`.

    Raises Replaced when it has another, and what S3Bucket.ask does.
    """
    doing = f"copying {source}"
    if copied.size_bytes <= COPY_PART_BYTES:
        bucket.ask(doing, lambda: _copy_whole(bucket, source, etag, copied), key=source)
    else:
        bucket.ask(doing, lambda: _copy_in_parts(bucket, source, etag, copied), key=source)


def _put_in_parts(bucket: S3Bucket, key: str, file: IO[bytes]) -> StoredObject:
    for _ in range(TRIES):
        try:
            return bucket.ask(f"storing {key}", lambda: _send_parts(bucket, key, file))
        except FileChanged:
            continue
    raise DamagedObject(
        f"{key} was not stored: its file changed again and again meanwhile; store it when nothing "
        "writes to the file"
    )


def _send_parts(bucket: S3Bucket, key: str, file: IO[bytes]) -> StoredObject:
    stored = _measure(key, file)
    _put_together(
        bucket,
        stored,
        lambda: bucket.client.put_object(
            bucket.name,
            bucket.place(key),
            cast(BinaryIO, _MeasuredFile(file, stored)),  # no more than `read` is called
            stored.size_bytes,
            part_size=_part_bytes(PART_BYTES, stored),
            # The client's threads go on when a part fails, and outlive the call.
            num_parallel_uploads=1,
            metadata=metadata(stored),
        ),
    )
    return stored


def _copy_whole(bucket: S3Bucket, source: str, etag: str, copied: StoredObject) -> None:
    bucket.client.copy_object(
        bucket.name,
        bucket.place(copied.key),
        CopySource(bucket.name, bucket.place(source), match_etag=etag),
        metadata=metadata(copied),
        metadata_directive=REPLACE,
    )


def _copy_in_parts(bucket: S3Bucket, source: str, etag: str, copied: StoredObject) -> None:
    size_bytes, part_bytes = copied.size_bytes, _part_bytes(COPY_PART_BYTES, copied)
    parts = [
        ComposeSource(
            bucket.name,
            bucket.place(source),
            offset=offset,
            length=min(part_bytes, size_bytes - offset),
            match_etag=etag,
        )
        for offset in range(0, size_bytes, part_bytes)
    ]
    _put_together(
        bucket,
        copied,
        lambda: bucket.client.compose_object(
            bucket.name, bucket.place(copied.key), parts, metadata=metadata(copied)
        ),
    )


def _part_bytes(wanted: int, stored: StoredObject) -> int:
    return max(wanted, math.ceil(stored.size_bytes / MAX_MULTIPART_COUNT))


def _put_together(
    bucket: S3Bucket, stored: StoredObject, send: Callable[[], ObjectWriteResult]
) -> None:
    """Have an object made of parts, and make sure that it is there."""
    try:
        # A completion may fail after the server has begun to answer, with status 200.
        complete = send().etag is not None
    except S3Error as error:
        if error.code != _NO_UPLOAD:
            raise
        # A completion whose answer was lost is asked for again, and there is none any more.
        complete = False
    if not complete and not _is_there(bucket, stored):
        raise unavailable(
            bucket.address, f"storing {stored.key}", "it did not put the parts together"
        )


def _is_there(bucket: S3Bucket, stored: StoredObject) -> bool:
    try:
        found = bucket.client.stat_object(bucket.name, bucket.place(stored.key))
    except S3Error:
        return False
    digest = recorded_digest(stored.key, found.metadata or {}, found.size or 0)
    return digest == stored.digest


def _measure(key: str, file: IO[bytes]) -> StoredObject:
    file.seek(0)
    hasher = blake3()
    size_bytes = 0
    while chunk := file.read(CHUNK_BYTES):
        hasher.update(chunk)
        size_bytes += len(chunk)
    return StoredObject(key, hasher.hexdigest(), size_bytes)


class _MeasuredFile:
    """A file, read once more from its start to the size that was measured.

    The last read raises FileChanged unless all bytes together are those that were measured: so
    the last part is never sent, and the object does not appear.
    """

    def __init__(self, file: IO[bytes], measured: StoredObject) -> None:
        file.seek(0)
        self._file = file
        self._measured = measured
        self._hasher = blake3()
        self._left = measured.size_bytes

    def read(self, size: int) -> bytes:
        """Up to `size` bytes. Raises OSError when the file cannot be read."""
        data = self._file.read(min(size, self._left))
        self._hasher.update(data)
        self._left -= len(data)
        whole = self._hasher.hexdigest() == self._measured.digest if self._left == 0 else bool(data)
        if not whole:
            raise FileChanged
        return data
