"""Free TCP ports for servers that are stopped and started again at the same address."""

import random
import socket
from typing import Final

# Below the range from which the system takes the ports of outgoing connections: while a server is
# down, a client that dials its port in vain must not be given that very port, and so meet itself.
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 29_999
ATTEMPTS: Final = 200

_given: set[int] = set()


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on, and that this process was not given before."""
    for _ in range(ATTEMPTS):
        port = random.randint(FIRST_PORT, LAST_PORT)  # noqa: S311 - no secret
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port on 127.0.0.1 between {FIRST_PORT} and {LAST_PORT}")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
