"""The engine's own connection to a cluster's PostgreSQL: simple queries one after the other, and notifications."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias, final

from pytest_dsql.local.cluster import DATABASE
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import HEADER, HEADER_SIZE
from pytest_dsql.local.gateway.opening import open_backend
from pytest_dsql.local.gateway.startup import Startup
from pytest_dsql.local.postgres import SUPERUSER

_NOTIFICATION: Final = ord("A")
_NULL: Final = 0xFFFFFFFF

#: The texts of a row's values; a null is the empty text.
Row: TypeAlias = tuple[str, ...]


class QueryFailed(Exception):
    """PostgreSQL answered an error."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate
        self.message = message


@final
class SuperuserConnection(asyncio.Protocol):
    """One connection, for one task: a second query is sent when the first was answered.

    Once it is lost, everything that is asked of it raises ConnectionResetError.
    """

    def __init__(self) -> None:
        #: Set when a notification came, for a channel that was listened to; whoever waits for it clears it.
        self.notified = asyncio.Event()
        self._transport: asyncio.Transport
        self._buffer = b""
        self._rows: list[Row] = []
        self._failure: QueryFailed | None = None
        self._answer: asyncio.Future[list[Row]] | None = None

    @classmethod
    async def open(cls, socket_path: str, **settings: str) -> SuperuserConnection:
        """Log in. Raises OSError or BackendRefused when that can't be."""
        connection = cls()
        opened = await open_backend(socket_path, Startup(SUPERUSER, DATABASE, tuple(settings.items()), b""))
        connection._transport = opened.transport
        opened.transport.set_protocol(connection)
        return connection

    @property
    def lost(self) -> bool:
        """Whether it is, for good. Asked of the transport: a loop that has ended tells nobody of a connection's end."""
        return self._transport.is_closing()

    async def query(self, sql: str) -> list[Row]:
        """Run statements and give the rows that they answered. Raises QueryFailed, ConnectionResetError."""
        assert self._answer is None, "one query at a time"
        if self.lost:
            raise ConnectionResetError("the connection to PostgreSQL is lost")
        self._rows, self._failure = [], None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frames.message(frames.QUERY, sql.encode() + b"\0"))
        try:
            return await self._answer
        except asyncio.CancelledError:
            # Its answer is still to come, and would be taken for that of the next one.
            self.close()
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        """Close it, whatever it is doing."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect the rows up to ReadyForQuery."""
        self._buffer += data
        while len(self._buffer) >= HEADER_SIZE:
            kind, length = HEADER.unpack_from(self._buffer)
            if len(self._buffer) < 1 + length:
                return
            payload = self._buffer[HEADER_SIZE : 1 + length]
            self._buffer = self._buffer[1 + length :]
            self._take(kind, payload)

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == frames.DATA_ROW:
            self._rows.append(_row(payload))
        elif kind == frames.ERROR_RESPONSE:
            found = {name: value.decode("utf-8", "replace") for name, value in frames.fields(payload).items()}
            self._failure = QueryFailed(found.get("C", ""), found.get("M", ""))
        elif kind == _NOTIFICATION:
            self.notified.set()
        elif kind == frames.READY_FOR_QUERY and self._answer is not None and not self._answer.done():
            if self._failure is not None:
                self._answer.set_exception(self._failure)
            else:
                self._answer.set_result(self._rows)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """PostgreSQL is gone, or was told goodbye."""
        self.notified.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("PostgreSQL closed the engine's connection"))


def _row(payload: bytes) -> Row:
    count = int.from_bytes(payload[:2], "big")
    place = 2
    values: list[str] = []
    for _ in range(count):
        length = int.from_bytes(payload[place : place + 4], "big")
        place += 4
        if length == _NULL:
            values.append("")
            continue
        values.append(payload[place : place + length].decode("utf-8", "replace"))
        place += length
    return tuple(values)
