"""Each request as a span, within its caller's trace if it has one: here a task's trace begins."""

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.telemetry import tracing

# Asked for every few seconds by whoever watches the process: no part of any task.
UNTRACED_PATHS = ("/healthz", "/readyz")


class Traced:
    """ASGI middleware that runs each request in a span."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        if scope["type"] != "http" or scope["path"] in UNTRACED_PATHS:
            await self._app(scope, receive, send)
            return
        parent = Headers(scope=scope).get(tracing.HEADER, "")
        # Ids stay out of the name: one name for all requests of a kind.
        kind_of_thing = "/".join(scope["path"].split("/")[:3])
        name = f"{scope['method']} {kind_of_thing}"
        with tracing.span(name, parent=parent, kind=SpanKind.SERVER, path=scope["path"]):
            await self._app(scope, receive, send)
