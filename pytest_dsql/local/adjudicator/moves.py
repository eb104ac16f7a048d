"""Moves a transaction's writes: from the tables into the log, from the log into the sandbox, and back for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.commands import BACK, ENTER, PATIENCE, WRITTEN
from pytest_dsql.local.adjudicator.sandbox.names import INSERTED_KEYS
from pytest_dsql.local.adjudicator.work import State, Work, own_command, rows_of
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import Group

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: Seconds before somebody who waits asks for whom, between two such questions, and before what a rival does is stopped.
_PATIENT_S: Final = 0.0005
_AGAIN_S: Final = 0.003
_CANCEL_S: Final = 0.02


@final
class Moves:
    """The moves of one session's transactions."""

    __slots__ = ("_adjudicator", "_session")

    def __init__(self, session: Session, adjudicator: Adjudicator) -> None:
        self._session = session
        self._adjudicator = adjudicator

    async def patiently(self, asking: Awaitable[Group]) -> Group:
        """Wait for an answer; meanwhile park those whose locks it waits for."""
        work = self._session.contender.work
        waiting = asyncio.ensure_future(asking)
        if work is not None and work.state is State.PHYSICAL and not work.committing:
            # It gives up by itself, soon.
            return await waiting
        started = asyncio.get_running_loop().time()
        pause = _PATIENT_S
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=pause)
                if done:
                    return waiting.result()
                hurry = asyncio.get_running_loop().time() - started > _CANCEL_S
                for rival in await self._adjudicator.blockers(self._session.contender.pid):
                    if not waiting.done():
                        rival.asked_to_park(hurry=hurry)
                pause = _AGAIN_S
        finally:
            waiting.cancel()

    async def enter(self, work: Work) -> None:
        """Go into the sandbox, with everything that the log says."""
        work.park_wanted = False
        work.keys.clear()
        if any(entry.catalog for entry in work.log):
            # DDL: it is done again in the catalog, whoever reads there meanwhile.
            work.state = State.SANDBOX
            await self._again(work, BACK + PATIENCE, sandbox=False)
            work.state = State.PHYSICAL
            return
        await self._adjudicator.prepare()
        work.state = State.SANDBOX
        if not await self._again(work, BACK + ENTER, sandbox=True):
            # It can't commit, and goes on with its snapshot alone.
            work.doomed = True
            await self._session.backend.ask(BACK + ENTER + SYNC_MESSAGE)

    async def replay(self, work: Work) -> bool:
        """Write for real what the log says; tell whether it could be."""
        work.keys.clear()
        if not await self._again(work, BACK + PATIENCE, sandbox=False):
            return False
        if not any(entry.cascades for entry in work.log):
            return True
        # A cascade looks for its rows where the rivals have left them: what it doesn't find any more was theirs.
        return number(await self._session.backend.ask(WRITTEN + SYNC_MESSAGE)) == work.written

    async def _again(self, work: Work, messages: bytes, *, sandbox: bool) -> bool:
        """Do everything in the log again behind `messages`; tell whether each statement did what it did before."""
        backend = self._session.backend
        expected: list[int | None] = [None, None]  # what comes before it are two commands of ours
        for entry in work.log:
            work.keys.locked |= entry.locked
            work.keys.shared |= entry.shared
            if entry.copied is None:
                messages += entry.messages(sandbox=sandbox)
                expected.append(entry.rows)
                if sandbox and entry.texts is None:
                    messages += ENTER  # it may have set the path
                    expected.append(None)
                continue
            reply = await self.patiently(backend.ask(messages + SYNC_MESSAGE))
            if not _alike(reply, expected):
                return False
            messages, expected = b"", []
            text = None if entry.texts is None else entry.texts.sandbox.sql if sandbox else entry.texts.physical.sql
            reply = await backend.ask(frames.query(entry.sql if text is None else text.encode()), until_copy=True)
            if reply.error is None:
                data = frames.message(frames.COPY_DATA, entry.copied) + frames.message(frames.COPY_DONE, b"")
                reply = await self.patiently(backend.ask(data))
            if not _alike(reply, [entry.rows]):
                return False
        return _alike(await self.patiently(backend.ask(messages + SYNC_MESSAGE)), expected)

    async def inserted(self, work: Work) -> set[str]:
        """The keys that the transaction inserts, where somebody could have freed them."""
        if not work.inserted or not self._adjudicator.books.frees_newer(work.inserted.values(), work.snapshot):
            return set()
        if work.state is State.PARKED:
            await self.enter(work)
        oids = ",".join(str(oid) for oid in work.inserted)
        reply = await self._session.backend.ask(own_command(INSERTED_KEYS.format(oids=oids)) + SYNC_MESSAGE)
        return {row[0].decode() for row in reply.rows() if row[0] is not None}

    async def written(self, work: Work) -> None:
        """Have the transaction know how many rows it has written in the sandbox."""
        if work.state is State.SANDBOX:
            work.written = number(await self._session.backend.ask(WRITTEN + SYNC_MESSAGE))

    async def park(self, work: Work) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        session = self._session
        if session.frontend.unsynced:
            await session.driver.settle()
        reply = await session.backend.ask(WRITTEN + BACK + SYNC_MESSAGE)
        if reply.error is not None:
            # What was meant to stop the statement before it has come too late.
            reply = await session.backend.ask(BACK + SYNC_MESSAGE)
        if reply.error is None:
            work.written = number(reply)
            work.state = State.PARKED
            work.keys.clear()


def _alike(reply: Group, expected: Sequence[int | None]) -> bool:
    """Whether statements did what they did before: another number of rows is a rival's doing."""
    if reply.error is not None or len(reply.tags) != len(expected):
        return False
    return all(rows is None or rows == rows_of(tag) for rows, tag in zip(expected, reply.tags, strict=True))


def number(reply: Group) -> int:
    """The number in the first row of an answer."""
    rows = reply.rows()
    return int(rows[0][0] or b"0") if rows else 0
