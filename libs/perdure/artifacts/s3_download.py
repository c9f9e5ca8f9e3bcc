"""Bringing what lies in a user's bucket to a folder here. Keys are whatever somebody wrote."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from minio import Minio
from urllib3.response import BaseHTTPResponse

from perdure.artifacts.archive import ArchiveLimits, Fault, refusal_of
from perdure.artifacts.credentials import Credentials
from perdure.artifacts.entry_names import add_folders, collision_key, plain_name
from perdure.artifacts.s3_address import S3Address
from perdure.artifacts.s3_bucket import client_of
from perdure.artifacts.s3_errors import BucketMissing, asking
from perdure.artifacts.s3_reader import ObjectReader
from perdure.errors import InvalidInput, NotFound, StoreUnavailable

# Small files wait for the network most of the time.
_THREADS: Final = 8
_MAX_FAULTS: Final = 1000  # that are listed

Progress = Callable[[int, int], None]  # files so far, and files in all


def download_object(
    address: S3Address, credentials: Credentials, target: Path, *, max_bytes: int
) -> None:
    """Write the object whose key is the address' prefix to the new file `target`.

    Raises NotFound, InvalidInput when it is larger than `max_bytes`, StoreUnavailable, and OSError
    when `target` cannot be written.
    """
    client = client_of(address, credentials)
    with _opened(client, address, address.prefix) as reader:
        if reader.size_bytes > max_bytes:
            raise InvalidInput(
                f"{address} has {reader.size_bytes} bytes, more than {max_bytes}: "
                "split the data set"
            )
        _write(reader, target)


def download_folder(
    address: S3Address,
    credentials: Credentials,
    target: Path,
    limits: ArchiveLimits,
    progress: Progress | None = None,
) -> None:
    """Write all objects below the address' prefix into the folder `target`, by their keys.

    Hidden files are passed over. Raises UnsafeArchive with all keys that cannot be names of files
    or meet in one, before anything is written; NotFound when there is nothing, InvalidInput when it
    is more than `limits` allow, StoreUnavailable, and OSError when `target` cannot be written.
    """
    client = client_of(address, credentials)
    plan = _listed(client, address, limits)

    def bring(name: PurePosixPath) -> None:
        key, size_bytes = plan.objects[name]
        path = target.joinpath(*name.parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(client, address, key) as reader:
            if reader.size_bytes != size_bytes:
                raise StoreUnavailable(f"{key} was replaced while it was fetched: try again")
            _write(reader, path)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="download") as pool:
        try:
            for done, _ in enumerate(pool.map(bring, plan.objects), start=1):
                if progress:
                    progress(done, len(plan.objects))
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass
class _Plan:
    """The objects to fetch: key and size by the name that each gets here."""

    objects: dict[PurePosixPath, tuple[str, int]] = field(default_factory=dict)
    names: dict[str, PurePosixPath] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, key: str, relative: str, size_bytes: int) -> None:
        """Take an object in, or note why it cannot be fetched."""
        name = plain_name(relative)
        if isinstance(name, str):
            advice = "rename the object, or give a prefix without it"
            self.faults.append(Fault("files.path-escape", name, advice, key))
            return
        if any(part.startswith(".") for part in name.parts):
            return
        other = self.names.setdefault(collision_key(str(name)), name)
        if other is not name:
            self._collides(other, key)
        add_folders(name, self.folders)
        self.objects[name] = (key, size_bytes)
        self.size_bytes += size_bytes

    def close(self) -> None:
        """Raises UnsafeArchive when something was noted."""
        for key in self.folders.intersection(self.names):
            name = self.names[key]
            self._collides(name, self.objects[name][0])
        if self.faults:
            raise refusal_of(self.faults)

    def _collides(self, name: PurePosixPath, key: str) -> None:
        fault = f"another object would be stored where {str(name)!r} is"
        self.faults.append(Fault("files.name-collision", fault, "rename one of them", key))


def _listed(client: Minio, address: S3Address, limits: ArchiveLimits) -> _Plan:
    plan = _Plan()
    with _source(address, "listing"):
        listed = client.list_objects(address.bucket, address.prefix, recursive=True)
        for count, found in enumerate(listed, start=1):
            key = found.object_name or ""
            relative = key.removeprefix(address.prefix)
            if relative and not relative.endswith("/"):  # else it stands for a folder
                plan.add(key, relative, found.size or 0)
            entries = max(count, len(plan.folders))
            if entries > limits.max_entries or plan.size_bytes > limits.max_bytes:
                raise InvalidInput(
                    f"{address} holds more than {limits.max_entries} objects or folders, or "
                    f"{limits.max_bytes} bytes: give a longer prefix, or split the data set"
                )
            if len(plan.faults) >= _MAX_FAULTS:
                break
    plan.close()
    if not plan.objects:
        raise NotFound(f"there is nothing at {address}: correct the bucket or the prefix")
    return plan


@contextmanager
def _source(address: S3Address, doing: str, key: str = "") -> Iterator[None]:
    """As `asking`; a bucket that is missing is not found, as nobody but its owner makes it."""
    try:
        with asking(address, doing, key):
            yield
    except BucketMissing as error:
        raise NotFound(
            f"there is no bucket {address.bucket} at {address.host}: correct the name, or "
            f"{address.named_by}"
        ) from error


@contextmanager
def _opened(client: Minio, address: S3Address, key: str) -> Iterator[ObjectReader]:
    def fetch(offset: int, etag: str) -> BaseHTTPResponse:
        headers: dict[str, str | list[str] | tuple[str]] = {"If-Match": etag} if etag else {}
        with _source(address, f"reading {key}", key):
            return client.get_object(address.bucket, key, offset=offset, request_headers=headers)

    with ObjectReader(address, key, fetch) as reader:
        yield reader


def _write(reader: ObjectReader, path: Path) -> None:
    with path.open("xb") as file:
        for chunk in reader.chunks():
            file.write(chunk)
