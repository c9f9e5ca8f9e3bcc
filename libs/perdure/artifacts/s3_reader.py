"""The bytes of one S3 object, as they come in."""

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.response import BaseHTTPResponse

from perdure.artifacts.hashing import CHUNK_BYTES
from perdure.artifacts.s3_address import S3Address
from perdure.artifacts.s3_errors import asking
from perdure.artifacts.s3_metadata import recorded_digest
from perdure.artifacts.s3_transport import Patience, may_pass

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PARTIAL_CONTENT: Final = 206

# Asks for an object from an offset on, if it still has that ETag (any, when it is empty); raises
# errors of Perdure.
Fetch = Callable[[int, str], BaseHTTPResponse]


class ObjectReader(io.RawIOBase):
    """An object, opened for reading. A connection that breaks is taken up again where it broke.

    All bytes are of one version of the object: reading raises Replaced when there is another now
    and the connection broke. Raises NotFound, StoreUnavailable, and DamagedObject when the
    object has not its size.
    """

    def __init__(self, address: S3Address, key: str, fetch: Fetch) -> None:
        self._response: BaseHTTPResponse | None = None
        self._address = address
        self._key = key
        self._fetch = fetch
        self._response = fetch(0, "")
        headers = self._response.headers
        with asking(address, f"reading {key}"):
            self.size_bytes = int(headers.get("content-length", ""))
        self.digest = recorded_digest(key, headers, self.size_bytes)
        self.etag = headers.get("etag", "")
        self._position = 0

    def chunks(self) -> Iterator[bytes]:
        """What is left, in pieces."""
        while chunk := self._next(CHUNK_BYTES):
            yield chunk

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """See io.RawIOBase."""
        view = memoryview(buffer).cast("B")
        data = self._next(len(view))
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io.IOBase. It costs a request at the next read."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size_bytes}[whence]
        position = max(0, start + offset)
        if position != self._position:
            self._drop()
        self._position = position
        return position

    def tell(self) -> int:
        """See io.IOBase."""
        return self._position

    def readable(self) -> bool:
        """See io.IOBase."""
        return True

    def seekable(self) -> bool:
        """See io.IOBase."""
        return True

    def close(self) -> None:
        """See io.IOBase."""
        self._drop()
        super().close()

    def _next(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        if self._position >= self.size_bytes or size == 0:
            return b""
        patience = Patience()
        with asking(self._address, f"reading {self._key}", self._key):
            while True:
                try:
                    data = self._opened().read(size, decode_content=False)
                    if not data:
                        raise ProtocolError("the object ended too soon")
                except HTTPError as error:
                    self._drop()
                    if not (may_pass(error) and patience.pause()):
                        raise
                else:
                    self._position += len(data)
                    return data

    def _opened(self) -> BaseHTTPResponse:
        if self._response is None:
            response = self._fetch(self._position, self.etag)
            if self._position and response.status != _PARTIAL_CONTENT:
                response.close()
                raise ProtocolError("the server gives the whole object in place of a part")
            self._response = response
        return self._response

    def _drop(self) -> None:
        """Give the connection back, or close it when there is more to come through it."""
        if self._response is not None:
            self._response.close()
            self._response.release_conn()
            self._response = None
