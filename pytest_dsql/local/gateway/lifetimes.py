"""Ends the sessions of a cluster when their time is over.

A connection lives 60 minutes (AWS user guide, "Cluster quotas and database limits in Amazon Aurora DSQL"). DSQL closes
it without a word: clients report an unexpected end. A transaction that began before may first run for its five minutes
(the guide's edition for the preview).
"""

from __future__ import annotations

import asyncio
from typing import final

from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.gateway.session import Session


@final
class Lifetimes:
    """The sessions of one cluster, in the order in which they began."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._began: dict[Session, float] = {}  #: by the cluster's clock; oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._forget = (cluster.clock.on_move(self._clock_moved), cluster.limits_changed.on(self._limits_changed))

    def begun(self, session: Session) -> None:
        """Count a session's time from now on."""
        self._began[session] = self._cluster.clock.now()
        if self._timer is None:
            self._look()

    def ended(self, session: Session) -> None:
        """Forget a session."""
        self._began.pop(session, None)

    def close(self) -> None:
        """End nothing any more."""
        for forget in self._forget:
            forget()
        if self._timer is not None:
            self._timer.cancel()

    def _clock_moved(self) -> None:
        now = self._cluster.clock.now()
        if any(began > now for began in self._began.values()):
            # The clock was set back; nobody has begun in the future.
            began = [(session, min(began, now)) for session, began in self._began.items()]
            self._began = dict(sorted(began, key=lambda one: one[1]))
        self._look()

    def _limits_changed(self) -> None:
        for session in self._began:
            session.at_rest = None
        self._look()

    def _look(self) -> None:
        """End what is to end, and come back when the next one is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._cluster.clock.now()
        limits = self._cluster.limits
        due: list[float] = []
        for session, began in list(self._began.items()):
            end = began + limits.session_s
            if now < end:
                due.append(end)
                break  # the others began later
            if session.working and now < end + limits.session_grace_s:
                session.at_rest = session.expire
                due.append(end + limits.session_grace_s)
            else:
                session.expire()
                del self._began[session]
        if due:
            self._timer = asyncio.get_running_loop().call_later(min(due) - now, self._look)
