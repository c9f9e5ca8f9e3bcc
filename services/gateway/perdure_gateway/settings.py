"""What the gateway can be told, and its limits."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from perdure.datasets.imaging import MAX_FILE_BYTES
from perdure.runtime.settings import (
    DEFAULT_HOST,
    Address,
    DataDir,
    LogUrl,
    Port,
    ServiceSettings,
    StoreUrl,
    variable_of,
)

DEFAULT_PORT: Final = 7412
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
    # The largest image that an import accepts.
    max_blob_bytes: int = MAX_FILE_BYTES
    # A submission is a few kilobytes, ten thousand digests are 700.
    max_body_bytes: int = MIB
    # How long a read waits until its projection contains all that is in the log, so that clients
    # read their own writes. A projector is some milliseconds behind; longer means that it is stuck.
    projection_wait_s: float = 2.0
    # Below the idle time-outs of common proxies (60 s).
    keep_alive_s: float = 15.0
    # Event streams look into the log at least this often, in case the bus lost the message that
    # would wake them.
    stream_poll_s: float = 5.0


_NAME: Final = re.compile(r"[a-z0-9._-]{1,253}")


def _host_names(text: str) -> tuple[str, ...]:
    """Names as a Host header has them: small letters, IPv6 addresses in brackets."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    return tuple(name if _NAME.fullmatch(name) else _bracketed(name) for name in names)


def _bracketed(name: str) -> str:
    return f"[{ipaddress.IPv6Address(name.removeprefix('[').removesuffix(']'))}]"


HostNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_host_names),
    Field(description="host names without ports, with commas between them"),
]


class GatewayServiceSettings(ServiceSettings):
    """Settings of the gateway as a process, from environment variables."""

    log_url: LogUrl
    store_url: StoreUrl
    http_host: Address = DEFAULT_HOST
    http_port: Port = DEFAULT_PORT
    allowed_hosts: HostNames = ()
    trusted_network: Annotated[bool, Field(description="yes or no")] = False
    data_dir: Annotated[
        DataDir | None, Field(description="a folder that this gateway has for itself")
    ] = None
    health_port: Port = 7420

    @model_validator(mode="after")
    def _is_guarded(self) -> Self:
        """Nobody but programs on this machine reaches the gateway, unless that is wanted."""
        if self.trusted_network or is_loopback(self.http_host):
            return self
        raise ValueError(
            f"{variable_of('http_host')} is {self.http_host!r}, where others can reach the "
            "gateway, and it has no user accounts yet: whoever can send it requests can read and "
            "change everything. If a firewall or a proxy with a login stands before it, say so "
            f"with {variable_of('trusted_network')}=yes; else listen on {DEFAULT_HOST}"
        )


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
