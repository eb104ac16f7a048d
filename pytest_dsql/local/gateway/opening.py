"""Opens a connection to a cluster's PostgreSQL for a client whose token was verified."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import HEADER, HEADER_SIZE
from pytest_dsql.local.gateway.startup import Startup

#: What DSQL calls its version (`SHOW server_version` on clusters in September and October 2026).
SERVER_VERSION: Final = b"16.15"


class BackendRefused(Exception):
    """PostgreSQL refused the connection; `fields` are those of its ErrorResponse, by their one-letter names."""

    def __init__(self, fields: dict[str, bytes]) -> None:
        super().__init__(fields.get("M", b"").decode("utf-8", "replace"))
        self.fields = fields


@final
@dataclass(slots=True)
class Opened:
    """A connection to PostgreSQL that is ready for queries."""

    transport: asyncio.Transport
    key: bytes = b""  #: PostgreSQL's cancellation key, which clients never see
    greeting: list[bytes] = field(default_factory=list)  #: the messages for the client, between authentication and key
    ready: bytes = b""


async def open_backend(socket_path: str, startup: Startup, own: Sequence[tuple[str, str]] = ()) -> Opened:
    """Connect and log in as the startup packet says, with settings of the engine's own.

    Raises BackendRefused with PostgreSQL's answer, OSError when it doesn't answer.
    """
    loop = asyncio.get_running_loop()
    transport, opening = await loop.create_unix_connection(_Opening, socket_path)
    transport.write(startup.packet(own))
    try:
        await opening.done
    except BaseException:
        transport.abort()
        raise
    return opening.opened


@final
class _Opening(asyncio.Protocol):
    """Reads PostgreSQL's answers up to the first ReadyForQuery."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened: Opened
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but the class.
        self.opened = Opened(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEADER_SIZE and not self.done.done():
            kind, length = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < 1 + length:
                return
            whole = self._buffer[: 1 + length]
            self._buffer = self._buffer[1 + length :]
            self._take(kind, whole)

    def _take(self, kind: int, whole: bytes) -> None:
        payload = whole[HEADER_SIZE:]
        opened = self.opened
        if kind == frames.READY_FOR_QUERY:
            opened.ready = whole
            self.done.set_result(None)
        elif kind == frames.ERROR_RESPONSE:
            self.done.set_exception(BackendRefused(frames.fields(payload)))
        elif kind == frames.BACKEND_KEY_DATA:
            opened.key = payload
        elif kind == frames.AUTHENTICATION:
            # The socket's directory is the engine's own, so PostgreSQL trusts who can reach it.
            if payload != frames.AUTHENTICATION_OK.to_bytes(4, "big"):
                self.done.set_exception(ConnectionRefusedError("PostgreSQL asked for a password on its own socket"))
        elif payload.startswith(b"server_version\0"):
            opened.greeting.append(frames.message(kind, b"server_version\0" + SERVER_VERSION + b"\0"))
        else:
            opened.greeting.append(whole)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("PostgreSQL closed the connection while it was being opened"))
