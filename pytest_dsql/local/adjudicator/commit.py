"""The COMMIT of one session's transactions: who is first wins, and who isn't is told so."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.commands import CONFLICT, ROLLBACK
from pytest_dsql.local.adjudicator.moves import Moves
from pytest_dsql.local.adjudicator.work import State, Work
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway.group import FAILED, Group

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session


@final
class Commit:
    """Commits one session's transactions."""

    __slots__ = ("_adjudicator", "_moves", "_session")

    def __init__(self, session: Session, adjudicator: Adjudicator, moves: Moves) -> None:
        self._session = session
        self._adjudicator = adjudicator
        self._moves = moves

    async def run(self, work: Work | None, messages: bytes) -> tuple[Group | None, Refusal | None]:
        """Commit; give PostgreSQL's answer to `messages`, the client's COMMIT, or the refusal."""
        session = self._session
        if work is None or session.status == FAILED:
            return await session.backend.ask(messages), None
        if work.state is State.PARKED and not work.log:
            work.state = State.PHYSICAL
        if work.doubtful and work.state is State.PHYSICAL and not work.doomed:
            await self._moves.enter(work)
        if work.doomed or (work.log and self._adjudicator.books.conflict(work.keys, (), work.snapshot)):
            return await self._lose()
        if work.state is State.PHYSICAL:
            return await self._now(work, messages), None
        while (outcome := await self._from_log(work, messages)) is None:
            pass
        return outcome

    async def _from_log(self, work: Work, messages: bytes) -> tuple[Group | None, Refusal | None] | None:
        """Commit what is in the log only, or in the sandbox; None: keys were freed meanwhile, look at them first."""
        books = self._adjudicator.books
        # Who waits for the lane holds nothing that those before it could wait for.
        keys = await self._moves.leave(work)
        if work.doomed:
            return await self._lose()
        async with self._adjudicator.lane:
            work.committing = True
            if not await self._moves.replay(work):
                return await self._lose()
            if keys is None and books.frees_newer(work.inserted.values(), work.snapshot):
                work.committing = False
                await self._moves.park(work)
                return None
            if books.conflict(work.keys, keys or (), work.snapshot):
                return await self._lose()
            return await self._now(work, messages), None

    async def _now(self, work: Work, messages: bytes) -> Group:
        work.committing = True
        with self._adjudicator.books.commit(work.keys) as outcome:
            reply = await self._session.backend.ask(messages)
            outcome.append(reply.error is None and reply.tag == b"COMMIT")
        return reply

    async def _lose(self) -> tuple[None, Refusal]:
        await self._session.backend.ask(ROLLBACK)
        return None, CONFLICT
