"""Problem details from the server, as the errors they were there."""

from collections.abc import Iterator
from typing import Any

import httpx

from perdure.errors import Conflict, InvalidInput, NotFound, PerdureError, Unavailable

MAX_QUOTED_CHARACTERS = 300


def _classes(root: type[PerdureError]) -> Iterator[type[PerdureError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


def error_from(response: httpx.Response) -> PerdureError:
    """The error that a response tells of. Its body has been read."""
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    if not (isinstance(body, dict) and isinstance(body.get("code"), str)):
        return _foreign(response)
    message = str(body.get("detail", ""))
    given = body.get("details")
    details: dict[str, Any] = given if isinstance(given, dict) else {}
    for cls in _classes(PerdureError):
        # Found by code alone, so that an error keeps its place in the tree (and its exit code) over
        # the wire.
        if cls.code == body["code"]:
            return _make(cls, message, details)
    return _make(_by_status(response.status_code), message, details)


def form_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object that a server answered with. Raises InvalidInput when it is something
    else: then it is no Perdure server.
    """
    try:
        form: Any = response.json()
    except ValueError:
        form = None
    if not isinstance(form, dict):
        raise _foreign(response)
    return form


def _make(cls: type[PerdureError], message: str, details: dict[str, Any]) -> PerdureError:
    error = PerdureError.__new__(cls)
    PerdureError.__init__(
        error, message, **{str(k): v for k, v in details.items() if k != "message"}
    )
    return error


def _by_status(status: int) -> type[PerdureError]:
    match status:
        case 404:
            return NotFound
        case 409:
            return Conflict
        case 502 | 503 | 504:
            return Unavailable
        case _ if status < 500:
            return InvalidInput
        case _:
            return PerdureError


def _foreign(response: httpx.Response) -> PerdureError:
    """Not from Perdure: a proxy, or another server on that port."""
    quoted = response.text[:MAX_QUOTED_CHARACTERS]
    return _by_status(response.status_code)(
        f"{response.request.url} answered {response.status_code}, and not as a Perdure server "
        f"does: {quoted!r}"
    )
