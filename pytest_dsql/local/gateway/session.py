"""A session: one client, one PostgreSQL backend, and the frames between them.

Frames are scanned, not re-built: what a chunk of bytes holds is walked header by header, and the chunk goes on whole
unless a frame in it must be replaced. The two protocols are plain and fast on purpose: with one await per frame
instead of this, a session carries a third of the statements and a fiftieth of the rows.

What is known of a session at any time, for whoever has to decide about its statements: `groups` (what was sent and not
yet answered), `status` (idle, in a transaction, failed), and the two places where frames pass, `Frontend.data_received`
and `Backend.data_received`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, final

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.backend import Backend
from pytest_dsql.local.gateway.cancel import cancel
from pytest_dsql.local.gateway.frontend import Frontend, Group
from pytest_dsql.local.gateway.statements import Statements

#: Bytes that may wait for a slow client before its backend is paused.
_CLIENT_BACKLOG: Final = 256 * 1024

_IDLE: Final = ord("I")
_TERMINATED: Final = frames.error("FATAL", "57P01", "terminating connection due to administrator command")


@final
class Session:
    """Both sides of one connection."""

    __slots__ = (
        "at_rest",
        "backend",
        "cluster",
        "copying_in",
        "ended",
        "frontend",
        "groups",
        "key",
        "leaving",
        "open_tags",
        "over",
        "statements",
        "status",
    )

    def __init__(
        self, cluster: Cluster, statements: Statements, key: bytes, ended: Callable[[Session], object] | None = None
    ) -> None:
        self.cluster = cluster
        self.statements = statements
        self.key = key  #: PostgreSQL's own cancellation key; the client has another one
        self.ended = ended
        self.groups: deque[Group] = deque()  #: sent, not yet answered
        self.open_tags: dict[int, bytes] = {}  #: of the group that no Sync has ended yet
        self.status = _IDLE  #: as in the last ReadyForQuery: I, T or E
        self.copying_in = False
        self.leaving = False  #: the client has said goodbye
        self.over = False  #: both sides are being closed
        #: Called when a statement was answered and no transaction is open.
        self.at_rest: Callable[[], object] | None = None
        self.frontend = Frontend(self)
        self.backend = Backend(self)

    def join(self, client: asyncio.Transport, backend: asyncio.Transport) -> None:
        """Take both transports over."""
        client.set_write_buffer_limits(_CLIENT_BACKLOG)
        self.frontend.transport = client
        self.backend.transport = backend
        client.set_protocol(self.frontend)
        backend.set_protocol(self.backend)

    def copy_ended(self) -> None:
        """The COPY takes no more data: the Syncs sent during it get no answer (PostgreSQL ignores them)."""
        if self.copying_in and self.groups and not self.groups[0].is_query:
            self.groups.clear()
            self.frontend.executes = self.backend.completions + 1
        self.copying_in = False

    def shut(self) -> None:
        """End the session from this side, telling the client."""
        if not self.over:
            self._stop_statement()
            self._close(_TERMINATED)

    def broken(self, farewell: bytes) -> None:
        """End the session because its client doesn't keep to the protocol."""
        self._close(farewell)

    @property
    def working(self) -> bool:
        """Whether a transaction is open or a statement under way."""
        return self.status != _IDLE or bool(self.groups) or self.frontend.executes > 0

    def expire(self) -> None:
        """End the session without a word: its time is over."""
        if not self.over:
            self._stop_statement()
            self._close(b"")

    def abort(self) -> None:
        """End the session without waiting for anybody."""
        self.over = True
        self.frontend.transport.abort()
        self.backend.transport.abort()

    def client_gone(self) -> None:
        """The client's connection is closed."""
        if not self.over and not self.leaving:
            # Its statement would go on, and hold its locks, until PostgreSQL tries to answer.
            self._stop_statement()
        self._close(b"")
        self._check_end()

    def backend_gone(self) -> None:
        """PostgreSQL's connection is closed."""
        self._close(b"" if self.leaving or self.backend.said_fatal else _TERMINATED)
        self._check_end()

    def _stop_statement(self) -> None:
        if self.groups or self.frontend.executes:
            cancel(self.cluster.socket_path, self.key)

    def _close(self, farewell: bytes) -> None:
        if not self.over:
            self.over = True
            self.frontend.leave(farewell)
            self.backend.leave()

    def _check_end(self) -> None:
        if self.frontend.lost and self.backend.lost and self.ended is not None:
            self.ended(self)
            self.ended = None
