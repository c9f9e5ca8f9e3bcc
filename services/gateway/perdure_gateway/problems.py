"""Errors as problem details (RFC 9457, application/problem+json)."""

import json
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from perdure.errors import InputTooLarge, PerdureError, Unavailable

# Long enough that a client in a loop does no harm, short enough for a broker that restarts.
RETRY_AFTER_S: Final = 1
PROBLEM_MEDIA_TYPE = "application/problem+json"
_logger = logging.getLogger(__name__)


def problem(status: int, code: str, detail: str, **members: Any) -> Response:
    """A problem details response. `members` are further top-level members, such as `details`."""
    body = {
        "type": f"urn:perdure:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **members,
    }
    # What came in may hold NaN or half a surrogate pair; the answer is valid JSON all the same.
    text = json.dumps(json.loads(json.dumps(body, default=str), parse_constant=str))
    return Response(text, status_code=status, media_type=PROBLEM_MEDIA_TYPE)


def problem_from(error: PerdureError, **members: Any) -> Response:
    """The response for one of our own errors; with Retry-After when it may pass by itself."""
    response = problem(error.status, error.code, error.message, details=error.details, **members)
    if isinstance(error, Unavailable):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


async def _on_perdure_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, PerdureError)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _logger.error("%s %s: %s", request.method, request.url.path, error.message)
    return problem_from(error)


async def _on_invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = [
        {"where": ".".join(str(part) for part in fault["loc"]), "problem": fault["msg"]}
        for fault in error.errors()
    ]
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "request.invalid",
        _one_line(problems),
        details={"problems": problems},
    )


def _one_line(problems: Sequence[dict[str, str]]) -> str:
    return "the request is not valid: " + "; ".join(
        f"{fault['where']}: {fault['problem']}" for fault in problems
    )


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            response = problem(404, "route.not-found", f"there is nothing at {request.url.path}")
        case HTTPStatus.METHOD_NOT_ALLOWED:
            detail = f"{request.method} is not possible at {request.url.path}"
            response = problem(405, "route.method-not-allowed", detail)
        case InputTooLarge.status:
            response = problem(413, InputTooLarge.code, str(error.detail))
        case status:
            response = problem(status, "request.invalid", str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_fault(request: Request, _error: Exception) -> Response:
    # Starlette logs the traceback of what it hands to this handler; the client gets none of it.
    detail = f"{request.method} {request.url.path} failed inside the server; its log says why"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "perdure.error", detail)


def install(app: FastAPI) -> None:
    """Make `app` answer every error as problem details."""
    app.add_exception_handler(PerdureError, _on_perdure_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_fault)
