"""A client without sockets and TLS: what it sends goes straight to the gateway's protocol classes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.login import Login
from tests.local.gateway.harness import RunningGateway

#: What is sent while the gateway doesn't read; more than this would be backpressure that doesn't work.
_PATIENCE_S = 10.0


class MemoryTransport(asyncio.Transport):
    """The gateway's end of a connection whose other end is a variable."""

    def __init__(self, host: str, served: RunningGateway) -> None:
        super().__init__()
        self.received = bytearray()  #: by the client
        self.protocol: asyncio.Protocol
        self.changed: Callable[[], None] = lambda: None
        self.closing = False
        self._reading = asyncio.Event()
        self._reading.set()
        names = served.gateway._reception.names
        tls = SimpleNamespace(context=names.context, selected_alpn_protocol=lambda: "postgresql")
        select = cast(Callable[[Any, str, ssl.SSLContext], None], names.context.sni_callback)
        select(tls, host, names.context)
        self._extra = {"ssl_object": tls, "peername": ("127.0.0.1", 1)}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.closing:
            self.received += data
            self.changed()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    async def readable(self) -> None:
        """Return when the gateway reads."""
        await asyncio.wait_for(self._reading.wait(), _PATIENCE_S)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._reading.set()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)
            self.changed()

    def abort(self) -> None:
        self.close()


def _receive(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give a protocol what was received, as its transport would."""
    if not isinstance(protocol, asyncio.BufferedProtocol):
        cast(asyncio.Protocol, protocol).data_received(data)
        return
    while data:
        buffer = cast(memoryview, protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]


class MemoryClient:
    """A client in the gateway's event loop."""

    def __init__(self, served: RunningGateway, host: str | None = None, *, timeout_s: float = 30.0) -> None:
        self.transport = MemoryTransport(host or served.cluster.host, served)
        login = Login(served.gateway._reception, timeout_s, direct=False)
        self.transport.set_protocol(login)
        login.connection_made(self.transport)
        self._wakened = asyncio.Event()
        self.transport.changed = self._wakened.set

    @property
    def closed(self) -> bool:
        """Whether the gateway has ended the connection."""
        return self.transport.closing

    async def send(self, data: bytes) -> None:
        """Have the gateway receive this, as soon as it reads."""
        if not self.transport.is_reading():
            await self.transport.readable()
        if not self.closed:
            _receive(self.transport.protocol, data)

    async def until(self, condition: Callable[[bytes], bool], timeout_s: float = _PATIENCE_S) -> bytes:
        """Give what has been received when the condition holds for it, or when the connection ends."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self.closed and not condition(bytes(self.transport.received)):
            self._wakened.clear()
            left_s = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._wakened.wait(), max(left_s, 0))
            except TimeoutError:
                raise AssertionError(f"no answer in time; so far {bytes(self.transport.received[-300:])!r}") from None
        return bytes(self.transport.received)

    def take(self) -> bytes:
        """Give what was received, and forget it."""
        received = bytes(self.transport.received)
        self.transport.received.clear()
        return received

    async def logged_in(self, token: str) -> MemoryClient:
        """Go through the whole login."""
        await self.send(startup_packet(("user", "admin"), ("database", "postgres")))
        await self.send(frames.message(frames.PASSWORD, token.encode() + b"\0"))
        received = await self.until(ends_ready)
        assert ends_ready(received), received
        self.take()
        return self

    def leave(self) -> None:
        """Be gone."""
        self.transport.close()


def startup_packet(*pairs: tuple[str, str], version: int = 3 << 16) -> bytes:
    """A startup packet with these settings."""
    payload = b"".join(f"{name}\0{value}\0".encode() for name, value in pairs)
    return frames.packet(version.to_bytes(4, "big") + payload + b"\0")


def messages(received: bytes) -> list[tuple[str, bytes]]:
    """The messages in what a client received. Raises AssertionError when it isn't made of whole messages."""
    found = []
    place = 0
    while place < len(received):
        assert place + 5 <= len(received), f"an unfinished header: {received[place:]!r}"
        kind, length = frames.HEADER.unpack_from(received, place)
        assert length >= 4, f"a length of {length}"
        after = place + 1 + length
        assert after <= len(received), f"an unfinished message: {received[place : place + 80]!r}"
        found.append((chr(kind), received[place + 5 : after]))
        place = after
    return found


def ends_ready(received: bytes) -> bool:
    """Whether a ReadyForQuery is the last that was received."""
    return received[-6:-1] == b"Z\0\0\0\5"
