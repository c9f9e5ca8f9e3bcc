"""Names of images in Label Studio's exports: addresses of its server and of stores, not files."""

import re
from typing import Final
from urllib.parse import parse_qs, unquote

# What Label Studio puts before the name of an uploaded file.
_UPLOAD_PREFIX: Final = re.compile(r"\A[0-9a-f]{8}-(?=.)")
_SERVED_FILES: Final = "/data/"
_LOCAL_FILES: Final = "/local-files/"
_SCHEME: Final = "://"
# Folders of a store that a copy of its images may have kept.
_MAX_KEPT_FOLDERS: Final = 8


def spellings(name: str) -> list[str]:
    """The names that an image may have in the data set, the most telling first.

    These are the path in the store or on the server, then shorter and shorter ends of it; each as
    it is and with %20 and the like decoded, with and without the prefix of an uploaded file.
    """
    path = _path(name)
    found: list[str] = []
    for written in dict.fromkeys((path, unquote(path))):
        folders = written.replace("\\", "/").split("/")
        kept = folders[-_MAX_KEPT_FOLDERS:]
        ends = [written, *("/".join(kept[start:]) for start in range(len(kept)))]
        for end in ends:
            folder, slash, base = end.rpartition("/")
            found += [end, folder + slash + _UPLOAD_PREFIX.sub("", base)]
    by_length = sorted(dict.fromkeys(found), key=lambda end: -end.count("/"))
    return [end for end in by_length if end.rpartition("/")[2]]


def shown(name: str) -> str:
    """The name without what may be secret in an address: who asks, and with which signature."""
    scheme, mark, rest = name.partition(_SCHEME)
    if not mark:
        return name
    host, slash, path = rest.partition("/")
    return scheme + mark + host.rpartition("@")[2] + slash + re.split(r"[?#]", path)[0]


def _path(name: str) -> str:
    """The part of an address that says where the image is in its store."""
    _, mark, rest = name.partition(_SCHEME)
    address = rest.partition("/")[2] if mark else name
    if not mark and not name.startswith(_SERVED_FILES):
        return name
    path, _, query = address.partition("?")
    if _LOCAL_FILES in "/" + path:
        path = parse_qs(query).get("d", [path])[0]
    return path.lstrip("/")
