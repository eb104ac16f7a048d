"""The control socket: one JSON object a line, from and to the processes that hold the engine.

A request is `{"command": NAME, ...}`, its answer `{"ok": true, ...}` or `{"ok": false, "error": TEXT}`, in order.
Lines with `event` come unasked: `released` when the engine lets a holder go and lives on, `ended` with the reason when
it ends although it is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, final

from pytest_dsql.errors import DsqlError

Message: TypeAlias = Mapping[str, Any]


def encode(message: Message) -> bytes:
    """A message as it is sent."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


@final
class Connection:
    """The engine's side of one process's connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.holds = False  #: the engine lives as long as one connection holds it
        self.clusters: set[str] = set()  #: the clusters made for it; they go with it

    def send(self, message: Message) -> None:
        """Send a line; nobody minds when the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def close(self) -> None:
        """Send what is left and close."""
        with contextlib.suppress(OSError):
            await self._writer.drain()
        self._writer.close()


Command: TypeAlias = Callable[[Connection, Message], Awaitable[Message]]


@final
class ControlServer:
    """Answers requests by a table of commands, and tells when a connection is done.

    `done` is awaited after a connection's last request; the connection is closed when it returns true, otherwise with
    the server: whoever waits for its end learns that the engine has ended too.
    """

    def __init__(self, commands: Mapping[str, Command], done: Callable[[Connection], Awaitable[bool]]) -> None:
        self._commands = commands
        self._done = done
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()

    async def listen(self, path: Path) -> None:
        """Accept connections on a unix socket that only this user can reach."""
        self._server = await asyncio.start_unix_server(self._accepted, sock=_private_socket(path))

    async def adopt(self, connection: socket.socket) -> Connection:
        """Serve a connection that came about otherwise: the starter's."""
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        adopted = Connection(writer)
        task = asyncio.create_task(self._serve(adopted, reader))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return adopted

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(Connection(writer), reader)

    async def _serve(self, connection: Connection, reader: asyncio.StreamReader) -> None:
        self.connections.add(connection)
        # A line that is longer than the reader's limit is a ValueError: whoever sends it is let go.
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                connection.send(await self._answer(connection, line))
        if await self._done(connection):
            self.connections.discard(connection)
            await connection.close()

    async def _answer(self, connection: Connection, line: bytes) -> Message:
        try:
            request = json.loads(line)
            command = self._commands[request["command"]]
        except (ValueError, KeyError, TypeError):
            return {"ok": False, "error": f"not a command; known: {', '.join(self._commands)}"}
        try:
            return {"ok": True, **await command(connection, request)}
        except DsqlError as error:
            return {"ok": False, "error": str(error)}

    async def stop_listening(self) -> None:
        """Accept no further connections."""
        if self._server is not None:
            self._server.close()

    async def tell(self, message: Message) -> None:
        """Send an event to everybody connected, and see that it leaves."""
        for connection in self.connections:
            connection.send(message)
        for connection in list(self.connections):
            await connection.close()


def _private_socket(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener
