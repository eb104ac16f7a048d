"""One session before the adjudicator: its writes, in the tables, in the sandbox or in the log, and its COMMIT."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

from pytest_dsql.local.adjudicator.adjudicator import Adjudicator
from pytest_dsql.local.adjudicator.answers import stripped
from pytest_dsql.local.adjudicator.books import Keys
from pytest_dsql.local.adjudicator.sandbox.errors import seen_by_client
from pytest_dsql.local.adjudicator.sandbox.names import ENTER, INSERTED_KEYS
from pytest_dsql.local.adjudicator.sandbox.plans import Plan as Texts
from pytest_dsql.local.adjudicator.sandbox.plans import Text
from pytest_dsql.local.adjudicator.work import (
    CANCELLED,
    CONTESTED,
    IN_THE_WAY,
    LOST,
    NO_PARAMETERS,
    Entry,
    State,
    Work,
    bound_of,
    own_command,
    own_execution,
    rows_of,
    with_last_column,
)
from pytest_dsql.local.dialect.judgement import Refusal
from pytest_dsql.local.gateway import disguise, frames
from pytest_dsql.local.gateway.cancel import cancel
from pytest_dsql.local.gateway.frames import SYNC_MESSAGE
from pytest_dsql.local.gateway.group import FAILED, IDLE, Group
from pytest_dsql.local.gateway.run import Run
from pytest_dsql.local.gateway.statements import Plan

if TYPE_CHECKING:
    from pytest_dsql.local.gateway.session import Session

#: AWS user guide, "Concurrency control in Aurora DSQL"; the text as seen on clusters in September 2026.
CONFLICT: Final = Refusal("40001", "change conflicts with another transaction (OC000)")

SAVEPOINT: Final = "pytest_dsql_engine"
#: What follows a client's BEGIN: DSQL takes the snapshot there, PostgreSQL with the first query.
BEGINNING: Final = own_command("SELECT") + own_command(f"SAVEPOINT {SAVEPOINT}")
BEGINNING_QUERY: Final = f"\n;SELECT;SAVEPOINT {SAVEPOINT}".encode()

_BEGIN: Final = own_command("BEGIN") + BEGINNING + SYNC_MESSAGE
_BEGIN_PATIENTLY: Final = own_command("BEGIN") + own_command("SET LOCAL lock_timeout = '10s'") + SYNC_MESSAGE
_PATIENCE: Final = own_command("SET LOCAL lock_timeout = '10s'")
_IMPATIENCE: Final = own_command("SET LOCAL lock_timeout TO DEFAULT")
_COMMIT: Final = own_command("COMMIT") + SYNC_MESSAGE
_ROLLBACK: Final = own_command("ROLLBACK") + SYNC_MESSAGE
_BACK: Final = own_command(f"ROLLBACK TO SAVEPOINT {SAVEPOINT}")
_ENTER: Final = own_command(ENTER)
_LEAVE: Final = own_command(
    "SELECT pg_catalog.set_config_by_name('search_path', pg_catalog.current_setting('search_path'), true)"
)
#: Rows that the transaction has written, cascades included: counted for DSQL's limit.
_WRITTEN: Final = own_command("SELECT pytest_dsql_engine_limits.written() >> 36")
#: What PostgreSQL answers to messages of the extended protocol.
_ANSWERS: Final = {frames.PARSE: b"1", frames.BIND: b"2", frames.DESCRIBE: b"tTn", frames.CLOSE: b"3"}
_SCHEMAS: Final = own_command("SELECT pg_catalog.array_to_json(pg_catalog.current_schemas(false))") + SYNC_MESSAGE

#: Seconds before somebody who waits asks for whom, between two such questions, and before what a rival does is stopped.
_PATIENT_S: Final = 0.0005
_AGAIN_S: Final = 0.003
_CANCEL_S: Final = 0.02

#: How often a statement without a transaction is tried on a fresh snapshot.
_TRIES: Final = 5


@final
class Contender:
    """The adjudicator's view of one session. Its coroutines are run by the session's driver."""

    __slots__ = ("_adjudicator", "_pid", "_session", "_told", "schemas", "work")

    def __init__(self, session: Session, schemas: tuple[str, ...] | None) -> None:
        self.work: Work | None = None  #: of the transaction that is open
        self.schemas = schemas  #: the search path, None when it has to be asked for
        self._session = session
        self._adjudicator = Adjudicator.of(session.cluster)
        self._pid = 0
        self._told = Keys()  #: of a statement without a transaction

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
        if contenders.get(self._pid) is self:
            del contenders[self._pid]
        self._pid = int.from_bytes(key[:4], "big")
        if key:
            contenders[self._pid] = self

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
            texts = self._adjudicator.known(_sql(plan), self.schemas)
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
        names = [table.name for table in texts.inserts]
        return bool(names) and self._adjudicator.books.frees_newer(names, work.snapshot)

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
        keys = self._told if self.work is None else self.work.keys
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
            self._record(self._told)
        elif kind == "dml":
            texts = self._adjudicator.known(_sql(plan), self.schemas)
            self._log(work, run, plan, texts, tag)
            work.doubtful = work.doubtful or (texts is None or self._freed(texts, work))
        elif kind in ("set", "ddl"):
            self._log(work, run, plan, None, tag)

    def failed(self) -> None:
        """Note that a statement has failed: it has done nothing."""
        self._told.clear()

    def _record(self, keys: Keys) -> None:
        if keys:
            self._adjudicator.books.record(keys)
            keys.clear()

    # What the driver runs.

    async def open(self) -> None:
        """Begin a transaction that the client hasn't asked for."""
        self.begin()
        await self._session.backend.ask(_BEGIN)

    async def run(self, run: Run, plan: Plan) -> Group:
        """Run one statement; the answer is the client's, and nothing of it has been sent."""
        session = self._session
        kind = plan.statement.kind
        work = self.work
        if session.status == FAILED:
            return await session.backend.ask(run.messages(plan))
        if kind == "ddl":
            return await self._change_catalog(run, plan)
        if kind not in ("dml", "select"):
            reply = await session.backend.ask(run.messages(plan), relays_rows=True)
            if reply.error is None:
                self.succeeded(run, plan, reply.tag or b"")
            return reply
        texts = await self._texts(plan)
        if work is None:
            return await self._alone(run, plan, texts)
        if work.state is State.PARKED:
            await self._enter(work)
        if work.state is State.PHYSICAL:
            if not self._freed(texts, work):
                reply = await self._execute(run, plan, texts.physical)
                if reply.error is None and not self._freed(texts, work):
                    self._note(work, run, plan, texts, reply)
                    return reply
                if reply.error is not None and not self.contested(plan, reply.error):
                    return reply
                return await self.contest(run, plan, reply.error)
            await self._enter(work)
        reply = await self._execute(run, plan, texts.sandbox)
        if reply.error is None:
            self._note(work, run, plan, texts, reply)
        return reply

    async def contest(self, run: Run, plan: Plan, error: dict[str, bytes] | None) -> Group:
        """Run a statement another way that has met a rival: in the sandbox, or before the rivals."""
        texts = await self._texts(plan)
        work = self.work
        run.again()
        if work is None:
            return await self._before_rivals(run, plan, texts)
        await self._enter(work)
        reply = await self._execute(run, plan, texts.sandbox)
        if reply.error is None:
            if error is not None and error.get("C") in LOST:
                work.doomed = True
            self._note(work, run, plan, texts, reply)
        return reply

    async def resend(self, messages: bytes) -> Group:
        """Send messages again that have met a table which is being changed."""
        backend = self._session.backend
        work = self.work
        if work is not None:
            await self._enter(work)
            return await self._patiently(backend.ask(messages))
        await backend.ask(_BEGIN_PATIENTLY)
        reply = await self._patiently(backend.ask(messages))
        await backend.ask(_COMMIT if reply.error is None else _ROLLBACK)
        return reply

    async def prepare(self, kind: int, message: bytes, plan: Plan | None) -> Group:
        """Send a Parse, Bind, Describe or Close: in the sandbox, what has another text there means the tables."""
        backend = self._session.backend
        work = self.work
        if work is None or work.state is not State.SANDBOX or plan is None or self._session.status == FAILED:
            return await backend.ask(message + SYNC_MESSAGE)
        if (await self._texts(plan)).sandbox.sql is None:
            return await backend.ask(message + SYNC_MESSAGE)
        reply = await backend.ask(_LEAVE + message + _ENTER + SYNC_MESSAGE)
        wanted = _ANSWERS.get(kind, b"") if reply.error is None else b"E"
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
            await self._enter(work)
        if work.doomed or (work.log and self._adjudicator.books.conflict(work.keys, (), work.snapshot)):
            return await self._lose()
        if work.state is State.PHYSICAL:
            return await self._commit_now(work, messages), None
        inserted = await self._inserted(work)
        if work.state is State.SANDBOX:
            work.written = _number(await session.backend.ask(_WRITTEN + SYNC_MESSAGE))
        async with self._adjudicator.lane:
            work.committing = True
            if not await self._replay(work):
                return await self._lose()
            if self._adjudicator.books.conflict(work.keys, inserted, work.snapshot):
                return await self._lose()
            return await self._commit_now(work, messages), None

    async def park(self) -> None:
        """Give up everything that a rival may wait for; the log keeps what was done."""
        work = self.work
        if work is None:
            return
        work.park_wanted = False
        if self._session.status in (IDLE, FAILED) or work.state is not State.PHYSICAL:
            return
        reply = await self._session.backend.ask(_WRITTEN + _BACK + SYNC_MESSAGE)
        if reply.error is None:
            work.written = _number(reply)
            work.state = State.PARKED
            work.keys.clear()

    # How it is done.

    async def _texts(self, plan: Plan) -> Texts:
        if self.schemas is None:
            reply = await self._session.backend.ask(_SCHEMAS)
            ((value,),) = reply.rows()
            self.schemas = tuple(json.loads(value or b"[]"))
        return await self._adjudicator.texts(_sql(plan), self.schemas)

    async def _execute(self, run: Run, plan: Plan, text: Text) -> Group:
        """Run a text in a statement's place, and make the answer the client's."""
        session = self._session
        work = self.work
        reads = plan.statement.kind == "select" and text.last == "client" and not run.whole and plan.explained is None
        reads = reads and not self._calls_functions(plan)  # what they write may still have to be undone
        if run.whole:
            reply = await self._patiently(session.backend.ask(run.whole))
        elif plan.copies_in:
            sql = plan.sent if text.sql is None else text.sql.encode()
            reply = await session.driver.copy(run, sql)
        elif text.sql is None:
            reply = await self._patiently(session.backend.ask(run.messages(plan), relays_rows=reads))
        elif run.by_query:
            reply = await self._patiently(session.backend.ask(frames.query(text.sql.encode()), relays_rows=reads))
        else:
            assert run.portal is not None
            bound = with_last_column(bound_of(run.portal.bind), text)
            messages = own_execution(text.sql.encode(), run.portal.prepared.rest, bound) + SYNC_MESSAGE
            reply = await self._patiently(session.backend.ask(messages, relays_rows=reads))
        stripped(reply, text)
        catalog = self._adjudicator.catalog
        if work is not None and work.state is State.SANDBOX and reply.error is not None and catalog is not None:
            said = frames.report(frames.ERROR_RESPONSE, seen_by_client(reply.error, catalog))
            reply.collected = [said if one[0] == frames.ERROR_RESPONSE else one for one in reply.collected]
        return reply

    async def _patiently(self, asking: Awaitable[Group]) -> Group:
        """Wait for an answer; meanwhile park those whose locks it waits for."""
        work = self.work
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
                for rival in await self._adjudicator.blockers(self._pid):
                    if not waiting.done():
                        rival.asked_to_park(hurry=hurry)
                pause = _AGAIN_S
        finally:
            waiting.cancel()

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
        if hurry and session.group is not None and not _commits(session.group):
            cancel(session.cluster.socket_path, session.key)

    async def _enter(self, work: Work) -> None:
        """Go into the sandbox, with everything that the log says."""
        work.park_wanted = False
        work.keys.clear()
        in_tables = all(entry.texts is None for entry in work.log)
        if work.state is State.PARKED and in_tables and work.log:
            # DDL: it is done again in the catalog, whoever reads there meanwhile.
            work.state = State.SANDBOX
            await self._again(work, _BACK + _PATIENCE, sandbox=False)
            work.state = State.PHYSICAL
            return
        await self._adjudicator.prepare()
        work.state = State.SANDBOX
        if not await self._again(work, _BACK + _ENTER, sandbox=True):
            work.doomed = True

    async def _replay(self, work: Work) -> bool:
        """Write for real what the log says; tell whether it could be."""
        work.keys.clear()
        if not await self._again(work, _BACK + _PATIENCE, sandbox=False):
            return False
        if not any(entry.cascades for entry in work.log):
            return True
        # A cascade looks for its rows where the rivals have left them: what it doesn't find any more was theirs.
        return _number(await self._session.backend.ask(_WRITTEN + SYNC_MESSAGE)) == work.written

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
                continue
            reply = await self._patiently(backend.ask(messages + SYNC_MESSAGE))
            if not _alike(reply, expected):
                return False
            messages, expected = b"", []
            text = None if entry.texts is None else entry.texts.sandbox.sql if sandbox else entry.texts.physical.sql
            reply = await backend.ask(frames.query(entry.sql if text is None else text.encode()), until_copy=True)
            if reply.error is None:
                data = frames.message(frames.COPY_DATA, entry.copied) + frames.message(frames.COPY_DONE, b"")
                reply = await self._patiently(backend.ask(data))
            if not _alike(reply, [entry.rows]):
                return False
        return _alike(await self._patiently(backend.ask(messages + SYNC_MESSAGE)), expected)

    async def _inserted(self, work: Work) -> set[str]:
        """The keys that the transaction inserts, where somebody could have freed them."""
        if not work.inserted or not self._adjudicator.books.frees_newer(work.inserted.values(), work.snapshot):
            return set()
        if work.state is State.PARKED:
            await self._enter(work)
        oids = ",".join(str(oid) for oid in work.inserted)
        reply = await self._session.backend.ask(own_command(INSERTED_KEYS.format(oids=oids)) + SYNC_MESSAGE)
        return {row[0].decode() for row in reply.rows() if row[0] is not None}

    async def _lose(self) -> tuple[None, Refusal]:
        await self._session.backend.ask(_ROLLBACK)
        return None, CONFLICT

    async def _commit_now(self, work: Work, messages: bytes) -> Group:
        books = self._adjudicator.books
        keys = work.keys
        work.committing = True
        with self._committing(keys) as outcome:
            reply = await self._session.backend.ask(messages)
            outcome.append(reply.error is None and reply.tag == b"COMMIT")
        del books
        return reply

    @contextlib.contextmanager
    def _committing(self, keys: Keys) -> Iterator[list[bool]]:
        books = self._adjudicator.books
        outcome: list[bool] = []
        books.committing(keys)
        try:
            yield outcome
        finally:
            # Who went away while it was committing may have committed.
            (books.committed if outcome != [False] else books.failed)(keys)

    async def _alone(self, run: Run, plan: Plan, texts: Texts) -> Group:
        """Run a statement that is its own transaction."""
        reply = await self._execute_alone(run, plan, texts)
        if reply.error is not None and reply.error.get("C") in IN_THE_WAY:
            return await self._before_rivals(run, plan, texts)
        self._settle_alone(reply)
        return reply

    async def _execute_alone(self, run: Run, plan: Plan, texts: Texts) -> Group:
        self._told.clear()
        reply = await self._execute(run, plan, texts.physical)
        self._told.locked |= reply.locked
        self._told.shared |= reply.shared
        return reply

    def _settle_alone(self, reply: Group) -> None:
        if reply.error is None:
            self._record(self._told)
        else:
            self._told.clear()

    async def _before_rivals(self, run: Run, plan: Plan, texts: Texts) -> Group:
        """Run a statement that is its own transaction, parking whoever is in its way."""
        backend = self._session.backend
        async with self._adjudicator.lane:
            for _ in range(_TRIES):
                await backend.ask(_BEGIN_PATIENTLY)
                run.again()
                reply = await self._execute_alone(run, plan, texts)
                if reply.error is not None:
                    await backend.ask(_ROLLBACK)
                    if reply.error.get("C") in IN_THE_WAY:
                        continue
                    self._told.clear()
                    return reply
                with self._committing(self._told) as outcome:
                    ended = await backend.ask(_COMMIT)
                    outcome.append(ended.error is None)
                self._told.clear()
                return reply if ended.error is None else ended
        reply = Group()
        reply.error = frames.fields(disguise.error(CONFLICT)[frames.HEADER_SIZE :])
        reply.collected = [disguise.error(CONFLICT)]
        return reply

    async def _change_catalog(self, run: Run, plan: Plan) -> Group:
        """Run DDL: whoever has the table open gives it up."""
        backend = self._session.backend
        work = self.work
        if work is None:
            # It may not wait for long, and its lock timeout is its transaction's.
            await backend.ask(_BEGIN_PATIENTLY)
            reply = await self._patiently(backend.ask(run.messages(plan)))
            ended = await backend.ask(_COMMIT if reply.error is None else _ROLLBACK)
            return reply if ended.error is None else ended
        if work.state is not State.PHYSICAL:
            await self._enter(work)
        await backend.ask(_PATIENCE + SYNC_MESSAGE)
        state, work.state = work.state, State.SANDBOX
        try:
            reply = await self._patiently(backend.ask(run.messages(plan)))
        finally:
            work.state = state
        if reply.error is None:
            self._log(work, run, plan, None, reply.tag)
        return reply

    def _note(self, work: Work, run: Run, plan: Plan, texts: Texts, reply: Group) -> None:
        work.keys.locked |= reply.locked
        work.keys.shared |= reply.shared
        if texts.may_write:
            self._log(work, run, plan, texts, reply.tag, reply)

    def _log(
        self,
        work: Work,
        run: Run,
        plan: Plan,
        texts: Texts | None,
        tag: bytes | None,
        reply: Group | None = None,
    ) -> None:
        rows = None
        if texts is not None and texts.form.command in _COUNTED:
            rows = rows_of(tag)
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
                None if reply is None or texts is None or texts.capture is None else tuple(reply.captured),
                run.copied,
                frozenset(() if reply is None else reply.locked),
                frozenset(() if reply is None else reply.shared),
                rows,
            )
        )
        if texts is not None:
            work.inserted.update((table.oid, table.name) for table in texts.inserts)


#: Statements whose tags tell how many rows they wrote or locked; a SELECT may write in a WITH query as well.
_COUNTED: Final = frozenset({"InsertStmt", "UpdateStmt", "DeleteStmt", "CopyStmt"})

_KEYS_NOTICE: Final = b"pytest_dsql_engine keys"


def _sql(plan: Plan) -> str:
    return plan.sent.decode("utf-8", "surrogateescape").rstrip(" \t\r\n;")


def _alike(reply: Group, expected: Sequence[int | None]) -> bool:
    """Whether statements did what they did before: another number of rows is a rival's doing."""
    if reply.error is not None or len(reply.tags) != len(expected):
        return False
    return all(rows is None or rows == rows_of(tag) for rows, tag in zip(expected, reply.tags, strict=True))


def _number(reply: Group) -> int:
    rows = reply.rows()
    return int(rows[0][0] or b"0") if rows else 0


def _commits(group: Group) -> bool:
    return group.plan is not None and group.plan.statement.kind == "commit"
