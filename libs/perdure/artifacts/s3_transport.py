"""HTTP to an S3 server: a request that fails is sent again, for a bounded time."""

import io
import logging
import os
import random
import ssl
import time
from typing import Any, Final

import certifi
import urllib3
from urllib3.exceptions import (
    HTTPError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as TimedOut
from urllib3.response import BaseHTTPResponse

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 5.0
# From one byte to the next. The longest honest silence is a server that copies COPY_PART_BYTES.
READ_TIMEOUT_S: Final = 10.0
# No request is sent again after this. With one more READ_TIMEOUT_S for the last, a caller learns
# after 30 s that the store is away.
RETRY_FOR_S: Final = 20.0
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 2.0  # a server that is back is noticed soon

# A body goes out in pieces of this size, each with its own time limit: a slow line is no fault.
SEND_BYTES: Final = 64 << 10
# More threads than these open connections of their own, and close them again.
KEPT_CONNECTIONS: Final = 32

TOO_MANY_REQUESTS: Final = 429
_PASSING: Final = frozenset({TOO_MANY_REQUESTS, 500, 502, 503, 504})


class ServerFailed(HTTPError):
    """The server answered, again and again, that it cannot answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answers with HTTP status {status}")


_BROKEN: Final = (ServerFailed, NewConnectionError, ProtocolError, TimedOut, SSLError)


def may_pass(error: HTTPError) -> bool:
    """Whether the same request may succeed a little later."""
    untrusted = bool(error.args) and isinstance(error.args[0], ssl.SSLCertVerificationError)
    return isinstance(error, _BROKEN) and not untrusted


class Patience:
    """When to give up: pauses that grow, until RETRY_FOR_S are over."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + RETRY_FOR_S
        self._pause_s = FIRST_PAUSE_S

    def pause(self) -> bool:
        """Wait before the next try; False, at once, when there is no time for one."""
        # Clients that a restart has thrown out together do not come back together.
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        if time.monotonic() + pause_s >= self._deadline:
            return False
        time.sleep(pause_s)
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s)
        return True


class PatientPool(urllib3.PoolManager):
    """Connections that send a request again when the server is away or overloaded.

    Every request of an S3 store may be repeated: it puts the same bytes in the same place. Thread-
    safe.
    """

    def __init__(self) -> None:
        super().__init__(
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            maxsize=KEPT_CONNECTIONS,
            blocksize=SEND_BYTES,
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
        )

    def urlopen(self, method: str, url: str, redirect: bool = True, **kw: Any) -> BaseHTTPResponse:  # type: ignore[override]
        """Send a request. Raises urllib3's HTTPError when it fails to the end."""
        body = kw.pop("body", None)
        # Taking back parts that were sent is only tidying up: nobody waits for that.
        tidying = method == "DELETE" and "uploadId=" in url
        patience = Patience()
        while True:
            try:
                # Redirects are for the caller: a signature is valid for one host only.
                answer = super().urlopen(
                    method,
                    url,
                    redirect=False,
                    retries=False,
                    body=io.BytesIO(body) if body else body,
                    **kw,
                )
                if answer.status not in _PASSING:
                    return answer
                answer.close()
                raise ServerFailed(answer.status)
            except HTTPError as error:
                log.info("%s to the object store failed: %s", method, error)
                if tidying or not (may_pass(error) and patience.pause()):
                    raise
