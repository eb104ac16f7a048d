"""The first bytes of a connection, read from the socket before a transport exists.

A TLS ClientHello must still be unread when the transport takes over (reading it first and upgrading later loses it),
so the first byte is only looked at.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from pytest_dsql.local.gateway import frames, startup

_TLS_HANDSHAKE: Final = 0x16
#: Where the client's random ends: behind the headers of record (5) and handshake (4), version (2) and random (32).
_RANDOM_END: Final = 43
_LONGEST_HELLO: Final = 16_384

#: DSQL serves TLS only; its text for a client that doesn't ask for it is not on record.
_CLEAR_TEXT: Final = frames.error("FATAL", "08006", "unable to accept connection, tls is required")


@final
class Greeting(Enum):
    """What a client began with."""

    NEGOTIATED_TLS = "an SSLRequest, answered"
    DIRECT_TLS = "a ClientHello"
    DONE = "nothing that leads to a session"


@final
@dataclass(slots=True)
class _Socket:
    """A non-blocking socket with what is needed to wait for it."""

    raw: socket.socket
    loop: asyncio.AbstractEventLoop

    async def peek(self) -> int | None:
        """The next byte, left unread; None at the end."""
        while True:
            try:
                first = self.raw.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                readable: asyncio.Future[None] = self.loop.create_future()
                self.loop.add_reader(self.raw, _wake, readable)
                try:
                    await readable
                finally:
                    self.loop.remove_reader(self.raw)
            else:
                return first[0] if first else None

    async def read(self, size: int) -> bytes | None:
        """Exactly `size` bytes; None when the stream ends before."""
        read = b""
        while len(read) < size:
            part = await self.loop.sock_recv(self.raw, size - len(read))
            if not part:
                return None
            read += part
        return read


async def server_name(raw: socket.socket) -> str | None:
    """The server name in a client's ClientHello, which stays unread; None when it gives none, or can't be read yet.

    Raises OSError when the connection breaks.
    """
    client = _Socket(raw, asyncio.get_running_loop())
    if await client.peek() is None:
        return None
    return _sni(raw.recv(_LONGEST_HELLO, socket.MSG_PEEK))


def _sni(hello: bytes) -> str | None:
    """Read the server name from a ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3)."""
    place = _RANDOM_END
    try:
        place += 1 + hello[place]  # session id
        place += 2 + int.from_bytes(hello[place : place + 2], "big")  # cipher suites
        place += 1 + hello[place]  # compression methods
        end = place + 2 + int.from_bytes(hello[place : place + 2], "big")
        place += 2
        while place + 4 <= min(end, len(hello)):
            kind, length = (int.from_bytes(hello[at : at + 2], "big") for at in (place, place + 2))
            if kind == 0:
                # The list's length, the type of its only entry, the name's length.
                size = int.from_bytes(hello[place + 7 : place + 9], "big")
                return hello[place + 9 : place + 9 + size].decode("ascii").lower()
            place += 4 + length
    except (IndexError, UnicodeDecodeError):
        pass  # the handshake will say what is wrong with it
    return None


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def greet(raw: socket.socket) -> Greeting:
    """Answer what comes before TLS, and tell how the client goes on.

    Never reads a byte of TLS. Each negotiation is answered once: a client that asks again has nothing to say.
    Raises OSError when the connection breaks.
    """
    client = _Socket(raw, asyncio.get_running_loop())
    asked: set[int] = set()
    while True:
        first = await client.peek()
        if first is None:
            return Greeting.DONE
        if first == _TLS_HANDSHAKE:
            return Greeting.DIRECT_TLS if not asked else Greeting.DONE
        prefix = await client.read(startup.PREFIX.size)
        if prefix is None:
            return Greeting.DONE
        length, code = startup.PREFIX.unpack(prefix)
        if code in asked or not startup.PREFIX.size <= length <= startup.MAX_PACKET:
            return Greeting.DONE
        if code in (startup.SSL_REQUEST, startup.GSSENC_REQUEST) and length != startup.PREFIX.size:
            return Greeting.DONE
        asked.add(code)
        if code == startup.SSL_REQUEST:
            await client.loop.sock_sendall(raw, b"S")
            return Greeting.NEGOTIATED_TLS
        if code == startup.GSSENC_REQUEST:
            await client.loop.sock_sendall(raw, b"N")
            continue
        # A CancelRequest has no effect on DSQL, and gets no answer from any PostgreSQL.
        if code != startup.CANCEL_REQUEST and await client.read(length - len(prefix)) is not None:
            await client.loop.sock_sendall(raw, _CLEAR_TEXT)
        return Greeting.DONE
