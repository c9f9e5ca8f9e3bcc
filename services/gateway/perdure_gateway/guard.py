"""What is checked of every request before a route sees it: the host it was sent to, and the size of
its body.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import InputTooLarge, InvalidInput, PerdureError
from perdure_gateway.problems import problem_from

# Uploads bound themselves, by far higher limits, while they are written to disk.
UPLOAD_PATH = "/v1/uploads"
BLOBS_PATH = "/v1/blobs/"  # begins the path of an image's bytes
MISSING_PATH = BLOBS_PATH + "missing"


class Guard:
    """ASGI middleware that refuses foreign hosts, foreign origins and bodies above the limit."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        allowed_hosts: tuple[str, ...],
        max_body_bytes: int,
        max_upload_bytes: int,
        max_blob_bytes: int,
    ) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts
        self._max_body_bytes = max_body_bytes
        self._max_upload_bytes = max_upload_bytes
        self._max_blob_bytes = max_blob_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a problem, or let the request through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            _check_length(headers.get("content-length"), limit)
        except PerdureError as error:
            await problem_from(error)(scope, receive, send)
            return
        await self._app(scope, _Counted(receive, limit), send)

    def _limit(self, path: str) -> int:
        if path == UPLOAD_PATH:
            return self._max_upload_bytes
        if path.startswith(BLOBS_PATH) and path != MISSING_PATH:
            return self._max_blob_bytes
        return self._max_body_bytes

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._allows(f"//{host}"):
            raise InvalidInput(
                f"this server does not answer to the host name {host!r}: "
                f"use one of {', '.join(self._allowed_hosts)}"
            )
        # Browsers send Origin with every request that changes something; other clients send none.
        origin = headers.get("origin")
        if origin is not None and not self._allows(origin):
            raise InvalidInput(f"requests from pages of {origin!r} are not answered")

    def _allows(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return (f"[{name}]" if ":" in name else name) in self._allowed_hosts


def _check_length(content_length: str | None, limit: int) -> None:
    if content_length is not None and content_length.isdecimal() and int(content_length) > limit:
        raise too_large(limit)


def too_large(limit_bytes: int) -> InputTooLarge:
    """The error for a body above `limit_bytes`."""
    return InputTooLarge(
        f"the request body is larger than the {limit_bytes} bytes that are taken here",
        limit_bytes=limit_bytes,
    )


class _Counted:
    """A receive channel that counts the body's bytes: a chunked request announces no length."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._received = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._limit:
            # FastAPI lets no other kind of error out of its reading of a body.
            raise HTTPException(InputTooLarge.status, too_large(self._limit).message)
        return message
