"""A session's claim to a connection of PostgreSQL, whether it has one just now or not."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypeAlias, final

from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.leftovers import Leftover
from pytest_dsql.local.gateway.pooled import PooledBackend
from pytest_dsql.local.gateway.startup import Startup

#: Who a connection belongs to and with which settings it began: what can't be changed afterwards.
Form: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


class Borrower(Protocol):
    """The session that a loan is for."""

    over: bool

    @property
    def idle(self) -> bool:
        """Whether nothing is going on: no transaction, nothing unanswered, nothing held."""

    def lend(self, transport: asyncio.Transport, key: bytes) -> asyncio.Protocol:
        """Take this transport, with PostgreSQL's cancellation key, for what goes to PostgreSQL; give its protocol."""

    def prepared_statements(self) -> dict[bytes, bytes]:
        """Give the Parse messages that make the prepared statements, by their names."""

    def broken(self, farewell: bytes) -> None:
        """End the session with this message."""


class Giver(Protocol):
    """Who lends."""

    def lend(self, loan: Loan) -> None:
        """Give a loan its connection, now or later."""

    def release(self, loan: Loan) -> bool:
        """Take the connection of a session that ends; tell whether it could be taken."""


@final
class Loan(asyncio.Transport):
    """One session's claim to a connection. Stands in for the connection's transport while the session has none."""

    __slots__ = (
        "_asked",
        "_closing",
        "_held",
        "_lender",
        "pinned",
        "pooled",
        "previous",
        "session",
        "startup",
        "touched",
        "unsure",
    )

    def __init__(self, lender: Giver, startup: Startup, session: Borrower) -> None:
        super().__init__()
        self.startup = startup
        self.session = session
        self.pooled: PooledBackend | None = None  #: while the session has it
        self.previous: PooledBackend | None = None  #: what it had last; it may be there still
        self.touched = False  #: the client has sent something since the lender looked last
        self.unsure = False  #: a statement may have left sequence values
        self.pinned = False  #: a statement has left what can't be made again
        self._lender = lender
        self._held: list[bytes] = []
        self._asked = False
        self._closing = False

    @property
    def form(self) -> Form:
        """Which connections serve."""
        return self.startup.user, self.startup.settings

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what goes to PostgreSQL, and have a connection lent for it."""
        if self._closing or data == frames.TERMINATE_MESSAGE:
            return
        self._held.append(bytes(data))
        if not self._asked:
            self._asked = True
            self._lender.lend(self)

    def left(self, leaves: Leftover) -> None:
        """Hear what a statement may leave in the connection."""
        if leaves is Leftover.KEPT:
            self.pinned = True
        else:
            self.unsure = True

    def arrived(self, pooled: PooledBackend) -> None:
        """Take a connection, and send what was kept."""
        self._asked = False
        self.pooled = self.previous = pooled
        pooled.owner = self
        protocol = self.session.lend(pooled.transport, pooled.key)
        pooled.transport.set_protocol(protocol)
        held, self._held = self._held, []
        if held:
            pooled.transport.write(b"".join(held))

    def failed(self, answer: bytes) -> None:
        """There is no connection."""
        self._asked = False
        self._held.clear()
        self.session.broken(answer)

    def detach(self) -> PooledBackend:
        """Part from the connection; what goes to PostgreSQL from now on is kept."""
        pooled = self.pooled
        assert pooled is not None
        self.pooled = None
        self.session.lend(self, b"")
        pooled.transport.set_protocol(pooled)
        pooled.transport.resume_reading()  # a slow client may have paused it
        return pooled

    def own_parses(self) -> set[bytes]:
        """Give the names of the prepared statements that are made by what waits for the connection."""
        data = b"".join(self._held)
        names = set()
        position = 0
        while position + frames.HEADER_SIZE <= len(data):
            kind, length = frames.HEADER.unpack_from(data, position)
            if kind == frames.PARSE:
                start = position + frames.HEADER_SIZE
                names.add(data[start : data.find(0, start)])
            position += 1 + length
        return names

    def wait(self) -> None:
        """Keep what goes to PostgreSQL, and have nothing lent: the lender still looks at the connection."""
        self._asked = True

    def looked_at(self) -> bool:
        """Hear that the lender has put the connection away; tell whether something waits for it already."""
        self._asked = bool(self._held)
        return self._asked

    def release(self) -> bool:
        """Give the connection back because the session ends; tell whether that is possible."""
        return self._lender.release(self)

    def close(self) -> None:
        """End the stand-in as a connection ends."""
        if not self._closing:
            self._closing = True
            self._held.clear()
            loop = asyncio.get_running_loop()
            loop.call_soon(self.session.lend(self, b"").connection_lost, None)

    def abort(self) -> None:
        """Close."""
        self.close()

    def is_closing(self) -> bool:
        """Tell whether it was closed."""
        return self._closing

    def pause_reading(self) -> None:
        """There is nothing to read."""

    def resume_reading(self) -> None:
        """There is nothing to read."""
