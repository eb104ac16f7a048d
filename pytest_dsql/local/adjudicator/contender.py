"""One session before the adjudicator: its writes, in the tables, in the sandbox or in the log, and its COMMIT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.alone import Alone
from pytest_dsql.local.adjudicator.answers import stripped
from pytest_dsql.local.adjudicator.commands import (
    ANSWERS,
    BACK,
    BEGIN,
    BEGIN_PATIENTLY,
    COMMIT,
    CONFLICT,
    ENTER,
    LEAVE,
    ROLLBACK,
    SCHEMAS,
    SETS,
)
from pytest_dsql.local.adjudicator.moves import Moves
from pytest_dsql.local.adjudicator.sandbox.errors import seen_by_client
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import Text
from pytest_dsql.local.adjudicator.work import (
    CANCELLED,
    CONTESTED,
    IN_THE_WAY,
    LOST,
    Entry,
    State,
    Work,
    rows_of,
    with_last_column,
)
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import frames
from pytest_dsql.local.gateway.cancel import cancel
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group
from pytest_dsql.local.gateway.run import NO_PARAMETERS, Run, bound_of, own_execution
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session


@final
class Contender:
    """The adjudicator's view of one session. Its coroutines are run by the session's driver."""

    __slots__ = ("_adjudicator", "_session", "alone", "moves", "pid", "schemas", "work")

    def __init__(self, session: Session, adjudicator: Adjudicator, schemas: tuple[str, ...] | None) -> None:
        self.work: Work | None = None  #: of the transaction that is open
        self.schemas = schemas  #: the search path, None when it has to be asked for
        self._session = session
        self._adjudicator = adjudicator
        self.pid = 0  #: of its backend, while it has one
        self.alone = Alone(session, self._adjudicator)
        self.moves = Moves(session, self._adjudicator)

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
            return not plan.locks and not self._calls_functions(plan)
        if kind == "commit":
            return work is None or not (work.doomed or work.doubtful or work.keys)
        return kind != "ddl"

    def _calls_functions(self, plan: Plan) -> bool:
        catalog = self._adjudicator.current_catalog
        if catalog is None:
            # What functions there are is looked up for the first statement that could call one.
            return "(" in plan.statement.sql
        return any(name in plan.statement.sql for name in catalog.client_functions)

    def _freed(self, texts: Texts, work: Work) -> bool:
        current = self._session.transactions.current
        if current is not None and current.read_only:
            return False
        inserts = texts.inserts
        return bool(inserts) and self._adjudicator.books.frees_newer((table.name for table in inserts), work.snapshot)

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
        return state in CONTESTED or (state == CANCELLED and work.park_wanted)

    def told(self, payload: bytes) -> bool:
        """Take a notice that tells keys; tell whether it was one."""
        found = frames.fields(payload)
        if found.get("M") != _KEYS_NOTICE:
            return False
        told = json.loads(found["D"])
        keys = self.alone.keys if self.work is None else self.work.keys
        keys.freed.update(told.get("freed", ()))
        keys.shared.update(told.get("shared", ()))
        if "freed" in told:
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
            self.log(work, run, plan, texts, tag)
            work.doubtful = work.doubtful or (texts is None or self._freed(texts, work))
        elif kind in ("set", "ddl"):
            self.log(work, run, plan, None, tag)

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
        reply = await self.execute(run, plan, texts.sandbox)
        if reply.error is None:
            self._note(work, run, plan, texts, reply)
        return reply

    async def contest(self, run: Run, plan: Plan, error: dict[str, bytes] | None) -> Group:
        """Run a statement another way that has met a rival: in the sandbox, or before the rivals."""
        work = self.work
        if work is not None and self.schemas is None and self._session.status == FAILED:
            await self._session.backend.ask(BACK + SYNC_MESSAGE)
        texts = await self._texts(plan)
        run.again()
        if work is None:
            return await self.alone.before_rivals(run, plan, texts)
        await self.moves.enter(work)
        reply = await self.execute(run, plan, texts.sandbox if work.state is State.SANDBOX else texts.physical)
        if reply.error is None:
            if error is not None and error.get("C") in LOST and _rows(texts, reply.tag) != 0:
                work.doomed = True
            self._note(work, run, plan, texts, reply)
        return reply

    async def resend(self, messages: bytes) -> Group:
        """Send messages again that have met a table which is being changed."""
        backend = self._session.backend
        work = self.work
        if work is not None:
            await self.moves.enter(work)
            return await self.moves.patiently(backend.ask(messages))
        await backend.ask(BEGIN_PATIENTLY)
        reply = await self.moves.patiently(backend.ask(messages))
        await backend.ask(COMMIT if reply.error is None else ROLLBACK)
        return reply

    async def prepare(self, kind: int, message: bytes, plan: Plan | None) -> Group:
        """Send a Parse, Bind, Describe or Close: in the sandbox, what has another text there means the tables."""
        backend = self._session.backend
        work = self.work
        if work is None or work.state is not State.SANDBOX or plan is None or self._session.status == FAILED:
            return await backend.ask(message + SYNC_MESSAGE)
        if (await self._texts(plan)).sandbox.sql is None:
            return await backend.ask(message + SYNC_MESSAGE)
        reply = await backend.ask(LEAVE + message + ENTER + SYNC_MESSAGE)
        wanted = ANSWERS.get(kind, b"") if reply.error is None else b"E"
        reply.collected = [one for one in reply.collected if one[:1] in wanted][: 2 if wanted == b"tTn" else 1]
        return reply

    async def commit(self, messages: bytes) -> tuple[Group | None, Refusal | None]:
        """Commit; give PostgreSQL's answer to `messages`, the client's COMMIT, or the refusal."""
        session = self._session
        work = self.work
        if work is None or session.status == FAILED:
            return await session.backend.ask(messages), None
        if work.state is State.PARKED and not work.log:
            work.state = State.PHYSICAL
        if work.doubtful and work.state is State.PHYSICAL and not work.doomed:
            await self.moves.enter(work)
        if work.doomed or (work.log and self._adjudicator.books.conflict(work.keys, (), work.snapshot)):
            return await self._lose()
        if work.state is State.PHYSICAL:
            return await self._commit_now(work, messages), None
        inserted = await self.moves.inserted(work)
        await self.moves.written(work)
        async with self._adjudicator.lane:
            work.committing = True
            if not await self.moves.replay(work):
                return await self._lose()
            if self._adjudicator.books.conflict(work.keys, inserted, work.snapshot):
                return await self._lose()
            return await self._commit_now(work, messages), None

    async def make_way(self) -> None:
        """Park if a rival has asked for it."""
        if self.work is not None and self.work.park_wanted:
            await self.park()

    async def park(self) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        work = self.work
        if work is None:
            return
        work.park_wanted = False
        if self._session.status in (IDLE, FAILED) or work.state is not State.PHYSICAL:
            return
        await self.moves.park(work)

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
        reads = plan.statement.kind == "select" and text.last == "client" and not run.whole and plan.explained is None
        reads = reads and not self._calls_functions(plan)  # what they write may still have to be undone
        if run.whole:
            reply = await self.moves.patiently(session.backend.ask(run.whole))
        elif plan.copies_in:
            sql = plan.sent if text.sql is None else text.sql.encode()
            reply = await session.driver.copy(run, sql)
        elif text.sql is None:
            reply = await self.moves.patiently(session.backend.ask(run.messages(plan), relays_rows=reads))
        elif run.by_query:
            reply = await self.moves.patiently(session.backend.ask(frames.query(text.sql.encode()), relays_rows=reads))
        else:
            assert run.portal is not None
            bound = with_last_column(bound_of(run.portal.bind), text)
            messages = own_execution(text.sql.encode(), run.portal.prepared.rest, bound) + SYNC_MESSAGE
            reply = await self.moves.patiently(session.backend.ask(messages, relays_rows=reads))
        stripped(reply, text)
        catalog = self._adjudicator.catalog
        if work is not None and work.state is State.SANDBOX and reply.error is not None and catalog is not None:
            said = frames.report(frames.ERROR_RESPONSE, seen_by_client(reply.error, catalog))
            reply.collected = [said if one[0] == frames.ERROR_RESPONSE else one for one in reply.collected]
        return reply

    def asked_to_park(self, *, hurry: bool) -> None:
        """Hear that a rival waits for this session."""
        work = self.work
        session = self._session
        if work is None or work.committing or work.state is not State.PHYSICAL:
            return
        if session.group is None and not session.driver.working:
            session.driver.start(self.park())
            return
        work.park_wanted = True
        group = session.group
        kind = None if group is None or group.plan is None else group.plan.statement.kind
        if group is None:
            # Its driver may be waiting for its client.
            session.frontend.wake()
        elif hurry and group.asked is None and kind in ("dml", "select"):
            cancel(session.cluster.socket_path, session.key)

    async def _lose(self) -> tuple[None, Refusal]:
        await self._session.backend.ask(ROLLBACK)
        return None, CONFLICT

    async def _commit_now(self, work: Work, messages: bytes) -> Group:
        work.committing = True
        with self._adjudicator.books.commit(work.keys) as outcome:
            reply = await self._session.backend.ask(messages)
            outcome.append(reply.error is None and reply.tag == b"COMMIT")
        return reply

    def _note(self, work: Work, run: Run, plan: Plan, texts: Texts, reply: Group) -> None:
        work.keys.locked |= reply.locked
        work.keys.shared |= reply.shared
        if texts.may_write:
            self.log(work, run, plan, texts, reply.tag, reply)

    def log(
        self,
        work: Work,
        run: Run,
        plan: Plan,
        texts: Texts | None,
        tag: bytes | None,
        reply: Group | None = None,
    ) -> None:
        """Note a statement that has succeeded, so that it can be done again."""
        rows = _rows(texts, tag)
        if rows == 0:
            # What has done nothing must not do something the next time.
            return
        portal = run.portal
        work.log.append(
            Entry(
                plan.sent,
                texts,
                NO_PARAMETERS if portal is None else portal.prepared.rest,
                bound_of(None if portal is None else portal.bind),
                plan.statement.kind == "ddl",
                None if reply is None or texts is None or texts.capture is None else tuple(reply.captured),
                run.copied,
                _NO_KEYS if reply is None else frozenset(reply.locked),
                _NO_KEYS if reply is None else frozenset(reply.shared),
                rows,
            )
        )
        if texts is not None:
            for table in texts.inserts:
                work.inserted[table.oid] = table.name


_NO_KEYS: Final[frozenset[str]] = frozenset()

#: Statements whose tags tell how many rows they wrote or locked; a SELECT may write in a WITH query as well.
_COUNTED: Final = frozenset({"InsertStmt", "UpdateStmt", "DeleteStmt", "CopyStmt"})

_KEYS_NOTICE: Final = b"pytest_dsql_engine keys"


def _rows(texts: Texts | None, tag: bytes | None) -> int | None:
    """How many rows a statement wrote, where its tag tells."""
    return rows_of(tag) if texts is not None and texts.form.command in _COUNTED else None
