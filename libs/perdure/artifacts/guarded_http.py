"""Fetching a file from a URL that somebody else wrote.

Such a URL must not lead to what only this machine can reach. So the host must be one that was
allowed; each of its addresses must be public; the connection goes to one of the very addresses that
were judged (the name is not resolved again); and every redirect is judged as the first URL was.
"""

import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from perdure.artifacts.files import new_file
from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.artifacts.public_addresses import is_public
from perdure.errors import InvalidInput, Unavailable

ALLOWED_HOSTS_VARIABLE: Final = "PERDURE_SOURCE_HOSTS"
HTTPS_PORT: Final = 443
# A download goes through a catalogue, a login-free link and a mirror at the most.
MAX_REDIRECTS: Final = 5
MAX_ADDRESSES: Final = 8  # of a host that are tried, one after the other
CONNECT_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 30.0  # from one byte to the next

_MAX_URL_CHARACTERS: Final = 4096  # signed links have about a thousand
_HOST: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
_TARGET: Final = re.compile(r"[!-~]*")  # visible ASCII: the rest of a URL is percent-encoded
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ZIP_MARKS: Final = (b"PK\x03\x04", b"PK\x05\x06")

Resolve = Callable[[str, int], list[str]]  # numeric addresses of a host
Connect = Callable[[str, int, float], socket.socket]  # to a numeric address, with a timeout in s


@dataclass(frozen=True)
class FetchLimits:
    """What a download may take."""

    max_bytes: int = 256 << 30  # as much as an archive may unpack to
    max_s: float = 6 * 3600.0  # 256 GiB at 100 Mbit/s; also stops who sends a byte a minute


DEFAULT_LIMITS: Final = FetchLimits()


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host. Raises OSError; the system's resolver bounds the time."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def connect(address: str, port: int, timeout_s: float) -> socket.socket:
    """A connection to a numeric address, through no proxy. Raises OSError."""
    return socket.create_connection((address, port), timeout_s)


