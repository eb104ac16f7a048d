"""Giving way: what one session does when a rival waits for its locks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.moves import Moves
from pytest_dsql.local.adjudicator.work import State
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session


@final
class GivingWay:
    """Parks one session's transaction, and stops its statement for that."""

    __slots__ = ("_adjudicator", "_moves", "_session", "_stopping", "stoppable")

    def __init__(self, session: Session, adjudicator: Adjudicator, moves: Moves) -> None:
        self._session = session
        self._adjudicator = adjudicator
        self._moves = moves
        self._stopping: asyncio.Task[None] | None = None
        #: The statement that the driver runs, and that may be stopped: it can be run another way.
        self.stoppable: Group | None = None

    def asked(self, *, hurry: bool) -> None:
        """Hear that a rival waits for this session; in a hurry: that it has waited for long."""
        session = self._session
        work = session.contender.work
        if work is None or work.committing or work.state is State.PARKED or session.over:
            return
        group = session.group
        if group is None and not session.driver.working:
            session.driver.start(self.park())
            return
        work.park_wanted = True
        if group is None:
            # Its driver may be waiting for its client.
            session.frontend.wake()
        elif hurry and self._stopping is None:
            self._stop(group)

    def outlived(self) -> None:
        """Hear that the statement that is running, its own transaction, is too old: it is stopped if it writes."""
        session = self._session
        group = session.group
        plan = None if group is None else group.plan
        if group is None or self._stopping is not None:
            return
        if plan is None or plan.statement.kind == "dml" or not session.contender.plain(plan):
            self._stop(group)

    def _stop(self, group: Group) -> None:
        session = self._session
        if group.asked is None:
            kind = None if group.plan is None else group.plan.statement.kind
            if kind not in ("dml", "select") or group.answering or group.contested or group.run is None:
                return
            session.express.give_up(group)
            # Its answer comes to the driver from now on: nothing of it has gone to the client.
            group.asked = asyncio.get_running_loop().create_future()
            self._begin(group)
            session.driver.start(session.driver.stopped(group))
        elif group is self.stoppable:
            self._begin(group)

    def _begin(self, group: Group) -> None:
        self._stopping = asyncio.get_running_loop().create_task(self._cancel(group))

    async def _cancel(self, group: Group) -> None:
        await self._adjudicator.cancel(self._session.contender.pid, lambda: self._session.group is group)

    async def stopped(self) -> None:
        """Wait until a statement that was to be stopped has been: so no later one is."""
        stopping, self._stopping = self._stopping, None
        if stopping is not None:
            await stopping

    async def make_way(self) -> None:
        """Park if a rival has asked for it."""
        work = self._session.contender.work
        if work is not None and work.park_wanted:
            await self.park()

    async def park(self) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        work = self._session.contender.work
        if work is None:
            return
        work.park_wanted = False
        if self._session.status in (IDLE, FAILED) or work.state is State.PARKED:
            return
        await self._moves.park(work)
