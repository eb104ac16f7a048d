"""PostgreSQL without a gateway, asked the same as the gateway: what it answers is what a client should get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from pytest_dsql.local.gateway import frames
from tests.local.gateway.fuzzing.memory import ends_ready, messages, startup_packet
from tests.local.gateway.fuzzing.rules import TAGGED

#: What stands for LOCK, which is refused.
_FAILING: Final = "SELECT 'dsql-refused'::pg_catalog.int4"


class Direct:
    """A connection to the cluster's PostgreSQL."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received = bytearray()
        self.ended = False

    @classmethod
    async def opened(cls, socket_path: str) -> Direct:
        """Log in as `admin`."""
        direct = cls(*await asyncio.open_unix_connection(socket_path))
        direct.send(startup_packet(("user", "admin"), ("database", "postgres")))
        await direct.until(b"Z\0\0\0\5I")
        direct.take()
        return direct

    def send(self, data: bytes) -> None:
        """Send."""
        self._writer.write(data)

    async def until(self, last: bytes) -> None:
        """Read until this, and a ReadyForQuery after it, have come, or PostgreSQL closes the connection."""
        while not self.ended and not (last in self.received and ends_ready(bytes(self.received))):
            try:
                part = await asyncio.wait_for(self._reader.read(65_536), 20)
            except ConnectionResetError:
                part = b""
            self.ended = not part
            self.received += part

    def take(self) -> bytes:
        """Give what was received, and forget it."""
        received = bytes(self.received)
        self.received.clear()
        return received

    def close(self) -> None:
        """Be gone."""
        self._writer.close()


def without_gateway(parts: Iterable[bytes]) -> list[bytes]:
    """The same messages for PostgreSQL itself, which knows nothing of the judge."""
    found = []
    for part in parts:
        if part[0] in (frames.QUERY, frames.PARSE):
            payload = part[frames.HEADER_SIZE :]
            name, rest = b"", payload
            if part[0] == frames.PARSE:
                name, _, rest = payload.partition(b"\0")
                name += b"\0"
            text, _, rest = rest.partition(b"\0")
            part = frames.message(part[0], name + b";".join(map(_translated, text.split(b";"))) + b"\0" + rest)
        found.append(part)
    return found


def _translated(text: bytes) -> bytes:
    if text.strip().startswith(b"LOCK"):
        return _FAILING.encode()
    return TAGGED.encode() if b"INDEX ASYNC" in text else text


def normal(received: bytes) -> list[tuple[str, object]]:
    """What of an answer must be the same through the gateway."""
    found: list[tuple[str, object]] = []
    tagged = False
    for kind, payload in messages(received):
        told: object = None
        if kind in "EN":
            fields = frames.fields(payload)
            if fields["M"].startswith(b"pytest_dsql_engine") or fields["C"] == b"25P01":
                # What the engine's own triggers tell the gateway; and that there is no transaction in progress, where
                # the gateway had opened one around several statements.
                continue
            told = (fields["C"], fields["M"])
            if b"dsql-refused" in fields["M"]:
                told = (b"0A000", b"unsupported statement: Lock")
        elif kind in "DZdI":
            told = payload
            tagged = tagged or (kind == "D" and payload == b"\0\1\0\0\0\3abc")
        elif kind == "C":
            # An Execute after the last row has a tag of its own in PostgreSQL.
            told = b"CREATE INDEX\0" if tagged or payload == b"SELECT 0\0" else payload
            tagged = False
        if kind != "S":
            found.append((kind, told))
    # In which order an UPDATE or a COPY gives its rows depends on when PostgreSQL has tidied up their page.
    return [
        one
        for rows, several in groupby(found, lambda one: one[0] in "Dd")
        for one in (sorted(several, key=repr) if rows else several)
    ]
