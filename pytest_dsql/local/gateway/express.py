"""The shortest way: a SELECT, INSERT, UPDATE or DELETE that comes in one piece, and is answered in one piece.

Nobody has anything to say about it: no fault or latency is injected, the catalog is the one that the session knows, and
the adjudicator lets it go to PostgreSQL as it is. So it goes on as it came, and so does its answer, and it is counted.
Whatever is otherwise takes the general way (`frontend`, `backend`), also when that shows only in the answer. Measured
with warm caches, a SELECT on the general way takes 16 us of Python, and here 4; with cold ones both take a multiple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.work import State
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import BIND, COMMAND_COMPLETE, DATA_ROW, HEADER, HEADER_SIZE, QUERY
from pytest_dsql.local.gateway.group import IDLE, IN_TRANSACTION, Group
from pytest_dsql.local.gateway.run import Run

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

_EXECUTE: Final = frames.message(frames.EXECUTE, b"\0" + bytes(4))
_EXECUTE_SYNC: Final = _EXECUTE + frames.SYNC_MESSAGE
#: What may follow the Bind of the unnamed portal.
_ENDS: Final = frozenset({_EXECUTE_SYNC, frames.message(frames.DESCRIBE, b"P\0") + _EXECUTE_SYNC})

#: What an answer may consist of, besides its rows, its command tag and its end.
_BEFORE_ROWS: Final = frozenset({frames.BIND_COMPLETE, frames.ROW_DESCRIPTION, ord("n")})

#: ReadyForQuery up to the transaction's state.
_READY: Final = frames.ready(IDLE)[:-1]

_unpack: Final = HEADER.unpack_from


@final
class Express:
    """One session's shortest way."""

    __slots__ = ("_group", "_head", "_session", "_tag", "_tail", "clear", "under_way")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._group = Group()  # used again and again: at most one is under way
        # The frames before the rows of an answer that came this way, and those behind them with their command tag:
        # where they come again, as they mostly do, they needn't be read again.
        self._head = b""
        self._tail = b"Z"
        self._tag = b""
        #: Nothing is under way or held, and the transaction, if one is open, is in the tables. `look` finds out;
        #: whatever takes the general way says that it isn't so.
        self.clear = False
        self.under_way = False  #: a statement was sent, and its answer may come this way

    def look(self) -> None:
        """See whether it is clear."""
        session = self._session
        work = session.contender.work
        if session.status == IDLE:
            self.clear = session.idle and work is None and session.frontend.at_ease
        elif session.status == IN_TRANSACTION:
            rests = not (session.frontend.unfinished or session.frontend.unsynced or session.driver.working)
            in_tables = work is not None and work.state is State.PHYSICAL
            self.clear = rests and in_tables and session.group is None and session.frontend.at_ease
        else:
            self.clear = False

    def takes(self, data: bytes) -> bool:
        """Send a chunk from the client on, if it is clear and the chunk may go this way."""
        session = self._session
        kind = data[0]
        if kind == BIND:
            after = 1 + _unpack(data)[1] if len(data) > HEADER_SIZE else 0
            if data[after:] not in _ENDS or data[HEADER_SIZE]:
                return False
            end = data.find(0, HEADER_SIZE + 1, after)
            prepared = session.frontend.names.prepared.get(data[HEADER_SIZE + 1 : end]) if end > 0 else None
            if prepared is None:
                return False
            plan = prepared.plan
        elif kind == QUERY:
            if len(data) <= HEADER_SIZE or 1 + _unpack(data)[1] != len(data):
                return False
            decision = session.statements.known(data[HEADER_SIZE:-1], session.cluster.rules)
            if decision is None or decision.leaves or len(decision.plans) > 1 or decision.plans[0].changed:
                return False
            plan = decision.plans[0]
        else:
            return False
        cluster = session.cluster
        transactions = session.transactions
        if (
            not plan.simple
            or not session.contender.plain(plan)
            or transactions.minds()
            or cluster.latency.active
            or len(data) > cluster.limits.message_bytes
        ):
            return False
        group = self._group
        group.plan = plan
        group.sent = data
        if transactions.current is not None or plan.statement.kind == "dml":
            transactions.count(plan.statement)
            group.run = self._run(group)
        else:
            # Nobody needs more of it, unless it takes the general way after all.
            group.run = None
        self.clear = False
        self.under_way = True
        session.group = group
        session.backend.transport.write(data)
        if session.vigil is not None:
            session.vigil.stay(session.vigil.answer)
        return True

    def _run(self, group: Group) -> Run:
        assert group.plan is not None
        sent = group.sent
        if sent[0] == BIND:
            names = self._session.frontend.names
            names.bind(sent[HEADER_SIZE : 1 + _unpack(sent)[1]])
            portal = names.portals[b""]
            portal.executed = True
            run = Run((group.plan,), b"", portal, _EXECUTE)
        else:
            run = Run((group.plan,), b"", None, b"")
        run.asked = True
        return run

    def answers(self, data: bytes) -> bool:
        """Send the answer on, if it has come in one piece and there is nothing about it."""
        session = self._session
        group = self._group
        tag = self._read(data, len(self._head) if data.startswith(self._head) else 0)
        if tag is None or data[-1] != session.status:
            self._leave(group)
            return False
        plan, run = group.plan, group.run
        assert plan is not None
        self.under_way = False
        if run is None:
            session.group = None
            session.send(data)
            session.cluster.dpu.count_read(plan.statement, tag)
            clear = session.at_rest is None
        else:
            if plan.statement.kind == "dml":
                session.contender.succeeded(run, plan, tag)
            session.transactions.completed(plan.statement, tag)
            session.group = None
            session.send(data)
            work = session.contender.work
            if work is None or session.status == IDLE:
                session.settle(committed=True)
                clear = False
            else:
                clear = not work.park_wanted
        if clear and not session.frontend.unfinished:
            self.clear = True
        else:
            session.go_on()
        if session.group is None and session.vigil is not None:
            session.vigil.stay(session.vigil.statement)
        return True

    def _read(self, data: bytes, position: int) -> bytes | None:
        """Give the command tag of an answer, read from there on; None where there is more about it."""
        last = len(data) - HEADER_SIZE
        tail = self._tail
        while position <= last:
            kind = data[position]
            if kind == DATA_ROW:
                position += 1 + _unpack(data, position)[1]
            elif kind == COMMAND_COMPLETE:
                if position == len(data) - len(tail) and data.endswith(tail):
                    return self._tag
                after = position + 1 + _unpack(data, position)[1]
                if not data.startswith(_READY, after) or after + len(_READY) + 1 != len(data):
                    return None
                self._tail = data[position:]
                self._tag = data[position + HEADER_SIZE : after - 1]
                return self._tag
            elif kind in _BEFORE_ROWS:
                position += 1 + _unpack(data, position)[1]
                if position <= last:  # else it has come in part only
                    self._head = data[:position]
            else:
                return None
        return None

    def give_up(self, group: Group) -> None:
        """Let the general way take the answer of what is under way, if it is `group`."""
        if group is self._group:
            self._leave(group)

    def _leave(self, group: Group) -> None:
        """Make up for what the general way would have done before the statement was sent."""
        assert group.plan is not None
        self.clear = self.under_way = False
        self._group = Group()
        if group.run is None:
            self._session.transactions.count(group.plan.statement)
            group.run = self._run(group)
