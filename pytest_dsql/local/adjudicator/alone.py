"""Statements that are their own transactions, and DDL: they go before whoever is in their way."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.books import Keys
from pytest_dsql.local.adjudicator.commands import (
    BEGIN_PATIENTLY,
    BEGIN_WITH_SOME_PATIENCE,
    COMMIT,
    CONFLICT,
    PATIENCE,
    ROLLBACK,
)
from pytest_dsql.local.adjudicator.moves import TRIES
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.work import IN_THE_WAY, State, of_no_row
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, Group
from pytest_dsql.local.gateway.run import Run
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session


@final
class Alone:
    """One session's statements without a transaction, and its DDL."""

    __slots__ = ("_adjudicator", "_session", "keys")

    def __init__(self, session: Session, adjudicator: Adjudicator) -> None:
        self.keys = Keys()  #: what the statement that is running has told
        self._session = session
        self._adjudicator = adjudicator

    def succeeded(self) -> None:
        """Note that it has succeeded, and with that committed."""
        if self.keys:
            self._adjudicator.books.record(self.keys)
            self.keys.clear()

    def failed(self) -> None:
        """Note that it has failed: it has done nothing."""
        self.keys.clear()

    async def run(self, run: Run, plan: Plan, texts: Texts) -> Group:
        """Run a statement that is its own transaction."""
        reply = await self._execute(run, plan, texts)
        if reply.error is not None and reply.error.get("C") in IN_THE_WAY:
            return await self.another_way(run, plan, texts, reply.error)
        if reply.error is None:
            self.succeeded()
        else:
            self.failed()
        return reply

    async def another_way(self, run: Run, plan: Plan, texts: Texts, error: dict[str, bytes] | None) -> Group:
        """Run a statement that is its own transaction, and was in somebody's way: it parks whoever is in its way."""
        if of_no_row(error):
            reply = await self._in_block(run, plan, texts, BEGIN_WITH_SOME_PATIENCE)
            if reply is not None:
                return reply
        async with self._adjudicator.lane:
            for _ in range(TRIES):
                reply = await self._in_block(run, plan, texts, BEGIN_PATIENTLY)
                if reply is not None:
                    return reply
        reply = Group()
        reply.error = frames.fields(disguise.error(CONFLICT)[frames.HEADER_SIZE :])
        reply.collected = [disguise.error(CONFLICT)]
        return reply

    async def _in_block(self, run: Run, plan: Plan, texts: Texts, beginning: bytes) -> Group | None:
        """Run the statement in a transaction that begins so; None: somebody was in its way."""
        backend = self._session.backend
        await backend.ask(beginning)
        run.again()
        reply = await self._execute(run, plan, texts)
        if reply.error is not None:
            await backend.ask(ROLLBACK)
            self.keys.clear()
            return None if reply.error.get("C") in IN_THE_WAY else reply
        with self._adjudicator.books.commit(self.keys) as outcome:
            ended = await backend.ask(COMMIT)
            outcome.append(ended.error is None)
        self.keys.clear()
        return reply if ended.error is None else ended

    async def _execute(self, run: Run, plan: Plan, texts: Texts) -> Group:
        self.keys.clear()
        reply = await self._session.contender.execute(run, plan, texts.physical)
        self.keys.locked |= reply.locked
        self.keys.shared |= reply.shared
        return reply

    async def change_catalog(self, run: Run, plan: Plan) -> Group:
        """Run DDL: whoever has the table open gives it up."""
        backend = self._session.backend
        contender = self._session.contender
        moves = contender.moves
        work = contender.work
        if b"function" in plan.sent.lower():
            self._session.cluster.functions = True
        reply = Group()
        for _ in range(TRIES):
            # It may not wait for long, and its lock timeout is its transaction's.
            if work is None:
                await backend.ask(BEGIN_PATIENTLY)
            elif work.state is State.PHYSICAL and self._session.status != FAILED:
                await backend.ask(PATIENCE + SYNC_MESSAGE)
            else:
                await moves.back(work)
            reply = await moves.waiting(backend.begin(run.messages(plan)))
            if work is None:
                ended = await backend.ask(COMMIT if reply.error is None else ROLLBACK)
                reply = reply if ended.error is None else ended
            if reply.error is None:
                if work is not None:
                    work.note(run, plan, None, reply.tag)
                return reply
            if reply.error.get("C") not in IN_THE_WAY:
                return reply
            run.again()
        return reply
