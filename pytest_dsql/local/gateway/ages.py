"""Ends statements that are their own transactions when these have become too old.

A transaction fails at the statement or COMMIT that comes when it is older than 300 s (AWS user guide, "Cluster quotas
and database limits in Aurora DSQL"); a statement in it runs to its end (`pg_sleep(310)`, seen on clusters in 2026).
What a client sends without a transaction is to commit when it is done, so it fails then (an inference): a query when
its rows have come. One that writes is stopped as soon as it is too old, as PostgreSQL would commit it at its end.

Nothing is asked of statements that end in time: what is running is looked at from time to time, and when the clock is
moved.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.work import CANCELLED
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.group import IDLE, Group
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster
    from pytest_dsql.local.gateway.session import Session

#: How often is looked, at least. Seconds.
_LOOK_S: Final = 1.0
#: And how often in the time that a transaction may take.
_LOOKS: Final = 4


def too_old(age_s: float, limit_s: float) -> Refusal:
    """The refusal of a transaction that is older than the limit, both in seconds.

    AWS user guide, "Cluster quotas and database limits in Aurora DSQL"; the detail as seen on clusters in 2026.
    """
    return Refusal(
        "54000",
        f"transaction age limit of {limit_s:g}s exceeded",
        f"Current transaction age {int(age_s)}s exceeds {limit_s:g}s",
    )


def outlived(session: Session, plan: Plan) -> Refusal | None:
    """The refusal of a statement without a transaction that has ended, but too late, where it can still be undone."""
    current = session.transactions.current
    if current is None or not current.old or current.explicit:
        return None
    kind = plan.statement.kind
    undone = session.status != IDLE and kind in ("dml", "ddl", "select")
    if not undone and (kind != "select" or not session.contender.plain(plan)):
        return None
    return _refusal(session)


def told(session: Session, reply: Group) -> None:
    """Have an answer tell of its age where the statement was stopped for it."""
    current = session.transactions.current
    if current is not None and current.old and reply.error is not None and reply.error.get("C") == CANCELLED:
        said = disguise.error(_refusal(session))
        reply.collected = [said if one[0] == frames.ERROR_RESPONSE else one for one in reply.collected]


def _refusal(session: Session) -> Refusal:
    current = session.transactions.current
    assert current is not None
    return too_old(session.cluster.clock.now() - current.began_at, session.cluster.limits.transaction_age_s)


@final
class Ages:
    """The sessions of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sessions: set[Session] = set()
        self._moved_s = cluster.clock.moved_s
        self._timer: asyncio.TimerHandle | None = None
        self._forget = (cluster.clock.on_move(self._clock_moved), cluster.limits_changed.on(self._limits_changed))

    def begun(self, session: Session) -> None:
        """Look at a session from now on."""
        self._sessions.add(session)
        if self._timer is None:
            self._wait()

    def ended(self, session: Session) -> None:
        """Forget a session."""
        self._sessions.discard(session)

    def close(self) -> None:
        """End nothing any more."""
        for forget in self._forget:
            forget()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._sessions:
            delay_s = min(_LOOK_S, self._cluster.limits.transaction_age_s / _LOOKS)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._look_again)

    def _look_again(self) -> None:
        self._look(0.0)
        self._wait()

    def _limits_changed(self) -> None:
        self._look_again()

    def _clock_moved(self) -> None:
        moved_s = self._cluster.clock.moved_s - self._moved_s
        self._moved_s = self._cluster.clock.moved_s
        self._look(max(moved_s, 0.0))

    def _look(self, moved_s: float) -> None:
        """Look at what is running; the clock has just been moved by so many seconds."""
        limit_s = self._cluster.limits.transaction_age_s
        now = self._cluster.clock.now()
        for session in list(self._sessions):
            group = session.group
            if (group is None and not session.driver.working) or session.over:
                continue
            if group is not None and session.express.under_way and session.transactions.current is None:
                # Nobody has noted when it began: hardly longer ago than the last look.
                session.express.give_up(group)
                if session.transactions.current is not None:
                    session.transactions.current.began_at -= moved_s
            current = session.transactions.current
            if current is None or current.explicit or current.old or now - current.began_at <= limit_s:
                continue
            current.old = True
            if session.status == IDLE:
                session.contender.giving_way.outlived()
