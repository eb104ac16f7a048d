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
from pytest_dsql.local.gateway.frames import BIND, COMMAND_COMPLETE, HEADER, HEADER_SIZE, QUERY, READY_FOR_QUERY
from pytest_dsql.local.gateway.group import IDLE, IN_TRANSACTION, Group
from pytest_dsql.local.gateway.run import Run

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

_EXECUTE: Final = frames.message(frames.EXECUTE, b"\0" + bytes(4))
_EXECUTE_SYNC: Final = _EXECUTE + frames.SYNC_MESSAGE
#: What may follow the Bind of the unnamed portal.
_ENDS: Final = frozenset({_EXECUTE_SYNC, frames.message(frames.DESCRIBE, b"P\0") + _EXECUTE_SYNC})

#: What an answer may consist of, besides its command tag and its end.
_PLAIN: Final = frozenset({frames.DATA_ROW, frames.BIND_COMPLETE, ord("T"), ord("n")})

_unpack: Final = HEADER.unpack_from


@final
class Express:
    """One session's shortest way."""

    __slots__ = ("_bind", "_group", "_session", "clear")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._group = Group()  # used again and again: at most one is under way
        self._bind = b""  #: the payload of the Bind message of what is under way
        #: Nothing is held, and the transaction, if one is open, is in the tables. `look` finds out; whatever takes the
        #: general way says that it isn't so.
        self.clear = False

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
        """Send a chunk from the client on, if it may go this way."""
        session = self._session
        if data[0] == BIND:
            after = 1 + _unpack(data)[1] if len(data) > HEADER_SIZE else 0
            if data[after:] not in _ENDS or data[HEADER_SIZE]:
                return False
            prepared = session.frontend.names.prepared.get(data[HEADER_SIZE + 1 : data.find(0, HEADER_SIZE + 1)])
            if prepared is None:
                return False
            plan = prepared.plan
            self._bind = data[HEADER_SIZE:after]
        elif data[0] == QUERY:
            if len(data) <= HEADER_SIZE or 1 + _unpack(data)[1] != len(data):
                return False
            decision = session.statements.known(data[HEADER_SIZE:-1], session.cluster.rules)
            if decision is None or decision.leaves or len(decision.plans) > 1 or decision.plans[0].changed:
                return False
            plan = decision.plans[0]
            self._bind = b""
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
        session.group = group
        session.backend.transport.write(data)
        return True

    def _run(self, group: Group) -> Run:
        assert group.plan is not None
        if self._bind:
            names = self._session.frontend.names
            names.bind(self._bind)
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
        if session.group is not group:
            return False
        position = 0
        last = len(data) - HEADER_SIZE
        tag = b""
        while position <= last:
            kind, length = _unpack(data, position)
            if kind in _PLAIN:
                position += 1 + length
            elif kind == COMMAND_COMPLETE:
                tag = data[position + HEADER_SIZE : position + length]
                position += 1 + length
            else:
                if kind == READY_FOR_QUERY and position == last - 1 and data[-1] == session.status:
                    break
                self._leave(group)
                return False
        else:
            self._leave(group)
            return False
        plan, run = group.plan, group.run
        assert plan is not None
        if run is None:
            session.group = None
            session.send(data)
            session.cluster.dpu.count(((plan.statement, tag),), committed=True)
            if session.at_rest is not None:
                session.at_rest()
            if session.frontend.unfinished:
                session.frontend.go_on()
            return True
        if plan.statement.kind == "dml":
            session.contender.succeeded(run, plan, tag)
        session.transactions.completed(plan.statement, tag)
        session.group = None
        session.send(data)
        work = session.contender.work
        if work is None or session.status == IDLE:
            session.settle(committed=True)
            session.go_on()
        elif work.park_wanted or session.frontend.unfinished:
            session.go_on()
        return True

    def give_up(self, group: Group) -> None:
        """Let the general way take the answer of what is under way, if it is `group`."""
        if group is self._group:
            self._leave(group)

    def _leave(self, group: Group) -> None:
        """Make up for what the general way would have done before the statement was sent."""
        assert group.plan is not None
        self.clear = False
        self._group = Group()
        if group.run is None:
            self._session.transactions.count(group.plan.statement)
            group.run = self._run(group)
