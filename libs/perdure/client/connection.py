"""Requests to the server: found, retried where that is safe, errors turned into ours."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from perdure.client.address import Address, address_of, find_address
from perdure.client.problems import error_from, foreign, is_from_perdure
from perdure.client.waiting import Notice, OnWait
from perdure.errors import ForeignServer, InvalidSetting, ServerUnreachable, Unavailable

CONNECT_TIMEOUT_S: Final = 5.0
# The gateway answers within 10 s, if only to say that its database does not.
REPLY_TIMEOUT_S: Final = 15.0
# The store keeps a large upload, and the log is walked, before the answer comes.
LONG_REPLY_TIMEOUT_S: Final = 900.0
# How long the server may take no byte of an upload: it writes them to a disk.
WRITE_TIMEOUT_S: Final = 30.0
# No request is begun again after this; people wait for it.
PATIENCE_S: Final = 30.0
# Waits before the second, third, ... try of a request that is safe to repeat.
RETRY_DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_NOBODY: Final = (httpx.ConnectError, httpx.ConnectTimeout)
_SILENCE: Final = (httpx.ReadTimeout, httpx.WriteTimeout)

Content = Callable[[], Iterator[bytes]]


class Connection:
    """Speaks to one server. Without `base_url` the address is looked up anew for each try: a
    restarted server may have another port. `on_wait` hears of an answer that is long in coming.
    """

    def __init__(
        self,
        base_url: str | None,
        transport: httpx.BaseTransport | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        self._base_url = base_url
        self._transport = transport
        self._on_wait = on_wait
        self._clients: dict[bool, httpx.Client] = {}

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return self._address().url

    def _address(self) -> Address:
        return address_of(self._base_url, "base_url") if self._base_url else find_address()

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
        """Send a request and read the answer. GET, PUT, and whatever has an Idempotency-Key, is
        tried again, but for a server that hangs.

        Raises ServerUnreachable, or the error that the server answered with: after about PATIENCE_S
        unless `reply_timeout_s` is more than half of that.
        """
        repeatable = method in ("GET", "PUT") or "Idempotency-Key" in (headers or {})
        delays = list(RETRY_DELAYS_S) if repeatable else []
        gives_up_at = time.monotonic() + max(PATIENCE_S, 2 * reply_timeout_s)
        first_try = True
        with Notice(self._on_wait, self._address().shown) as notice:
            while True:
                begun_at = time.monotonic()
                try:
                    with self._answer(
                        method,
                        path,
                        params=_given(params),
                        json=json,
                        content=None if content is None else _watched(content(), notice),
                        headers=headers,
                        timeout=_timeout(reply_timeout_s),
                    ) as response:
                        response.read()
                        return response
                except Unavailable as error:
                    if not delays or _is_final(error, first_try=first_try):
                        raise
                    pause_s = max(delays.pop(0), error.details.get("retry_after_s", 0))
                    # Another try that is as long has to end in time.
                    now = time.monotonic()
                    if now + pause_s + (now - begun_at) > gives_up_at:
                        raise
                first_try = False
                time.sleep(pause_s)

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str] | None = None, silence_s: float
    ) -> Iterator[httpx.Response]:
        """A GET whose body is read bit by bit. `silence_s` bounds the wait for each bit.

        Raises as `request` does, within the block too.
        """
        with (
            Notice(self._on_wait, self._address().shown) as notice,
            self._answer("GET", path, headers=headers, timeout=_timeout(silence_s)) as response,
        ):
            notice.end()
            yield response

    @contextmanager
    def _answer(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        address = self._address()
        try:
            with self._client(address.url).stream(
                method, address.url + path, **request
            ) as response:
                if not response.is_success:
                    response.read()
                    raise error_from(response, address)
                if not is_from_perdure(response):
                    raise foreign(response, address)
                yield response
        except httpx.RequestError as error:
            raise _unreachable(error, address) from error

    def _client(self, url: str) -> httpx.Client:
        # A proxy from the environment leads away from this machine, so it is no way to a local
        # server.
        local = urlsplit(url).hostname in _LOOPBACK
        if local not in self._clients:
            try:
                client = httpx.Client(trust_env=not local, transport=self._transport)
            except (ValueError, ImportError, httpx.InvalidURL) as error:
                raise InvalidSetting(
                    f"the proxy that the environment variables name cannot be used ({error}): "
                    "correct HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
                ) from error
            self._clients[local] = client
        return self._clients[local]


def _unreachable(error: httpx.RequestError, address: Address) -> ServerUnreachable:
    reason = str(error) or type(error).__name__
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return ServerUnreachable(
                f"no Perdure server answers at {address.shown} ({reason}): {address.advice}"
            )
        case httpx.TimeoutException():
            return ServerUnreachable(
                f"the server at {address.shown} was silent for too long ({reason}): it hangs, or "
                f"has too much to do. Try again, or see its log; {address.advice}"
            )
        case httpx.DecodingError():
            return ForeignServer(
                f"what answers at {address.shown} is no Perdure server ({reason}): {address.advice}"
            )
        # h11's word for what does not begin as HTTP does; a connection that broke says otherwise.
        case httpx.RemoteProtocolError() if reason.startswith("illegal"):
            return ForeignServer(
                f"what answers at {address.shown} does not speak HTTP, so it is no Perdure server "
                f"({reason}): {address.advice}"
            )
        case _:
            return ServerUnreachable(
                f"the server at {address.shown} broke off the conversation ({reason}): try "
                f"again; {address.advice}"
            )


def _is_final(error: Unavailable, *, first_try: bool) -> bool:
    """Whether asking again is no use: nobody was there to begin with, or who is there hangs, or is
    somebody else.
    """
    cause = error.__cause__
    nobody = first_try and isinstance(cause, _NOBODY)
    return nobody or isinstance(cause, _SILENCE) or isinstance(error, ForeignServer)


def _watched(content: Iterator[bytes], notice: Notice) -> Iterator[bytes]:
    """`content`; as long as it is taken, nobody waits for an answer."""
    for chunk in content:
        yield chunk
        notice.postpone()


def _timeout(reply_timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(WRITE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, read=reply_timeout_s)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value not in (None, "")}
