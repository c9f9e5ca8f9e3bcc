"""Problem details from the server, as the errors they were there."""

from collections.abc import Iterator
from typing import Any, Final

import httpx

from perdure.client.address import Address
from perdure.errors import (
    Conflict,
    ForeignServer,
    InvalidInput,
    NotFound,
    PerdureError,
    Unavailable,
)

VERSION_HEADER: Final = "Perdure-Version"  # of every answer of a Perdure server but its problems
PROBLEM_TYPES: Final = "urn:perdure:problem:"
# A server that asks for a longer pause is asked again all the same, or not at all.
MAX_RETRY_AFTER_S: Final = 10.0
# What a proxy says of a server behind it that is away.
_AWAY: Final = (502, 503, 504)


def _classes(root: type[PerdureError]) -> Iterator[type[PerdureError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


def is_from_perdure(response: httpx.Response) -> bool:
    """Whether a Perdure server gave this answer, which is no problem."""
    return VERSION_HEADER in response.headers


def error_from(response: httpx.Response, address: Address) -> PerdureError:
    """The error that a response tells of. Its body has been read."""
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    if not (isinstance(body, dict) and str(body.get("type")).startswith(PROBLEM_TYPES)):
        return foreign(response, address)
    message = str(body.get("detail", ""))
    given = body.get("details")
    details: dict[str, Any] = given if isinstance(given, dict) else {}
    if (seconds := response.headers.get("Retry-After", "")).isdecimal():
        details = {**details, "retry_after_s": min(float(seconds), MAX_RETRY_AFTER_S)}
    for cls in _classes(PerdureError):
        # Found by code alone, so that an error keeps its place in the tree (and its exit code) over
        # the wire.
        if cls.code == body.get("code"):
            return _make(cls, message, details)
    return _make(_by_status(response.status_code), message, details)


def foreign(response: httpx.Response, address: Address) -> Unavailable:
    """Not from Perdure: from a proxy, or another server on that port."""
    status = response.status_code
    if status in _AWAY:
        return Unavailable(
            f"{address.shown} answered {status}, as a proxy does whose server is away: try again"
        )
    told = f"it answered {status}"
    if response.has_redirect_location:
        told += f" and leads to {response.headers['Location']}"
    elif kind := response.headers.get("Content-Type"):
        told += f" with {kind}"
    return ForeignServer(
        f"what answers at {address.shown} is no Perdure server ({told}): {address.advice}"
    )


def form_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer. Raises ForeignServer when it is something else."""
    try:
        form: Any = response.json()
    except ValueError:
        form = None
    if not isinstance(form, dict):
        raise ForeignServer(f"{response.request.url.path} answered with no JSON object")
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
        case _ if status in _AWAY:
            return Unavailable
        case _ if status < 500:
            return InvalidInput
        case _:
            return PerdureError
