"""Moves a transaction's writes: from the tables into the log, from the log into the sandbox, and back for good."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.batching import MANY, Parsed, Step, parts, steps, undescribed
from pytest_dsql.local.adjudicator.commands import AS_BEFORE, BACK, BY_INDEX, ENTER, PATIENCE, SOME_PATIENCE, WRITTEN
from pytest_dsql.local.adjudicator.literals import with_parameters
from pytest_dsql.local.adjudicator.sandbox.names import WRITTEN_KEYS
from pytest_dsql.local.adjudicator.work import Entry, State, Work, own_command, rows_of
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import Group
from pytest_dsql.local.gateway.run import Executions, described_types, description

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: Seconds before somebody who waits asks for whom, between two such questions, and before what a rival does is stopped.
_PATIENT_S: Final = 0.0005
_AGAIN_S: Final = 0.003
_CANCEL_S: Final = 0.02
#: How often is tried what has to wait for locks, each time for as long as `commands.PATIENCE` says.
TRIES: Final = 5


@final
class Moves:
    """The moves of one session's transactions."""

    __slots__ = ("_adjudicator", "_session")

    def __init__(self, session: Session, adjudicator: Adjudicator) -> None:
        self._session = session
        self._adjudicator = adjudicator

    async def patiently(self, asked: Group) -> Group:
        """Wait for an answer; meanwhile park those whose locks it waits for."""
        work = self._session.contender.work
        if work is None or work.state is not State.PHYSICAL or work.committing:
            return await self.waiting(asked)
        # It gives up by itself, soon.
        assert asked.asked is not None
        await asked.asked
        return asked

    async def waiting(self, asked: Group) -> Group:
        """Do the same for what doesn't give up soon."""
        answer = asked.asked
        assert answer is not None
        started = asyncio.get_running_loop().time()
        pause = _PATIENT_S
        while not (await asyncio.wait((answer,), timeout=pause))[0]:
            hurry = asyncio.get_running_loop().time() - started > _CANCEL_S
            for rival in await self._adjudicator.blockers(self._session.contender.pid):
                if not answer.done():
                    rival.giving_way.asked(hurry=hurry)
            pause = _AGAIN_S
        await answer
        return asked

    async def enter(self, work: Work) -> None:
        """Go into the sandbox, with everything that the log says."""
        if any(entry.catalog for entry in work.log):
            # DDL: it is done again in the catalog, whoever reads there meanwhile.
            await self.back(work)
            return
        work.park_wanted = False
        work.keys.clear()
        await self._adjudicator.prepare(sum(entry.rows or 0 for entry in work.log))
        work.state = State.SANDBOX
        if not await self._at_once(work) and not await self._again(work, BACK + ENTER, sandbox=True):
            # It can't commit, and goes on with its snapshot alone.
            work.doomed = True
            await self._session.backend.ask(BACK + ENTER + SYNC_MESSAGE)

    async def back(self, work: Work) -> None:
        """Go back into the tables, with everything that the log says, and wait there for whoever is in the way."""
        work.state = State.PARKED
        for _ in range(TRIES):
            work.park_wanted = False
            work.keys.clear()
            if await self._again(work, BACK + PATIENCE, sandbox=False):
                break
        work.state = State.PHYSICAL

    async def retry(self, work: Work) -> bool:
        """Do everything in the log again in the tables, with some patience; tell whether it could be done."""
        work.keys.clear()
        return await self._again(work, BACK + SOME_PATIENCE, sandbox=False)

    async def replay(self, work: Work) -> bool:
        """Write for real what the log says; tell whether it could be."""
        work.keys.clear()
        if not await self._again(work, BACK + PATIENCE, sandbox=False):
            return False
        if not any(entry.cascades for entry in work.log):
            return True
        # A cascade looks for its rows where the rivals have left them: what it doesn't find any more was theirs.
        return number(await self._session.backend.ask(WRITTEN + SYNC_MESSAGE)) == work.written

    async def _at_once(self, work: Work) -> bool:
        """Do the log again in the sandbox in fewer statements than it has; tell whether it has done the same."""
        described: dict[Parsed, tuple[int, ...]] = {}
        catalog, schemas = self._adjudicator.current_catalog, self._session.contender.schemas
        log: Sequence[Entry] = work.log
        if catalog is not None and schemas is not None and len(log) >= MANY:
            log = with_parameters(log, catalog, schemas)
        if missing := undescribed(log):
            asked = BACK + ENTER + b"".join(description(sql, types) for (_, types), sql in missing.items())
            reply = await self._session.backend.ask(asked + SYNC_MESSAGE)
            if reply.error is not None:
                return False
            described = dict(zip(missing, described_types(reply.collected), strict=True))
        made = steps(work.log, described, log)
        if not any(step.at_once for step in made):
            return False
        return await self._again(work, BACK + ENTER, sandbox=True, made=made)

    async def _again(self, work: Work, first: bytes, *, sandbox: bool, made: Sequence[Step] = ()) -> bool:
        """Do everything in the log again behind `first`; tell whether each statement did what it did before."""
        backend = self._session.backend
        messages = Executions()
        messages.add(first)
        expected: list[int | None] = [None, None]  # what comes first are two commands of ours
        for entry in parts(made) if made else work.log:
            if isinstance(entry, Step):
                for one in entry.entries:
                    work.keys.locked |= one.locked
                    work.keys.shared |= one.shared
                if entry.by_index:
                    messages.add(BY_INDEX)
                messages.execute(*entry.execution())
                if entry.by_index:
                    messages.add(AS_BEFORE)
                expected += (None, entry.rows, None) if entry.by_index else (entry.rows,)
                continue
            work.keys.locked |= entry.locked
            work.keys.shared |= entry.shared
            sql, types, bound = entry.execution(sandbox=sandbox)
            if entry.copied is None:
                messages.execute(sql, types, bound)
                expected.append(entry.rows)
                if sandbox and entry.texts is None:
                    messages.add(ENTER)  # it may have set the path
                    expected.append(None)
                continue
            reply = await self.patiently(backend.begin(messages.take()))
            if not _alike(reply, expected):
                return False
            expected = []
            reply = await backend.ask(frames.query(sql), until_copy=True)
            if reply.error is None:
                data = frames.message(frames.COPY_DATA, entry.copied) + frames.message(frames.COPY_DONE, b"")
                reply = await self.patiently(backend.begin(data))
            if not _alike(reply, [entry.rows]):
                return False
        return _alike(await self.patiently(backend.begin(messages.take())), expected)

    async def leave(self, work: Work) -> set[str] | None:
        """Leave the sandbox, giving everything up; give the keys that the transaction has written.

        None: they aren't known, because nobody had freed any.
        """
        if work.inserted and work.state is State.PARKED:
            if not self._adjudicator.books.frees_newer(work.inserted.values(), work.snapshot):
                return None
            await self.enter(work)
        if work.state is State.PARKED:
            return set()
        messages = WRITTEN + BACK + SYNC_MESSAGE
        if work.inserted:
            oids = ",".join(str(oid) for oid in work.inserted)
            messages = own_command(WRITTEN_KEYS.format(oids=oids)) + messages
        reply = await self._session.backend.ask(messages)
        *keys, (written,) = reply.rows()
        work.written = int(written or b"0")
        work.state = State.PARKED
        return {row[0].decode() for row in keys if row[0] is not None}

    async def park(self, work: Work) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        session = self._session
        if session.frontend.unsynced:
            await session.driver.settle()
        work.written = number(await session.backend.ask(WRITTEN + BACK + SYNC_MESSAGE))
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
