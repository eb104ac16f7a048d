"""A server that speaks just enough PostgreSQL, in a process of its own, and does what a statement's comment says.

`delay=MS` answers later; `fail=SQLSTATE` fails the first time an operation (`$1`) sends it, `fail_always=SQLSTATE` each
time; `die` closes the connection; `lose_commit=landed|vanished` closes it when the COMMIT of that transaction arrives,
the first time, with or without a receipt for `$1`; `receipt` answers a row when `$1` has one. As the database's name,
`refuseSQLSTATE` refuses every second connection, `hangup` closes each at its first query, `mute` answers none.
"""

from __future__ import annotations

import asyncio
import re
import struct
import sys
from typing import ClassVar

_DIRECTIVE = re.compile(r"/\*(\w+)(?:=(\w+))?\*/")


def frame(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def error(sqlstate: str, severity: str = "ERROR") -> bytes:
    fields = f"S{severity}\0V{severity}\0C{sqlstate}\0Mas told: {sqlstate}\0".encode()
    return frame(b"E", fields + b"\0")


class Session:
    seen: ClassVar[set[tuple[str, str]]] = set()
    receipts: ClassVar[set[str]] = set()
    refusals: ClassVar[int] = 0

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.statements: dict[bytes, str] = {}
        self.bound: tuple[str, str | None] = ("", None)
        self.state = b"I"
        self.at_commit: tuple[str, str] | None = None
        self.skipping = False
        self.database = ""

    async def startup(self) -> bool:
        while True:
            (length,) = struct.unpack("!I", await self.reader.readexactly(4))
            body = await self.reader.readexactly(length - 4)
            (code,) = struct.unpack_from("!I", body)
            if code in (80877103, 80877104):  # SSLRequest, GSSENCRequest
                self.writer.write(b"N")
                continue
            break
        parameters = body[4:].split(b"\0")
        database = parameters[parameters.index(b"database") + 1].decode()
        self.database = database
        if database.startswith("refuse"):
            Session.refusals += 1
            if Session.refusals % 2:
                self.writer.write(error(database.removeprefix("refuse"), "FATAL"))
                return False
        self.writer.write(frame(b"R", struct.pack("!I", 0)))
        for name, value in (("server_version", "16.0"), ("client_encoding", "UTF8"), ("DateStyle", "ISO")):
            self.writer.write(frame(b"S", f"{name}\0{value}\0".encode()))
        self.writer.write(frame(b"K", struct.pack("!II", 1, 1)) + self.ready())
        return True

    def ready(self) -> bytes:
        return frame(b"Z", self.state)

    async def serve(self) -> None:
        if not await self.startup():
            return
        while True:
            await self.writer.drain()
            kind, length = struct.unpack("!cI", await self.reader.readexactly(5))
            body = await self.reader.readexactly(length - 4)
            if kind == b"X":
                return
            if kind == b"S":
                self.skipping = False
                self.writer.write(self.ready())
            elif kind == b"Q" and self.database == "hangup":
                return
            elif kind == b"Q" and self.database == "mute":
                continue
            elif kind == b"Q":
                self.writer.write(await self.command(body.rstrip(b"\0").decode()) + self.ready())
            elif not self.skipping:
                self.writer.write(await self.extended(kind, body))

    async def command(self, sql: str) -> bytes:
        if sql == "COMMIT" and self.at_commit is not None:
            how, operation = self.at_commit
            if how == "landed":
                Session.receipts.add(operation)
            raise ConnectionError
        self.state = b"T" if sql.startswith("BEGIN") else b"I"
        return frame(b"C", sql.split(maxsplit=1)[0].encode() + b"\0")

    async def extended(self, kind: bytes, body: bytes) -> bytes:
        if kind == b"P":
            name, sql, _ = body.split(b"\0", 2)
            self.statements[name] = sql.decode()
            return frame(b"1")
        if kind == b"B":
            _portal, name, rest = body.split(b"\0", 2)
            (formats,) = struct.unpack_from("!H", rest)
            offset = 2 + 2 * formats
            (count,) = struct.unpack_from("!H", rest, offset)
            first = None
            if count:
                (length,) = struct.unpack_from("!i", rest, offset + 2)
                first = rest[offset + 6 : offset + 6 + length].decode()
            self.bound = self.statements[name], first
            return frame(b"2")
        if kind == b"D":
            if self.bound[0].startswith(("BEGIN", "COMMIT")):
                return frame(b"n")
            if body[:1] == b"S":
                return frame(b"t", struct.pack("!H", 0)) + frame(b"n")
            return frame(b"T", struct.pack("!H", 1) + b"v\0" + struct.pack("!IHIHIH", 0, 0, 25, 65535, 0, 0))
        return await self.execute(*self.bound)

    async def execute(self, sql: str, operation: str | None) -> bytes:
        if sql.startswith(("BEGIN", "COMMIT")):
            return await self.command(sql)
        rows = 1
        for directive, value in _DIRECTIVE.findall(sql):
            first = (sql, str(operation)) not in Session.seen
            Session.seen.add((sql, str(operation)))
            match directive:
                case "delay":
                    await asyncio.sleep(int(value) / 1000)
                case "fail" if first:
                    return self.fail(value)
                case "fail_always":
                    return self.fail(value)
                case "die":
                    raise ConnectionError
                case "lose_commit" if first:
                    self.at_commit = (value, str(operation))
                case "receipt":
                    rows = int(operation in Session.receipts)
        row = frame(b"D", struct.pack("!HI", 1, 2) + b"ok")
        return row * rows + frame(b"C", b"SELECT %d\0" % rows)

    def fail(self, sqlstate: str) -> bytes:
        self.skipping = True
        if self.state == b"T":
            self.state = b"E"
        return error(sqlstate)


async def main() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Session(reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(sys.stdin, gone.set)  # the test's end of the pipe closed
    await gone.wait()


if __name__ == "__main__":
    asyncio.run(main())
