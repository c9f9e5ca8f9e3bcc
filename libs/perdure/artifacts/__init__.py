"""The object store, atomic files, safe archives, content hashes."""

from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from perdure.artifacts.credentials import read_credentials
from perdure.artifacts.folder import FolderStore
from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.artifacts.s3_address import FORM, SCHEMES, parse_address
from perdure.errors import InvalidSetting

__all__ = ["ObjectStore", "StoredObject", "open_store"]


def open_store(url: str) -> ObjectStore:
    """The object store at `url`: `file:///absolute/folder`, `s3+http://HOST:PORT/BUCKET` or
    `s3+https://HOST[:PORT]/BUCKET[/PREFIX]`, with `?region=NAME` where the server wants one.

    The keys of an S3 store come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for lent ones,
    AWS_SESSION_TOKEN; its server may be away when it is opened.

    Raises InvalidSetting for any other form and for missing keys, and StoreUnavailable when a
    folder cannot be used.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.scheme in SCHEMES:
        return _open_s3(parts)
    folder = unquote(parts.path)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    if not local or not folder.startswith("/") or parts.query or parts.fragment or "\0" in folder:
        # The URL itself is not shown: it may hold a key that does not belong there.
        raise InvalidSetting(
            "the URL of the object store is not understood: write file:///absolute/folder (as "
            f"pathlib's as_uri() gives it), {FORM}"
        )
    return FolderStore(Path(folder))


def _open_s3(parts: SplitResult) -> ObjectStore:
    address, credentials = parse_address(parts), read_credentials()
    try:
        from perdure.artifacts.s3 import S3Store
    except ImportError as error:
        raise InvalidSetting(
            f"an S3 object store needs the package {error.name}: pip install 'perdure[service]'"
        ) from error
    return S3Store(address, credentials)
