"""An https server on 127.0.0.1, with a certificate of its own, that answers as a test tells it."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOST = "data.example.org"
PUBLIC = "93.184.215.14"  # a public address; nothing is sent there


@dataclass
class HttpsServer:
    """`behave` answers each request; a stand-in resolver and connector lead to it."""

    port: int
    tls: ssl.SSLContext  # which trusts its certificate
    behave: Callable[[BaseHTTPRequestHandler], None] = lambda handler: handler.send_error(404)
    addresses: dict[str, list[str]] = field(default_factory=lambda: {HOST: [PUBLIC]})
    asked: list[str] = field(default_factory=list)  # of the resolver
    reached: list[tuple[str, int]] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.addresses[host]

    def connect(self, address: str, port: int, timeout_s: float) -> socket.socket:
        self.reached.append((address, port))
        return socket.create_connection(("127.0.0.1", self.port), timeout_s)


def give(
    body: bytes, *, status: int = 200, **headers: str
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer with these bytes; underscores in names of headers stand for hyphens."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def redirect(*locations: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Redirect one request after the other, and the last ever after."""
    left = list(locations)

    def behave(handler: BaseHTTPRequestHandler) -> None:
        location = left.pop(0) if len(left) > 1 else left[0]
        give(b"", status=302, Location=location)(handler)

    return behave


def certificate(folder: Path, host: str = HOST) -> tuple[Path, Path]:
    """A key and a certificate that it signed itself."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    how = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    whose = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    command = ["openssl", *how.split(), *whose, "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return key, cert


@contextmanager
def https_server(key: Path, cert: Path) -> Iterator[HttpsServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.requests.append((self.command, self.path, dict(self.headers)))
            server.behave(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def finish_request(self, request, client_address) -> None:
            """In the request's own thread: a handshake that stalls holds nobody up."""
            secure = accepting.wrap_socket(request, server_side=True)
            with secure:
                self.RequestHandlerClass(secure, client_address, self)

        def handle_error(self, *_: object) -> None:
            """Say nothing: clients hang up, as they should."""

    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    accepting.load_cert_chain(cert, key)
    listening = Server(("127.0.0.1", 0), Handler)
    server = HttpsServer(listening.server_address[1], ssl.create_default_context(cafile=str(cert)))
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
