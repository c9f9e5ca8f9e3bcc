"""A server that answers S3 requests as a test tells it to, badly for the most part."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from blake3 import blake3

BUCKET = "bucket"


@dataclass
class Request:
    """A request, and the means to answer it."""

    method: str
    path: str  # with its query
    headers: dict[str, str]  # names in lower case
    body: bytes
    handler: BaseHTTPRequestHandler

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer whole; underscores in names of headers stand for hyphens."""
        self.begin(status, len(body), **headers)
        if self.method != "HEAD":
            self.handler.wfile.write(body)

    def refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.answer(status, body, content_type="application/xml")

    def begin(self, status: int, length: int, **headers: str) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.send_header("Content-Length", str(length))
        self.handler.end_headers()

    def give(self, data: bytes, *, cut_after: int | None = None, etag: str = "one") -> None:
        """Give an object, or the part of it that was asked for; break off after some bytes."""
        start = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.begin(
            206 if start else 200,
            len(data) - start,
            etag=f'"{etag}"',
            x_amz_meta_perdure_blake3=blake3(data).hexdigest(),
            x_amz_meta_perdure_size=str(len(data)),
        )
        if self.method == "HEAD":
            return
        stop = None if cut_after is None else start + cut_after
        self.handler.wfile.write(data[start:stop])
        if stop is not None:
            self.handler.close_connection = True


@dataclass
class FakeS3:
    """Requests for the bucket succeed; the others go to `behave`, one after the other."""

    port: int
    behave: Callable[[Request], None] = lambda request: request.refuse(404, "NoSuchKey")
    seen: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"s3+http://127.0.0.1:{self.port}/{BUCKET}?region=us-east-1"

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.seen)

    def take(self, request: Request) -> None:
        if request.method == "HEAD" and request.path.partition("?")[0] == f"/{BUCKET}":
            request.answer(200)
            return
        self.seen.append(request)
        self.behave(request)


@contextmanager
def fake_s3() -> Iterator[FakeS3]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def take(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            fake.take(Request(self.command, self.path, headers, body, self))

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = take  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing: clients hang up, as they should."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    fake = FakeS3(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def in_turn(*answers: Callable[[Request], None]) -> Callable[[Request], None]:
    """Behave as told for one request after the other, and by the last ever after."""
    left = list(answers)
    lock = threading.Lock()

    def behave(request: Request) -> None:
        with lock:
            answer = left.pop(0) if len(left) > 1 else left[0]
        answer(request)

    return behave
