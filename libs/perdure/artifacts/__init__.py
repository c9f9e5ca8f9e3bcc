"""The object store, atomic files, safe archives, content hashes."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.artifacts.folder import FolderStore
from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.errors import InvalidSetting

__all__ = ["ObjectStore", "StoredObject", "open_store"]


def open_store(url: str) -> ObjectStore:
    """The object store at `url`: `file:///absolute/folder`.

    Raises InvalidSetting for any other form and StoreUnavailable when the folder cannot be used.
    """
    parts = urlsplit(url)
    folder = unquote(parts.path)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    if not local or not folder.startswith("/") or parts.query or parts.fragment or "\0" in folder:
        raise InvalidSetting(
            f"object store {url!r} is not understood: write file:///absolute/folder, "
            "as pathlib's as_uri() gives it"
        )
    return FolderStore(Path(folder))