def fetch_zip(
    url: str,
    target: Path,
    allowed_hosts: frozenset[str],
    *,
    limits: FetchLimits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] | None = None,
    resolve: Resolve = resolve,
    connect: Connect = connect,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Download the zip archive at an https URL to `target`, which appears whole or not at all.

    `allowed_hosts` are lower-case names, `host` or `host:port`. `progress(done, total)` counts
    bytes; a total that is not known is 0. Raises InvalidInput for a URL, an address, a redirect or
    content that is refused, Unavailable when the server does not do its work, and OSError when
    `target` cannot be written.
    """
    context = tls or ssl.create_default_context()
    ends_at = time.monotonic() + limits.max_s
    for _ in range(MAX_REDIRECTS + 1):
        parts = _checked_url(url, allowed_hosts)
        addresses = _public_addresses(parts, resolve)
        with _connected(parts, addresses, connect, context, ends_at) as connection:
            answer = _ask(connection, parts)
            if answer.status not in _REDIRECTS:
                _save(answer, target, _shown(parts), limits.max_bytes, progress)
                return
            url = _redirect(parts, answer)
    raise InvalidInput(f"{_shown(parts)} is the end of more than {MAX_REDIRECTS} redirects")


def _checked_url(url: str, allowed_hosts: frozenset[str]) -> SplitResult:
    """The parts of a URL that may be asked. Messages never show its query: it may be signed."""
    try:
        parts = urlsplit(url) if _TARGET.fullmatch(url) and "\\" not in url else None
        host, port = (parts.hostname, parts.port) if parts else (None, None)
    except ValueError:
        parts, host, port = None, None, None
    if parts is None or len(url) > _MAX_URL_CHARACTERS or parts.scheme != "https" or not host:
        raise InvalidInput(
            "a data set's URL must be https://HOST/PATH, in visible ASCII characters "
            f"(others percent-encoded), and at most {_MAX_URL_CHARACTERS} long"
        )
    if "@" in parts.netloc or not _HOST.fullmatch(host) or port == 0:
        raise InvalidInput(
            f"the host of {_shown(parts)} is refused: give a plain name, without an account"
        )
    name = host.rstrip(".")
    place = name if port in (None, HTTPS_PORT) else f"{name}:{port}"
    if place not in allowed_hosts:
        raise InvalidInput(
            f"nothing is fetched from {place}: if you trust it, add it to {ALLOWED_HOSTS_VARIABLE} "
            "(names of hosts, separated by commas)"
        )
    return parts


def _public_addresses(parts: SplitResult, resolve: Resolve) -> list[str]:
    host, port = _place(parts)
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise Unavailable(
            f"the host {host} cannot be found ({error}): correct the URL, or try again"
        ) from error
    refused = [address for address in addresses if not is_public(address)]
    if refused or not addresses:
        what = f"has the address {refused[0]}" if refused else "has no address"
        raise InvalidInput(
            f"the host {host} {what}, and data sets are fetched from public addresses only: "
            "download the file yourself, and give its path"
        )
    return addresses


@contextmanager
def _connected(
    parts: SplitResult,
    addresses: list[str],
    connect: Connect,
    tls: ssl.SSLContext,
    ends_at: float,
) -> Iterator[http.client.HTTPConnection]:
    """A connection to one of the addresses, whose certificate is the host's.

    It breaks when the monotonic clock is at `ends_at`, whatever it is doing then.
    """
    host, port = _place(parts)
    plain = _first_that_answers(host, port, addresses[:MAX_ADDRESSES], connect)
    try:
        secure = tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    except OSError as error:
        plain.close()
        raise _broken(parts, error) from error
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):  # it may have ended by itself
            # Below TLS: a read that waits in another thread gets the end of the stream.
            socket.socket.shutdown(secure, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, ends_at - time.monotonic()), end)
    timer.daemon = True
    connection = http.client.HTTPConnection(host, port)
    connection.sock = secure
    timer.start()
    try:
        secure.settimeout(READ_TIMEOUT_S)
        secure.do_handshake()
        yield connection
    except (OSError, http.client.HTTPException) as error:
        if over.is_set():
            raise _broken(parts, "it takes too long") from error
        if isinstance(error, ssl.SSLError | http.client.HTTPException | ConnectionError):
            raise _broken(parts, error) from error
        if isinstance(error, TimeoutError):
            raise _broken(parts, f"nothing came for {READ_TIMEOUT_S:g} s") from error
        raise  # of the file that is written
    finally:
        timer.cancel()
        secure.close()


def _first_that_answers(
    host: str, port: int, addresses: list[str], connect: Connect
) -> socket.socket:
    reason: OSError | None = None
    for address in addresses:
        try:
            return connect(address, port, CONNECT_TIMEOUT_S)
        except OSError as error:
            reason = error
    raise Unavailable(f"the host {host} does not answer ({reason}): try again later") from reason


def _ask(connection: http.client.HTTPConnection, parts: SplitResult) -> http.client.HTTPResponse:
    target = parts.path or "/"
    connection.request(
        "GET",
        f"{target}?{parts.query}" if parts.query else target,
        headers={
            "Host": parts.netloc,
            "Accept": "application/zip, */*",
            "Accept-Encoding": "identity",  # a compressed body could be a bomb of its own
            "Connection": "close",
            "User-Agent": "perdure",
        },
    )
    return connection.getresponse()


def _redirect(parts: SplitResult, answer: http.client.HTTPResponse) -> str:
    location = answer.getheader("Location")
    if not location:
        raise _broken(parts, "it redirects to nowhere")
    try:
        return urljoin(parts.geturl(), location)
    except ValueError as error:
        raise _broken(parts, "it redirects to what is no URL") from error


def _save(
    answer: http.client.HTTPResponse,
    target: Path,
    shown: str,
    max_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    if answer.status != http.client.OK:
        kind = Unavailable if answer.status in _BUSY else InvalidInput
        raise kind(f"{shown} answers with HTTP status {answer.status}: see that the URL is right")
    total = answer.length  # None when the body comes in chunks, which have an end of their own
    if total is None and not answer.chunked:
        raise InvalidInput(f"{shown} does not say how long it is: it could be cut off unnoticed")
    if answer.getheader("Content-Encoding", "identity").lower() != "identity":
        raise InvalidInput(f"{shown} answers with compressed content, which was not asked for")
    if total is not None and total > max_bytes:
        raise _too_large(shown, max_bytes)
    done = 0
    with new_file(target) as file:
        while chunk := answer.read(CHUNK_BYTES):
            if done == 0 and not chunk.startswith(_ZIP_MARKS):
                raise InvalidInput(
                    f"what {shown} gives is no zip archive: give the URL of the file itself"
                )
            done += len(chunk)
            if done > max_bytes:
                raise _too_large(shown, max_bytes)
            file.write(chunk)
            if progress:
                progress(done, total or 0)
        if done == 0 or (total is not None and done != total):
            raise http.client.IncompleteRead(b"", None if total is None else total - done)


def _too_large(shown: str, max_bytes: int) -> InvalidInput:
    return InvalidInput(f"what {shown} gives has more than {max_bytes} bytes: split the data set")


def _broken(parts: SplitResult, reason: object) -> Unavailable:
    return Unavailable(f"{_shown(parts)} cannot be fetched ({reason}): try again later")


def _place(parts: SplitResult) -> tuple[str, int]:
    return (parts.hostname or "").rstrip("."), parts.port or HTTPS_PORT


def _shown(parts: SplitResult) -> str:
    """A URL without account and query."""
    place = parts.netloc.rpartition("@")[2]
    return f"https://{place}{parts.path}"
