"""Runs what can't simply be passed on, piece by piece: query strings, pipelines, COPY, and what hooks have stopped.

A driver works for one message, or for one group of the extended protocol; meanwhile the frontend holds what else comes.
PostgreSQL is asked for one statement at a time. What a client sends without a transaction is run in one of the engine's
own where it is more than one statement, or where somebody may still refuse what has been done.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.commands import BEGINNING
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import ages, disguise, frames
from pytest_dsql.local.gateway.backend import BEFORE_ROWS, OWN_ANSWERS, BackendLost
from pytest_dsql.local.gateway.copying import Copying, SessionEnded
from pytest_dsql.local.gateway.estimates import with_estimate
from pytest_dsql.local.gateway.explained import without_triggers
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group
from pytest_dsql.local.gateway.hooks import Action, Disconnect, Fail, FailAfter, Silence, Stall
from pytest_dsql.local.gateway.run import Run, own_statement
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

_LOG: Final = logging.getLogger(__name__)

#: DSQL's rules could be evaded through the function-call protocol. The text is an inference from DSQL's others.
NO_CALLS: Final = Refusal("0A000", "function call protocol not supported")

#: The other word for BEGIN, which has a tag of its own.
_START: Final = re.compile(r"(?>(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*)START\b", re.IGNORECASE | re.DOTALL)

_COMMIT: Final = own_statement(b"COMMIT")
_ROLLBACK: Final = own_statement(b"ROLLBACK")


@final
class Driver:
    """The slow way of one session."""

    __slots__ = ("_own_block", "_session", "_task", "_work", "copying")

    def __init__(self, session: Session) -> None:
        self.copying = Copying(session)
        self._session = session
        self._task: asyncio.Task[None] | None = None
        self._work: Coroutine[None, None, None] | None = None  #: what the task does
        self._own_block = False  #: PostgreSQL's transaction is one that the client didn't begin

    @property
    def working(self) -> bool:
        """Whether the frontend has to hold what comes."""
        return self._task is not None

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin; the frontend goes on when it is done."""
        self._session.express.clear = False
        self._work = work
        self._task = asyncio.get_running_loop().create_task(self._do(work))

    def stop(self) -> None:
        """End at once: the session is over."""
        if self._task is not None:
            self._task.cancel()
            if self._work is not None and getcoroutinestate(self._work) == CORO_CREATED:
                self._work.close()  # the task ends before its first step, and nobody would ever await this

    async def _do(self, work: Coroutine[None, None, None]) -> None:
        session = self._session
        try:
            await work
        except (BackendLost, SessionEnded):
            return
        except Exception:
            _LOG.exception("a session's driver failed")
            session.abort()
            return
        finally:
            self._task = self._work = None
        session.go_on()

    async def query(self, run: Run) -> None:
        """Run a query string and answer it whole."""
        session = self._session
        answer = b""
        several = len(run.plans) > 1
        for number, plan in enumerate(run.plans):
            # An answer is given when it is sure: the last one's transaction may still fail to commit.
            session.send(answer)
            run.copied = None  # what an earlier COPY was given is not for the next one
            succeeded, answer = await self._statement(run, plan, block=several, first=number == 0)
            if not succeeded:
                break
        answer = await self._close_block(answer)
        session.send(answer + frames.ready(session.status))

    async def pipeline(self, run: Run | None) -> None:
        """Run a group of the extended protocol from an Execute on, or from the message that is held, up to its Sync."""
        session = self._session
        frontend = session.frontend
        await self.settle()
        answer = b""
        failed = session.skipping
        session.skipping = False
        pending = run
        while True:
            if pending is not None:
                if not failed:
                    single = frontend.next_is_sync() and not self._own_block
                    succeeded, answer = await self._execute(pending, block=not single)
                    failed = not succeeded
                pending = None
            found = frontend.take()
            if found is None:
                # The client may take its time; whoever waits for this transaction doesn't.
                session.send(answer)
                answer = b""
                await frontend.more()
                await session.contender.make_way()
                continue
            kind, payload = found
            if kind == frames.SYNC:
                break
            session.send(answer)
            answer = b""
            if kind == frames.TERMINATE:
                session.leaving = True
                session.backend.transport.write(frames.TERMINATE_MESSAGE)
                raise SessionEnded
            if failed:
                continue
            if kind == frames.FUNCTION_CALL:
                reply = await session.backend.ask(frames.query(disguise.failing_statement(NO_CALLS).encode()))
                session.send(self._relayed(reply) + frames.ready(session.status))
                return
            if kind == frames.QUERY:
                texts = frames.texts(payload, 1)
                plans = frontend.judging.decide(texts[0][0] if texts else b"").plans
                await self.query(Run.of_query(plans))
                return
            if kind == frames.EXECUTE:
                name = payload[:-4][:-1]
                pending = Run.of_portal(name, frontend.names.portals.get(name), frames.message(kind, payload))
            elif kind in (frames.PARSE, frames.BIND, frames.DESCRIBE, frames.CLOSE):
                message = frontend.names.note(kind, payload)
                if kind == frames.BIND and session.status == IDLE and not self._own_block:
                    # Behind a COMMIT: its portal is there up to the Sync, and not only for this message.
                    await session.contender.open()
                    self._own_block = True
                reply = await session.contender.prepare(message, frontend.names.plan_of(kind, payload))
                answer = self._relayed(reply)
                failed = reply.error is not None
                frontend.names.answered()
        answer = await self._close_block(answer)
        await self.copying.remember()
        session.send(answer + frames.ready(session.status))

    async def settle(self) -> None:
        """Have everything answered that was sent without a Sync."""
        session = self._session
        failed = session.status == FAILED
        settled = await session.backend.ask(SYNC_MESSAGE)
        loose, session.frontend.loose = session.frontend.loose, b""
        if settled.error is not None and loose and not failed and session.contender.contested(None, settled.error):
            settled = await session.contender.resend(loose)
        session.send(self._relayed(settled))
        session.frontend.names.answered()
        session.skipping = session.skipping or settled.error is not None

    async def contest(self, group: Group) -> None:
        """Run a statement another way that has met a rival on the fast way."""
        session = self._session
        run, plan = group.run, group.plan
        if run is None or plan is None:
            reply = await session.contender.resend(group.sent.removesuffix(SYNC_MESSAGE))
            session.send(self._relayed(reply) + frames.ready(session.status))
            session.frontend.names.answered()
            return
        if not run.by_query and not group.answering:
            # It was its Parse that failed.
            run.whole = group.sent
        reply = await session.contender.contest(run, plan, group.error)
        _, answer = await self._outcome(plan, reply, None, whole=bool(run.whole))
        if run.whole and group.plan is not None and reply.error is None:
            session.frontend.names.parsed()
        session.frontend.names.answered()
        session.send(answer + frames.ready(session.status))

    async def stopped(self, group: Group) -> None:
        """Go on with a statement of the fast way that was to be stopped; it may have ended before that."""
        session = self._session
        run, plan = group.run, group.plan
        assert group.asked is not None
        assert run is not None
        assert plan is not None
        await group.asked
        await session.contender.giving_way.stopped()
        session.skipping = False
        for message in group.collected:
            if message[0] == frames.PARSE_COMPLETE:
                session.frontend.names.parsed()
        if group.error is not None and session.contender.contested(plan, group.error):
            if not run.by_query:
                # What came before its rows has been done, and isn't done again.
                kept = [message for message in group.collected if message[0] in BEFORE_ROWS]
                session.send(b"".join(kept))
                group.answering = bool(kept)
            await self.contest(group)
            return
        if group.error is not None:
            session.contender.failed()
        elif plan.statement.kind != "select":
            session.contender.succeeded(run, plan, group.tag or b"")
        _, answer = await self._outcome(plan, group, None, whole=True)
        session.frontend.names.answered()
        session.send(answer + frames.ready(session.status))

    async def refuse(self, refusal: Refusal) -> None:
        """Answer a refusal in place of what has been done on the fast way."""
        answer = await self._abort(refusal)
        self._session.settle(committed=False)
        self._session.send(answer + frames.ready(self._session.status))

    async def _execute(self, run: Run, *, block: bool) -> tuple[bool, bytes]:
        if run.plans:
            return await self._statement(run, run.plans[0], block=block, first=True)
        reply = await self._session.backend.ask(run.execute + SYNC_MESSAGE)
        return reply.error is None, self._relayed(reply)

    async def _statement(self, run: Run, plan: Plan, *, block: bool, first: bool) -> tuple[bool, bytes]:
        """Run one statement; tell whether it succeeded, and give what is left to answer."""
        session = self._session
        transactions = session.transactions
        kind = plan.statement.kind
        if session.status == FAILED or plan.refused:
            reply = await session.backend.ask(run.messages(plan))
            if not self._own_block:
                session.settle(committed=False)
            return reply.error is None, self._answer(reply, plan)
        action = await self._hooks(run, plan, first=first)
        if isinstance(action, Fail):
            return False, await self._fail(action.refusal, kind)
        if kind in ("begin", "commit", "rollback"):
            return await self._boundary(run, plan, action)
        sure = transactions.wants_completions and kind in ("dml", "ddl")
        if session.status == IDLE and (block or sure):
            await session.contender.open()
            self._own_block = True
        reply = await session.contender.run(run, plan)
        if plan.explained is not None and reply.error is None:
            reply.collected = await with_estimate(session.cluster, plan.statement.sql, plan.explained, reply.collected)
        if plan.traced:
            reply.collected = without_triggers(reply.collected)
        return await self._outcome(plan, reply, action)

    async def _outcome(
        self, plan: Plan, reply: Group, action: Action | None, *, whole: bool = False
    ) -> tuple[bool, bytes]:
        """Settle what a statement has done; tell whether it stands, and give what is left to answer."""
        session = self._session
        transactions = session.transactions
        if reply.error is not None:
            ages.told(session, reply)
            self._settle(committed=False)
            return False, self._answer(reply, plan, whole=whole)
        refusal = transactions.completed(plan.statement, reply.tag or b"") or ages.outlived(session, plan)
        if refusal is not None:
            return False, await self._abort(refusal)
        if action is not None:
            return await self._afterwards(action)
        self._settle(committed=True)
        return True, self._answer(reply, plan, whole=whole)

    async def _hooks(self, run: Run, plan: Plan, *, first: bool) -> Action | None:
        session = self._session
        if first and run.asked:
            action = run.action
        else:
            action = session.transactions.before(plan.statement)
            session.hold(plan.statement)
        if isinstance(action, Stall):
            await asyncio.sleep(action.seconds)
            return None
        if action == Disconnect():
            session.abort()
            raise SessionEnded
        if action == Silence():
            session.fall_silent()
            raise SessionEnded
        return action

    async def _boundary(self, run: Run, plan: Plan, action: Action | None) -> tuple[bool, bytes]:
        """Run BEGIN, COMMIT or ROLLBACK."""
        session = self._session
        current = session.transactions.current
        if plan.statement.kind == "begin" and self._own_block:
            # As in PostgreSQL, what came before it belongs to the transaction.
            self._own_block = False
            if current is not None:
                current.explicit = True
                if current.read_only:
                    await session.backend.ask(own_statement(b"SET TRANSACTION READ ONLY"))
            if not run.by_query:
                # Its warning is not for the client, but its portal has to be done.
                again = await session.backend.ask(run.messages(plan))
                if again.error is not None:
                    return False, self._answer(again, plan)
            tag = b"START TRANSACTION\0" if _START.match(plan.statement.sql) else b"BEGIN\0"
            return True, frames.message(frames.COMMAND_COMPLETE, tag)
        kind = plan.statement.kind
        if kind == "begin" and session.status == IDLE:
            session.contender.begin()
        self._own_block = False
        if kind == "commit":
            reply, refusal = await session.contender.commit(run.messages(plan))
            if refusal is not None or reply is None:
                session.settle(committed=False)
                return False, b"" if refusal is None else disguise.error(refusal)
        else:
            reply = await session.backend.ask(run.messages(plan))
        if kind == "begin" and reply.error is None and session.contender.work is not None:
            await session.backend.ask(BEGINNING + SYNC_MESSAGE)
        committed = reply.error is None and reply.tag == b"COMMIT"
        session.settle(committed=committed)
        if action is not None and reply.error is None:
            if isinstance(action, FailAfter):
                return False, disguise.error(action.refusal)
            raise self._ended(action)
        return reply.error is None, self._answer(reply, plan)

    async def _afterwards(self, action: Action) -> tuple[bool, bytes]:
        """Let a statement take effect whose answer the client doesn't get."""
        session = self._session
        if self._own_block:
            await self._close_block(b"")
        if isinstance(action, FailAfter):
            answer = await self._abort(action.refusal) if session.status != IDLE else disguise.error(action.refusal)
            session.settle(committed=session.status == IDLE)
            return False, answer
        raise self._ended(action)

    def _ended(self, action: Action) -> SessionEnded:
        """End the session after a statement that took effect, with or without the client noticing."""
        if isinstance(action, Silence):
            self._session.fall_silent()
        else:
            self._session.abort()
        return SessionEnded()

    async def _fail(self, refusal: Refusal, kind: str) -> bytes:
        if kind == "commit":
            # The session is idle after a COMMIT that failed.
            await self._session.backend.ask(_ROLLBACK)
            self._own_block = False
            self._session.settle(committed=False)
            return disguise.error(refusal)
        return await self._abort(refusal)

    async def _abort(self, refusal: Refusal) -> bytes:
        """Have the transaction fail with a refusal."""
        session = self._session
        if session.status == IDLE:
            session.settle(committed=False)
            return disguise.error(refusal)
        reply = await session.backend.ask(own_statement(disguise.failing_statement(refusal).encode()))
        return b"".join(disguise.told(message) for message in reply.collected if message[0] not in OWN_ANSWERS)

    def _settle(self, *, committed: bool) -> None:
        if not self._own_block:
            self._session.settle(committed=committed)

    async def _close_block(self, answer: bytes) -> bytes:
        """End the engine's own transaction; give what is left to answer."""
        if not self._own_block:
            return answer
        session = self._session
        self._own_block = False
        if session.status == FAILED:
            reply: Group | None = await session.backend.ask(_ROLLBACK)
        else:
            reply, refusal = await session.contender.commit(_COMMIT)
            if refusal is not None:
                answer = disguise.error(refusal)
        if reply is None:
            session.settle(committed=False)
            return answer
        if reply.error is not None:
            answer = self._relayed(reply)
        session.settle(committed=reply.error is None and reply.tag == b"COMMIT")
        return answer

    def _answer(self, reply: Group, plan: Plan, *, whole: bool = False) -> bytes:
        """What the client is told of a statement's answer."""
        kept = [message for message in reply.collected if whole or message[0] not in OWN_ANSWERS]
        if plan.tag is not None and reply.tag and kept and kept[-1][0] == frames.COMMAND_COMPLETE:
            kept[-1] = frames.message(frames.COMMAND_COMPLETE, plan.tag + b"\0")
        return b"".join(disguise.told(message, plan.offset) for message in kept)

    def _relayed(self, reply: Group) -> bytes:
        for message in reply.collected:
            if message[0] == frames.PARSE_COMPLETE:
                self._session.frontend.names.parsed()
        return b"".join(disguise.told(message) for message in reply.collected)
