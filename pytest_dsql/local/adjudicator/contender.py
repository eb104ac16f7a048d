"""One session before the adjudicator: its writes, in the tables, in the sandbox or in the log, and its COMMIT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.alone import Alone
from pytest_dsql.local.adjudicator.answers import stripped
from pytest_dsql.local.adjudicator.commands import (
    BACK,
    BEGIN,
    BEGIN_PATIENTLY,
    COMMIT,
    ENTER,
    IMPATIENCE,
    LEAVE,
    OWN_MESSAGES,
    ROLLBACK,
    SCHEMAS,
    SETS,
)
from pytest_dsql.local.adjudicator.commit import Commit
from pytest_dsql.local.adjudicator.giving_way import GivingWay
from pytest_dsql.local.adjudicator.moves import TRIES, Moves
from pytest_dsql.local.adjudicator.sandbox.errors import seen_by_client
from pytest_dsql.local.adjudicator.sandbox.names import KEYS_NOTICE
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import Text
from pytest_dsql.local.adjudicator.work import (
    CANCELLED,
    CONTESTED,
    IN_THE_WAY,
    LOST,
    State,
    Work,
    of_no_row,
    rows_written,
    with_last_column,
)
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.backend import OWN_ANSWERS
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, Group
from pytest_dsql.local.gateway.run import Run, before_execute, bound_of, own_execution
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session
#: In a notice that tells keys.
_KEYS: Final = KEYS_NOTICE.encode()


@final
class Contender:
    """The adjudicator's view of one session. Its coroutines are run by the session's driver."""

    __slots__ = ("_adjudicator", "_commit", "_session", "alone", "giving_way", "moves", "pid", "schemas", "work")

    def __init__(self, session: Session, adjudicator: Adjudicator, schemas: tuple[str, ...] | None) -> None:
        self.work: Work | None = None  #: of the transaction that is open
        self.schemas = schemas  #: the search path, None when it has to be asked for
        self._session = session
        self._adjudicator = adjudicator
        self.pid = 0  #: of its backend, while it has one
        self.alone = Alone(session, self._adjudicator)
        self.moves = Moves(session, self._adjudicator)
        self.giving_way = GivingWay(session, self._adjudicator, self.moves)
        self._commit = Commit(session, self._adjudicator, self.moves)

    # What the fast way asks and tells.

    def begin(self) -> Work:
        """Note that a transaction begins: its snapshot is taken with what is sent next."""
        self.end()
        self.work = Work(self._adjudicator.books.snapshot())
        return self.work

    def end(self) -> None:
        """Note that no transaction is open any more."""
        work = self.work
        if work is not None:
            self.work = None
            self._adjudicator.books.release(work.snapshot)

    def left(self) -> None:
        """Note that the session is over."""
        self.end()
        self.moved(b"")

    def moved(self, key: bytes) -> None:
        """Note in which backend the session is, by its cancellation key; empty: in none."""
        contenders = self._adjudicator.contenders
        if contenders.get(self.pid) is self:
            del contenders[self.pid]
        self.pid = int.from_bytes(key[:4], "big")
        if key:
            contenders[self.pid] = self

    @property
    def sandboxed(self) -> bool:
        """Whether names mean the sandbox's helpers."""
        return self.work is not None and self.work.state is State.SANDBOX

    def plain(self, plan: Plan) -> bool:
        """Whether a statement may go to PostgreSQL as it is, on the fast way."""
        work = self.work
        kind = plan.statement.kind
        if work is not None and work.state is not State.PHYSICAL:
            return kind == "rollback"
        if kind == "dml":
            texts = self._adjudicator.known(plan, self.schemas)
            if texts is None or texts.physical.sql is not None or texts.capture is not None:
                return False
            return work is None or not self._freed(texts, work)
        if kind == "select":
            return self._adjudicator.leaves_rows_alone(plan)
        if kind == "commit":
            return work is None or not (work.doomed or work.doubtful or work.keys)
        return kind != "ddl"

    def _freed(self, texts: Texts, work: Work) -> bool:
        current = self._session.transactions.current
        if current is not None and current.read_only:
            return False
        return bool(texts.watched) and self._adjudicator.books.frees_newer(texts.watched, work.snapshot)

    def contested(self, plan: Plan | None, error: dict[str, bytes]) -> bool:
        """Whether an error of the fast way is a rival's doing, perhaps, so that the statement is run another way."""
        state = error.get("C", b"")
        if plan is None:
            # A Parse that meets a table which is being changed.
            return state == b"55P03"
        if plan.refused or plan.statement.kind not in ("dml", "select"):
            return False
        work = self.work
        if work is None:
            return state in IN_THE_WAY
        if state == b"23505":
            texts = self._adjudicator.known(plan, self.schemas)
            return texts is None or not texts.in_order
        return state in CONTESTED or (state == CANCELLED and work.park_wanted)

    def told(self, payload: bytes) -> bool:
        """Take a notice that tells keys; tell whether it was one."""
        found = frames.fields(payload)
        if found.get("M") != _KEYS:
            return False
        told = json.loads(found["D"])
        keys = self.alone.keys if self.work is None else self.work.keys
        keys.freed.update(told.get("freed", ()))
        keys.shared.update(told.get("shared", ()))
        keys.locked.update(told.get("locked", ()))
        if "freed" in told or "left" in told:
            keys.tables.add(told["table"])
        return True

    def succeeded(self, run: Run, plan: Plan, tag: bytes) -> None:
        """Note a statement that has succeeded on the fast way."""
        kind = plan.statement.kind
        if kind == "set":
            self.schemas = None
        work = self.work
        if work is None:
            self.alone.succeeded()
        elif kind == "dml":
            texts = self._adjudicator.known(plan, self.schemas)
            work.note(run, plan, texts, tag)
            work.doubtful = work.doubtful or (texts is None or self._freed(texts, work))
        elif kind in ("set", "ddl"):
            work.note(run, plan, None, tag)

    def failed(self) -> None:
        """Note that a statement has failed: it has done nothing."""
        self.alone.failed()

    # What the driver runs.

    async def open(self) -> None:
        """Begin a transaction that the client hasn't asked for."""
        self.begin()
        await self._session.backend.ask(BEGIN)

    async def run(self, run: Run, plan: Plan) -> Group:
        """Run one statement; the answer is the client's, and nothing of it has been sent."""
        reply = await self._run(run, plan)
        work = self.work
        statement = plan.statement
        sets = statement.kind == "set" or SETS.search(statement.sql)
        if sets and work is not None and work.state is State.SANDBOX and reply.error is None:
            # The path may be another one now, and has to lead through the sandbox's tables again.
            await self._session.backend.ask(ENTER + SYNC_MESSAGE)
        return reply

    async def _run(self, run: Run, plan: Plan) -> Group:
        session = self._session
        kind = plan.statement.kind
        work = self.work
        if session.status == FAILED:
            return await session.backend.ask(run.messages(plan))
        if kind == "ddl":
            return await self.alone.change_catalog(run, plan)
        if kind not in ("dml", "select"):
            reply = await session.backend.ask(run.messages(plan), relays_rows=True)
            if reply.error is None:
                self.succeeded(run, plan, reply.tag or b"")
            return reply
        texts = await self._texts(plan)
        if work is None:
            return await self.alone.run(run, plan, texts)
        await self.make_way()
        if work.state is State.PARKED:
            await self.moves.enter(work)
        if work.state is State.PHYSICAL:
            if not self._freed(texts, work):
                reply = await self.execute(run, plan, texts.physical)
                if reply.error is None and not self._freed(texts, work):
                    self._note(work, run, plan, texts, reply)
                    return reply
                if reply.error is not None and not self.contested(plan, reply.error):
                    return reply
                return await self.contest(run, plan, reply.error)
            await self.moves.enter(work)
        if texts.explains and work.state is State.SANDBOX:
            return await self._in_tables(run, plan)
        reply = await self.execute(run, plan, texts.sandbox)
        if reply.error is None:
            self._note(work, run, plan, texts, reply)
        return reply

    async def _in_tables(self, run: Run, plan: Plan) -> Group:
        """Run a statement from the sandbox as if it were none."""
        backend = self._session.backend
        await backend.ask(LEAVE + SYNC_MESSAGE)
        reply = await self.moves.waiting(backend.begin(run.messages(plan)))
        if reply.error is None:
            await backend.ask(ENTER + SYNC_MESSAGE)
        return reply

    async def contest(self, run: Run, plan: Plan, error: dict[str, bytes] | None) -> Group:
        """Run a statement another way that has met a rival: in the sandbox, or before the rivals."""
        work = self.work
        if work is not None and self.schemas is None and self._session.status == FAILED:
            await self._session.backend.ask(BACK + SYNC_MESSAGE)
        texts = await self._texts(plan)
        run.again()
        if work is None:
            return await self.alone.another_way(run, plan, texts, error)
        if of_no_row(error) and work.state is State.PHYSICAL and not work.park_wanted and await self.moves.retry(work):
            reply = await self.execute(run, plan, texts.physical)
            if reply.error is None and not self._freed(texts, work):
                await self._session.backend.ask(IMPATIENCE)
                self._note(work, run, plan, texts, reply)
                return reply
            if reply.error is not None and not self.contested(plan, reply.error):
                return reply
            error = reply.error
            run.again()
        await self.moves.enter(work)
        reply = await self.execute(run, plan, texts.sandbox if work.state is State.SANDBOX else texts.physical)
        if reply.error is None:
            if error is not None and error.get("C") in LOST and rows_written(texts, reply.tag) != 0:
                work.doomed = True
            self._note(work, run, plan, texts, reply)
        return reply

    async def resend(self, messages: bytes) -> Group:
        """Send messages without a Sync again that have met a table which is being changed."""
        backend = self._session.backend
        if self.work is not None:
            await self.moves.enter(self.work)
            return await self._meaning_tables(messages)
        for _ in range(TRIES):
            await backend.ask(BEGIN_PATIENTLY)
            reply = await self.moves.patiently(backend.begin(messages + SYNC_MESSAGE))
            await backend.ask(COMMIT if reply.error is None else ROLLBACK)
            if reply.error is None or reply.error.get("C") not in IN_THE_WAY:
                break
        return reply

    async def prepare(self, message: bytes, plan: Plan | None) -> Group:
        """Send a Parse, Bind, Describe or Close: in the sandbox, what has another text there means the tables."""
        backend = self._session.backend
        if self._session.status == FAILED:
            return await backend.ask(message + SYNC_MESSAGE)
        if self.sandboxed and plan is not None and (await self._texts(plan)).sandbox.sql is not None:
            return await self._meaning_tables(message)
        reply = await backend.ask(message + SYNC_MESSAGE)
        if reply.error is not None and self.contested(None, reply.error):
            return await self.resend(message)
        return reply

    async def _meaning_tables(self, messages: bytes) -> Group:
        """Send messages of the extended protocol from the sandbox as if it were none."""
        if not self.sandboxed:
            return await self.moves.patiently(self._session.backend.begin(messages + SYNC_MESSAGE))
        reply = await self.moves.patiently(self._session.backend.begin(LEAVE + messages + ENTER + SYNC_MESSAGE))
        kinds = [one[0] for one in reply.collected]
        behind_leaving = kinds.index(frames.COMMAND_COMPLETE) + 1 if frames.COMMAND_COMPLETE in kinds else 0
        before_entering = len(kinds) if reply.error is not None else len(kinds) - OWN_MESSAGES
        reply.collected = reply.collected[behind_leaving:before_entering]
        return reply

    async def commit(self, messages: bytes) -> tuple[Group | None, Refusal | None]:
        """Commit; give PostgreSQL's answer to `messages`, the client's COMMIT, or the refusal."""
        return await self._commit.run(self.work, messages)

    async def make_way(self) -> None:
        """Park if a rival has asked for it."""
        await self.giving_way.make_way()

    async def park(self) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        await self.giving_way.park()

    # How it is done.

    async def _texts(self, plan: Plan) -> Texts:
        if self.schemas is None:
            reply = await self._session.backend.ask(SCHEMAS)
            ((value,),) = reply.rows()
            self.schemas = tuple(json.loads(value or b"[]"))
        return await self._adjudicator.texts(plan, self.schemas)

    async def execute(self, run: Run, plan: Plan, text: Text) -> Group:
        """Run a text in a statement's place, and make the answer the client's."""
        session = self._session
        work = self.work
        established: list[bytes] = []
        if run.whole and text.sql is not None:
            reply = await self._meaning_tables(before_execute(run.whole))
            if reply.error is not None:
                return reply
            established = reply.collected
        reads = plan.statement.kind == "select" and text.last == "client" and not run.whole and plan.explained is None
        reads = reads and not self._adjudicator.calls_functions(
            plan.statement.sql
        )  # what they write may still have to be undone
        if plan.copies_in and not run.whole:
            sql = plan.sent if text.sql is None else text.sql.encode()
            reply = await session.driver.copying.run(run, sql)
        else:
            reply = session.backend.begin(self._messages(run, plan, text), relays_rows=reads)
            in_tables = work is None or work.state is State.PHYSICAL
            self.giving_way.stoppable = reply if in_tables and not reads else None
            await self.moves.patiently(reply)
            self.giving_way.stoppable = None
            await self.giving_way.stopped()
        stripped(reply, text)
        catalog = self._adjudicator.catalog
        if work is not None and work.state is State.SANDBOX and reply.error is not None and catalog is not None:
            said = frames.report(frames.ERROR_RESPONSE, seen_by_client(reply.error, catalog))
            reply.collected = [said if one[0] == frames.ERROR_RESPONSE else one for one in reply.collected]
        if established:
            reply.collected = established + [one for one in reply.collected if one[0] not in OWN_ANSWERS]
        return reply

    @staticmethod
    def _messages(run: Run, plan: Plan, text: Text) -> bytes:
        """The messages that run a text in a statement's place."""
        if text.sql is None:
            return run.messages(plan)
        if run.by_query:
            return frames.query(text.sql.encode())
        assert run.portal is not None
        bound = with_last_column(bound_of(run.portal.bind), text)
        return own_execution(text.sql.encode(), run.portal.prepared.rest, bound) + SYNC_MESSAGE

    def _note(self, work: Work, run: Run, plan: Plan, texts: Texts, reply: Group) -> None:
        work.keys.locked |= reply.locked
        work.keys.shared |= reply.shared
        if texts.may_write:
            work.note(run, plan, texts, reply.tag, reply)
