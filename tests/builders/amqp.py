"""A publisher that writes its own AMQP frames: it can send what no library lets through."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pamqp import frame as frames
from pamqp.commands import Basic, Channel, Confirm, Connection
from pamqp.constants import FRAME_END
from pamqp.header import ProtocolHeader

DEADLINE_S: Final = 10.0
FRAME_HEADER: Final = struct.Struct(">BHI")  # type, channel, bytes of the payload
METHOD, HEADER, BODY = 1, 2, 3
CHANNEL: Final = 1
BASIC: Final = 60
PUBLISH: Final = 40
NO_BITS: Final = b"\0"  # neither mandatory nor immediate


def short(text: bytes) -> bytes:
    """A short string of these very bytes."""
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    """A long string, as the value of a header."""
    return b"S" + struct.pack(">I", len(text)) + text


def table(*entries: tuple[bytes, bytes]) -> bytes:
    """A table of (name, value with the letter of its type in front)."""
    inside = b"".join(short(name) + value for name, value in entries)
    return struct.pack(">I", len(inside)) + inside


class RawPublisher:
    """Publishes bytes, and waits for the broker's confirm."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def publish(self, exchange: str, key: bytes, body: bytes, **properties: bytes) -> None:
        """Publish a message with these encoded properties."""
        method = (
            struct.pack(">HHH", BASIC, PUBLISH, 0) + short(exchange.encode()) + short(key) + NO_BITS
        )
        flags = sum(Basic.Properties.flags[name] for name in properties)
        values = b"".join(properties.get(name, b"") for name in Basic.Properties.__slots__)
        header = struct.pack(">HHQH", BASIC, 0, len(body), flags) + values
        for kind, payload in ((METHOD, method), (HEADER, header), (BODY, body)):
            self._writer.write(FRAME_HEADER.pack(kind, CHANNEL, len(payload)) + payload)
            self._writer.write(bytes([FRAME_END]))
        answer = await self._answer()
        assert isinstance(answer, Basic.Ack), answer

    async def say(self, command: Any, channel: int = 0) -> Any:
        """Send a command, and give the broker's answer."""
        self._writer.write(frames.marshal(command, channel))
        return await self._answer()

    def say_only(self, command: Any) -> None:
        """Send a command that has no answer."""
        self._writer.write(frames.marshal(command, 0))

    async def greet(self) -> None:
        """Begin to talk."""
        self._writer.write(ProtocolHeader().marshal())
        await self._answer()

    async def _answer(self) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            head = await self._reader.readexactly(FRAME_HEADER.size)
            length = FRAME_HEADER.unpack(head)[2]
            rest = await self._reader.readexactly(length + 1)
        return frames.unmarshal(head + rest)[2]


@asynccontextmanager
async def raw_publisher(url: str) -> AsyncIterator[RawPublisher]:
    """A publisher at the broker's address."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    publisher = RawPublisher(reader, writer)
    await publisher.greet()
    account = f"\0{unquote(parts.username or '')}\0{unquote(parts.password or '')}"
    tune = await publisher.say(Connection.StartOk(mechanism="PLAIN", response=account))
    publisher.say_only(Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
    await publisher.say(Connection.Open(virtual_host=unquote(parts.path[1:]) or "/"))
    await publisher.say(Channel.Open(), CHANNEL)
    await publisher.say(Confirm.Select(), CHANNEL)
    try:
        yield publisher
    finally:
        writer.close()
        await writer.wait_closed()
