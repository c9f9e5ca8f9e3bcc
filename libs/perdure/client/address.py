"""Where the server is, and who says so."""

import ipaddress
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import httpx

from perdure.errors import InvalidSetting, ServerUnreachable

URL_VARIABLE: Final = "PERDURE_URL"
DATA_DIR_VARIABLE: Final = "PERDURE_DATA_DIR"
DEFAULT_URL: Final = "http://127.0.0.1:7412"
SERVER_FILE: Final = "server.json"

_HOST: Final = re.compile(r"(?!.{254})([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_USERINFO: Final = re.compile(r"//.*@", re.DOTALL)  # greedy: a password may hold anything


@dataclass(frozen=True)
class Address:
    """`url` has no slash at its end; `shown` is the same without a password, for people. `advice`
    is what to do when no server answers there.
    """

    url: str
    shown: str
    advice: str


def data_dir() -> Path:
    """The folder of the local server."""
    named = os.environ.get(DATA_DIR_VARIABLE)
    return Path(named).expanduser() if named else Path.home() / ".local" / "share" / "perdure"


def find_address() -> Address:
    """PERDURE_URL, else what the local server wrote into server.json, else the default address.

    Raises ServerUnreachable when a data folder is named and no server runs on it: what answers at
    the default address then is somebody else's. Raises InvalidSetting for what is no URL.
    """
    named = os.environ.get(URL_VARIABLE)
    if named:
        return address_of(named, URL_VARIABLE)
    file = data_dir() / SERVER_FILE
    start = "start one with: perdure up"
    try:
        url = json.loads(file.read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        if os.environ.get(DATA_DIR_VARIABLE):
            raise ServerUnreachable(f"no Perdure server runs on {data_dir()}: {start}") from None
        return Address(DEFAULT_URL, DEFAULT_URL, f"{start}; or set {URL_VARIABLE} to another's URL")
    checked = address_of(str(url), str(file))
    return Address(checked.url, checked.shown, f"{start}; {file} names one that has ended")


def address_of(url: str, named_by: str) -> Address:
    """The address that `named_by` (a variable, a file, an argument) gives.

    Raises InvalidSetting, which names it, unless it is an http(s) URL of a server.
    """
    shown = _USERINFO.sub("//***@", url)
    try:
        fault = _fault(url, urlsplit(url))
    except (ValueError, httpx.InvalidURL) as error:
        fault = "it cannot be read" + ("" if "@" in url else f" ({error})")
    if fault:
        raise InvalidSetting(
            f"{named_by} is {shown!r}, which is not the URL of a server: {fault}. "
            f"Give it as in {DEFAULT_URL}"
        )
    advice = f"{named_by} names it: correct that, or start the server there"
    return Address(url.rstrip("/"), shown.rstrip("/"), advice)


def _fault(url: str, parts: SplitResult) -> str:
    """What is wrong with a URL; "" when nothing is. Raises ValueError and httpx.InvalidURL."""
    # Looked at first, and in the text: urlsplit drops some of them without a word.
    wrong = next((char for char in url if not char.isprintable() or char.isspace()), None)
    if wrong is not None:
        return f"it holds the character {wrong!r}"
    if parts.scheme not in ("http", "https"):
        return "it does not begin with http:// or https://"
    if not parts.hostname:
        return "it names no host"
    if not _has_fit_port(parts):
        return "its port is no number from 1 to 65535"
    if parts.query or parts.fragment:
        return "it has a query or a fragment"
    host = httpx.URL(url).raw_host.decode("ascii")
    if ":" in host:
        ipaddress.IPv6Address(host.partition("%")[0])
    elif not _HOST.fullmatch(host):
        return f"{host!r} is no name of a host"
    return ""


def _has_fit_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False
