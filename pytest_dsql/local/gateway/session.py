"""A session: one client, one PostgreSQL backend, and the statements between them, one at a time.

Frames are scanned, not re-built: what a chunk of bytes holds is walked header by header, and the chunk goes on whole
unless a frame in it must be replaced. That is the fast way, and nearly everything takes it: one statement, sent and
answered. Everything else (query strings of several statements, pipelines, COPY, statements that somebody has stopped)
is held in the frontend while the driver, a task of its own, runs it piece by piece.

At any time at most one group is unanswered (`group`), so whoever decides about a statement knows what became of the one
before it. Whenever `idle` is true PostgreSQL's connection may go to another session, and come back as another one
(`lending`): nothing of the session lives in PostgreSQL then but the prepared statements that `frontend.names` has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.contender import Contender
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.ages import outlived
from pytest_dsql.local.gateway.backend import Backend
from pytest_dsql.local.gateway.cancel import cancel
from pytest_dsql.local.gateway.driver import Driver
from pytest_dsql.local.gateway.express import Express
from pytest_dsql.local.gateway.frontend import Frontend
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group
from pytest_dsql.local.gateway.hooks import Hook, Statement
from pytest_dsql.local.gateway.lending import Lender
from pytest_dsql.local.gateway.loan import Loan
from pytest_dsql.local.gateway.outgoing import Outgoing
from pytest_dsql.local.gateway.startup import Startup
from pytest_dsql.local.gateway.statements import Statements
from pytest_dsql.local.gateway.transaction import Transactions
from pytest_dsql.local.gateway.vigil import Vigil
from pytest_dsql.local.latency.control import Pace

#: Bytes that may wait for a slow client before its backend is paused.
_CLIENT_BACKLOG: Final = 256 * 1024

_TERMINATED: Final = frames.error("FATAL", "57P01", "terminating connection due to administrator command")


@final
class Session:
    """Both sides of one connection."""

    __slots__ = (
        "at_rest",
        "backend",
        "cluster",
        "contender",
        "driver",
        "ended",
        "express",
        "frontend",
        "group",
        "key",
        "leaving",
        "loan",
        "outgoing",
        "over",
        "pace",
        "send",
        "skipping",
        "statements",
        "status",
        "transactions",
        "vigil",
    )

    def __init__(
        self,
        cluster: Cluster,
        statements: Statements,
        wanted: Startup,
        lender: Lender,
        adjudicator: Adjudicator,
        ended: Callable[[Session], object] | None = None,
        hooks: Sequence[Hook] = (),
        pace: Pace | None = None,
        vigil: Vigil | None = None,
    ) -> None:
        self.cluster = cluster
        self.statements = statements
        self.key = b""  #: PostgreSQL's own cancellation key, while there is one; the client has another
        self.ended = ended
        self.group: Group | None = None  #: sent, not yet answered
        self.status = IDLE  #: as in the last ReadyForQuery
        self.skipping = False  #: PostgreSQL ignores everything up to the Sync that is still to come
        self.leaving = False  #: the client has said goodbye
        self.over = False  #: both sides are being closed
        self.pace = pace  #: how long answers are held back
        self.vigil = vigil  #: the loop's
        #: Called when a statement was answered and no transaction is open.
        self.at_rest: Callable[[], object] | None = None
        self.transactions = Transactions(cluster, hooks)
        self.frontend = Frontend(self)
        self.backend = Backend(self)
        self.driver = Driver(self)
        self.express = Express(self)
        self.loan = Loan(lender, wanted, self)  #: of the connection to PostgreSQL
        self.backend.transport = self.loan
        self.contender = Contender(self, adjudicator, None)
        self.outgoing: Outgoing
        self.send: Callable[[bytes], object]  #: to the client, in order

    def join(self, client: asyncio.Transport, buffer: memoryview) -> None:
        """Take the client's transport over. What comes is read into `buffer`, which all sessions of a loop share."""
        self.frontend.buffer = buffer
        client.set_write_buffer_limits(_CLIENT_BACKLOG)
        self.frontend.transport = client
        self.outgoing = Outgoing(client, self._crowded)
        self.send = self.outgoing.send
        client.set_protocol(self.frontend)

    def lend(self, transport: asyncio.Transport, key: bytes) -> asyncio.Protocol:
        """Take another transport for what goes to PostgreSQL, with its cancellation key; give the protocol for it.

        Nothing but the client's prepared statements comes along from the connection before.
        """
        self.backend.transport = transport
        self.key = key
        self.contender.moved(key)
        return self.backend

    def prepared_statements(self) -> dict[bytes, bytes]:
        """Give the Parse messages that make the client's prepared statements, by their names."""
        return {
            name: frames.message(frames.PARSE, name + b"\0" + prepared.plan.sent + b"\0" + prepared.rest)
            for name, prepared in self.frontend.names.prepared.items()
        }

    @property
    def working(self) -> bool:
        """Whether a transaction is open or a statement under way."""
        return self.status != IDLE or self.group is not None or self.driver.working

    @property
    def idle(self) -> bool:
        """Whether nothing is going on: no transaction, nothing unanswered, nothing held."""
        nothing_open = self.transactions.current is None and not self.frontend.unsynced
        return nothing_open and not self.working and not self.frontend.unfinished

    def completed(self, group: Group, tag: bytes) -> bytes | None:
        """Hear that a statement on the fast way has succeeded; give the message to send instead of its command tag."""
        group.tag = tag
        plan = group.plan
        if plan is None:
            return None
        if group.only_first:
            group.muted = True
            return None
        if group.run is not None and plan.statement.kind != "select":
            self.contender.succeeded(group.run, plan, tag)
        refusal = self.transactions.completed(plan.statement, tag) or outlived(self, plan)
        if refusal is not None:
            group.refusal = refusal
            group.muted = True
            return b""
        return None if plan.tag is None or not tag else frames.message(frames.COMMAND_COMPLETE, plan.tag + b"\0")

    def failed(self, group: Group, payload: bytes) -> bytes | None:
        """Hear that a statement on the fast way has failed; give the message to send instead of its ErrorResponse."""
        error = group.error = frames.fields(payload)
        if self.contender.contested(group.plan, error) and (group.run is not None or not group.answering):
            group.contested = group.muted = True
            return b""
        self.contender.failed()
        return disguise.replace_error(payload)

    def answered(self, group: Group) -> None:
        """Hear that the group on the fast way is answered, and go on with what the client has sent meanwhile."""
        self.group = None
        self.skipping = False
        if group.contested:
            self.driver.start(self.driver.contest(group))
            return
        self.frontend.names.answered()
        if group.refusal is not None:
            self.driver.start(self.driver.refuse(group.refusal))
            return
        if self.transactions.current is not None:
            self.settle(committed=group.error is None and group.tag not in (None, b"ROLLBACK"))
        self.go_on()
        if self.vigil is not None and self.group is None:
            self.vigil.stay(self.vigil.statement)

    def go_on(self) -> None:
        """Look at what the client has sent meanwhile: everything before it is answered."""
        if self.at_rest is not None and self.status == IDLE:
            self.at_rest()
        work = self.contender.work
        if work is not None and work.park_wanted and not self.over:
            self.driver.start(self.contender.park())
            return
        self.frontend.go_on()

    def settle(self, *, committed: bool) -> None:
        """Bring what is known of the transaction in line with PostgreSQL's state after a statement."""
        if self.status == IDLE:
            self.contender.end()
            self.transactions.end(committed=committed)
        elif self.status != FAILED and self.transactions.current is not None:
            self.transactions.current.explicit = True

    def hold(self, statement: Statement | None) -> None:
        """Hold the answer to what is about to be sent back for as long as the latency profile says."""
        pace = self.pace
        if pace is not None and pace.active:
            current = self.transactions.current
            due = pace.due(statement, current) if statement is not None else pace.due_without_statement()
            self.outgoing.hold_until(due)

    def _crowded(self, crowded: bool) -> None:
        if crowded:
            self.backend.pause()
        else:
            self.backend.resume()

    def fall_silent(self) -> None:
        """End the session without letting the client know: its connection stays open, and nothing comes any more."""
        self._stop_statement()
        self.over = True
        self.outgoing.drop()
        self.driver.stop()
        self.backend.leave()
        self._end_transaction()

    def shut(self) -> None:
        """End the session from this side, telling the client."""
        if not self.over:
            self._stop_statement()
            self._close(_TERMINATED)

    def broken(self, farewell: bytes) -> None:
        """End the session because its client doesn't keep to the protocol."""
        self._close(farewell)

    def expire(self) -> None:
        """End the session without a word: its time is over."""
        if not self.over:
            self._stop_statement()
            self._close(b"")

    def depart(self) -> None:
        """End the session because its client has said goodbye."""
        self.leaving = True
        self._close(b"")

    def abort(self) -> None:
        """End the session without waiting for anybody."""
        self._stop_statement()
        self.over = True
        self.driver.stop()
        self.frontend.transport.abort()
        self.backend.transport.abort()
        self._end_transaction()

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
        if self.group is not None and self.key:
            cancel(self.cluster.socket_path, self.key)

    def _close(self, farewell: bytes) -> None:
        if not self.over:
            self.loan.release()
            self.over = True
            self.driver.stop()
            self.frontend.leave(farewell)
            self.backend.leave()
            self._end_transaction()

    def _end_transaction(self) -> None:
        self.contender.left()
        self.transactions.end(committed=False)

    def _check_end(self) -> None:
        if self.frontend.lost and self.backend.lost and self.ended is not None:
            self.ended(self)
            self.ended = None
