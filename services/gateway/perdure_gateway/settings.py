"""What the gateway can be told, and its limits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class GatewaySettings:
    """Settings of one gateway.

    `allowed_hosts` are the names (without port) that a request's Host and Origin headers may carry.
    Without this check a web page could reach a server on loopback through a DNS name that it points
    there (DNS rebinding).
    """

    allowed_hosts: tuple[str, ...] = LOOPBACK_HOSTS
    # Where uploads are gathered before they go to the store; the system's temporary folder when
    # None.
    spool_dir: Path | None = None
    # A few hundred thousand images; a bound so that a wrong client cannot fill the disk.
    max_upload_bytes: int = 64 * 1024 * MIB
    # A submission is a few kilobytes.
    max_body_bytes: int = MIB
    # How long a read waits until its projection contains all that is in the log, so that clients
    # read their own writes. A projector is some milliseconds behind; longer means that it is stuck.
    projection_wait_s: float = 2.0
    # Below the idle time-outs of common proxies (60 s).
    keep_alive_s: float = 15.0
    # Event streams look into the log at least this often, in case the bus lost the message that
    # would wake them.
    stream_poll_s: float = 5.0
