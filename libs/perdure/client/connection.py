"""Requests to the server: found, retried where that is safe, errors turned into ours."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from perdure.client.address import server_url
from perdure.client.problems import error_from
from perdure.errors import InvalidSetting, ServerUnreachable, Unavailable

CONNECT_TIMEOUT_S: Final = 5.0
REPLY_TIMEOUT_S: Final = 60.0
# The store keeps a large upload, and the log is walked, before the answer comes.
LONG_REPLY_TIMEOUT_S: Final = 900.0
# Waits before the second, third, ... try of a request that is safe to repeat.
RETRY_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")

Content = Callable[[], Iterator[bytes]]


class Connection:
    """Speaks to one server. Without `base_url` the address is looked up anew for each try: a
    restarted server may have another port.
    """

    def __init__(self, base_url: str | None, transport: httpx.BaseTransport | None = None) -> None:
        self._base_url = base_url
        self._transport = transport
        self._clients: dict[bool, httpx.Client] = {}

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return (self._base_url or server_url()).rstrip("/")

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        content: Content | None = None,
        headers: Mapping[str, str] | None = None,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> httpx.Response:
        """Send a request and read the answer. GET, and whatever has an Idempotency-Key, is tried
        again.

        Raises ServerUnreachable, or the error that the server answered with.
        """
        repeatable = method == "GET" or "Idempotency-Key" in (headers or {})
        delays = list(RETRY_DELAYS_S) if repeatable else []
        first_try = True
        while True:
            try:
                with self._answer(
                    method,
                    path,
                    params=_given(params),
                    json=json,
                    content=None if content is None else content(),
                    headers=headers,
                    timeout=_timeout(reply_timeout_s),
                ) as response:
                    response.read()
                    return response
            except Unavailable as error:
                refused = first_try and isinstance(error.__cause__, httpx.ConnectError)
                if refused or not delays:
                    raise
            first_try = False
            time.sleep(delays.pop(0))

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, silence_s: float
    ) -> Iterator[httpx.Response]:
        """A GET whose body is read bit by bit. `silence_s` bounds the wait for each bit.

        Raises as `request` does, within the block too.
        """
        with self._answer("GET", path, headers=headers, timeout=_timeout(silence_s)) as response:
            yield response

    @contextmanager
    def _answer(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        url = self.url
        try:
            with self._client(url).stream(method, url + path, **request) as response:
                if not response.is_success:
                    response.read()
                    raise error_from(response)
                yield response
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise InvalidSetting(f"{url!r} is not the URL of a server: {error}") from error
        except httpx.ConnectError as error:
            raise ServerUnreachable(
                f"no Perdure server answers at {url}: start one with: perdure up"
            ) from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise ServerUnreachable(
                f"the Perdure server at {url} broke off the conversation ({reason}): try again"
            ) from error

    def _client(self, url: str) -> httpx.Client:
        # A proxy from the environment leads away from this machine, so it is no way to a local
        # server.
        local = urlsplit(url).hostname in _LOOPBACK
        if local not in self._clients:
            self._clients[local] = httpx.Client(trust_env=not local, transport=self._transport)
        return self._clients[local]


def _timeout(reply_timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(REPLY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=reply_timeout_s)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value not in (None, "")}
