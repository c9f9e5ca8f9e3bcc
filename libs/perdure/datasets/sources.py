"""Data sets that lie elsewhere: below s3://BUCKET/PREFIX, or a zip archive at an https:// URL.

They are brought to a temporary folder here, and are then what any folder or zip archive is.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from perdure.artifacts.archive import ArchiveLimits
from perdure.artifacts.credentials import read_credentials
from perdure.artifacts.entry_names import plain_name
from perdure.artifacts.guarded_http import ALLOWED_HOSTS_VARIABLE, FetchLimits, fetch_zip
from perdure.artifacts.s3_address import (
    SOURCE_ENDPOINT,
    SOURCE_ENDPOINT_VARIABLE,
    S3Address,
    source_address,
)
from perdure.datasets.inspection import Progress
from perdure.errors import InvalidInput, InvalidSetting, Unavailable

REGION_VARIABLE: Final = "AWS_REGION"
LIMITS: Final = ArchiveLimits()  # what is fetched is bounded as what is unpacked

_S3: Final = "s3://"
_HTTPS: Final = "https://"
_ALLOWED: Final = re.compile(r"[a-z0-9_.-]+(:[0-9]{1,5})?")
_MEBIBYTE: Final = 1 << 20

# fetch_zip(url, target, allowed_hosts, limits=..., progress=...)
FetchZip = Callable[..., None]


def is_remote(source: str) -> bool:
    """Whether `source` is a URL, and not a path on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None


@contextmanager
def opened(
    source: str,
    *,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
    fetch: FetchZip = fetch_zip,
) -> Iterator[Path]:
    """The folder or zip archive that `source` names; what was fetched is gone when the block ends.

    Raises UnsafeArchive when keys of a bucket cannot be names of files, NotFound when there is
    nothing, InvalidInput (of which InvalidSetting) for what is refused, and Unavailable when a
    server does not do its work or there is no room here. A path is given back as it is.
    """
    if not is_remote(source):
        yield Path(source)
        return
    if not source.startswith((_S3, _HTTPS)):
        scheme = source.partition(":")[0]
        raise InvalidInput(
            f"nothing is fetched by {scheme}: give a path, {_S3}BUCKET/PREFIX, or an {_HTTPS} URL"
        )
    variables = os.environ if environment is None else environment
    with tempfile.TemporaryDirectory(prefix="perdure-source-") as temporary:
        try:
            if source.startswith(_S3):
                path = _from_bucket(source, Path(temporary), variables, progress)
            else:
                path = _from_url(source, Path(temporary), variables, progress, fetch)
        except OSError as error:
            raise Unavailable(
                f"what was fetched cannot be written to {temporary} ({error.strerror}): "
                "make room there, or name another folder in TMPDIR"
            ) from error
        yield path


def allowed_hosts(variables: Mapping[str, str]) -> frozenset[str]:
    """The hosts that data sets may be fetched from; none, when none is named."""
    named = variables.get(ALLOWED_HOSTS_VARIABLE, "").replace(",", " ").lower().split()
    wrong = next((name for name in named if not _ALLOWED.fullmatch(name)), None)
    if wrong is not None:
        raise InvalidSetting(
            f"{ALLOWED_HOSTS_VARIABLE} holds {wrong!r}: write names of hosts, as in "
            "data.example.org or data.example.org:8443, separated by commas"
        )
    return frozenset(name.removesuffix(":443") for name in named)


def _from_url(
    url: str,
    folder: Path,
    variables: Mapping[str, str],
    progress: Progress | None,
    fetch: FetchZip,
) -> Path:
    hosts = allowed_hosts(variables)

    def on_bytes(done: int, total: int) -> None:
        if progress:
            progress("downloading (MiB)", done // _MEBIBYTE, total // _MEBIBYTE)

    target = folder / "data-set.zip"
    limits = FetchLimits(max_bytes=LIMITS.max_bytes)
    fetch(url, target, hosts, limits=limits, progress=on_bytes)
    return target.rename(folder / _file_name(unquote(urlsplit(url).path)))


def _from_bucket(
    source: str, folder: Path, variables: Mapping[str, str], progress: Progress | None
) -> Path:
    bucket, _, prefix = source.removeprefix(_S3).partition("/")
    address = source_address(
        bucket,
        prefix if _is_zip(prefix) or not prefix else prefix.rstrip("/") + "/",
        variables.get(SOURCE_ENDPOINT_VARIABLE, "").strip() or SOURCE_ENDPOINT,
        variables.get(REGION_VARIABLE, "").strip() or None,
    )
    return _downloaded(address, folder, variables, progress)


def _downloaded(
    address: S3Address, folder: Path, variables: Mapping[str, str], progress: Progress | None
) -> Path:
    credentials = read_credentials(variables)
    try:
        from perdure.artifacts.s3_download import download_folder, download_object
    except ImportError as error:
        raise InvalidSetting(
            f"a data set in a bucket needs the package {error.name}: "
            "pip install 'perdure[data-prep]'"
        ) from error

    def on_file(done: int, total: int) -> None:
        if progress:
            progress("downloading", done, total)

    if _is_zip(address.prefix):
        target = folder / _file_name(address.prefix)
        download_object(address, credentials, target, max_bytes=LIMITS.max_bytes)
        return target
    target = folder / "data-set"
    target.mkdir()
    download_folder(address, credentials, target, LIMITS, on_file)
    return target


def _is_zip(name: str) -> bool:
    return name.lower().endswith(".zip")


def _file_name(path: str) -> str:
    """The last part of a path that somebody wrote, where that is a zip's name."""
    name = plain_name(path.rpartition("/")[2])
    if isinstance(name, str) or not _is_zip(name.name):
        return "data-set.zip"
    return name.name
