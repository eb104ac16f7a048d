"""What clients are answered: transactions, their commits, and the catalog's changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final

from tests.local.adjudicator.model.conflicts import Footprint, Verdict
from tests.local.adjudicator.model.execution import Contents, Result, Workspace, empty_contents
from tests.local.adjudicator.model.failures import StatementFailed
from tests.local.adjudicator.model.schema import BY_NAME, INITIAL, Value
from tests.local.adjudicator.model.statements import (
    Begin,
    Commit,
    Copy,
    Define,
    Delete,
    Fault,
    Insert,
    Read,
    Rollback,
    Statement,
    Update,
    UpdateFrom,
)

CONFLICT: Final = "change conflicts with another transaction (OC000)"
STALE: Final = "schema has been updated by another transaction (OC001)"
ABORTED: Final = "current transaction is aborted, commands ignored until end of transaction block"

_WORDS: Final = {Insert: "INSERT", Copy: "INSERT", Update: "UPDATE", UpdateFrom: "UPDATE", Delete: "DELETE"}


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """An error that is answered; one of the messages."""

    sqlstate: str
    messages: frozenset[str]
    detail: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer that is allowed, the session's state after it (I, T or E), and what follows from it."""

    answer: Result | Failure
    status: str
    apply: Callable[[], None]


@final
@dataclass(slots=True)
class Transaction:
    """An open transaction. `began` is the number of the last commit it sees."""

    began: int
    work: Workspace
    read_only: bool = False
    implicit: bool = False
    failed: bool = False
    statements: int = 0
    defines: int = 0


@final
@dataclass(slots=True)
class Client:
    """A session. Which version of the catalog it knows: at least `knows`, at most `may_know`."""

    knows: int
    may_know: int
    transaction: Transaction | None = None

    @property
    def status(self) -> str:
        """As in ReadyForQuery."""
        if self.transaction is None or self.transaction.implicit:
            return "I"
        return "E" if self.transaction.failed else "T"


@dataclass(slots=True)
class Database:
    """A cluster: what is committed, who committed what, and its sessions."""

    committed: Contents = field(default_factory=empty_contents)
    commits: list[Footprint] = field(default_factory=list)
    catalog: int = 0
    clients: dict[str, Client] = field(default_factory=dict)
    _places: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)
    _made_up: Callable[[], int] = field(default_factory=lambda: itertools.count().__next__)

    @classmethod
    def initial(cls) -> Database:
        """A database with the rows that every example begins with."""
        database = cls()
        for name, rows in INITIAL.items():
            for row in rows:
                columns = BY_NAME[name].columns
                database.committed[name][database._places()] = dict(zip(columns, row, strict=True))
        return database

    def connect(self, name: str) -> None:
        """Open a session; one of this name that was there is gone, and its transaction with it."""
        self.clients[name] = Client(self.catalog, self.catalog)

    def outcomes(self, name: str, statement: Statement) -> list[Outcome]:
        """What a session may be answered for a statement that it sends now."""
        client = self.clients[name]
        transaction = client.transaction
        if transaction is not None and transaction.failed:
            return [self._in_failed(client, statement)]
        if isinstance(statement, Begin):
            return [Outcome(Result("BEGIN"), "T", lambda: self._begin(client, read_only=statement.read_only))]
        if isinstance(statement, Rollback):
            return [Outcome(Result("ROLLBACK"), "I", lambda: self._end(client))]
        if isinstance(statement, Commit):
            return self._commit(client)
        if transaction is None:
            return self._autocommit(client, statement)
        return self._within(client, transaction, statement)

    def begin_implicit(self, name: str) -> None:
        """Open the transaction that statements sent together share."""
        client = self.clients[name]
        client.transaction = self._new_transaction(implicit=True)

    def end_implicit(self, name: str, *, failed: bool) -> None:
        """End that transaction: nothing can have come between its statements, so it commits unless one failed."""
        client = self.clients[name]
        transaction = client.transaction
        assert transaction is not None
        if not failed:
            self._publish(client, transaction)
        client.transaction = None

    # The single cases.

    def _new_transaction(self, *, read_only: bool = False, implicit: bool = False) -> Transaction:
        tables = {name: dict(rows) for name, rows in self.committed.items()}
        work = Workspace(tables, self._places, lambda: f"?{self._made_up()}")
        return Transaction(len(self.commits), work, read_only, implicit)

    def _begin(self, client: Client, *, read_only: bool) -> None:
        client.transaction = self._new_transaction(read_only=read_only)

    def _end(self, client: Client) -> None:
        client.transaction = None

    def _in_failed(self, client: Client, statement: Statement) -> Outcome:
        if isinstance(statement, Commit | Rollback):
            return Outcome(Result("ROLLBACK"), "I", lambda: self._end(client))
        return Outcome(Failure("25P02", frozenset({ABORTED})), "E", lambda: None)

    def _autocommit(self, client: Client, statement: Statement) -> list[Outcome]:
        if client.may_know < self.catalog and not isinstance(statement, Define):
            return [self._stale(client, "I")]
        transaction = self._new_transaction()
        found = self._result(transaction, statement)
        if isinstance(found, Failure):
            usual = Outcome(found, "I", lambda: None)
        else:
            usual = Outcome(found, "I", lambda: self._publish(client, transaction))
        return self._with_stale(client, usual, "I")

    def _within(self, client: Client, transaction: Transaction, statement: Statement) -> list[Outcome]:
        failed = "I" if transaction.implicit else "E"
        first = transaction.statements == 0
        if first and client.may_know < self.catalog and not isinstance(statement, Define):
            return [self._stale(client, failed)]
        after = transaction.work.copy()
        tried = Transaction(transaction.began, after, transaction.read_only)
        found = self._result(tried, statement)
        if isinstance(found, Failure):
            usual = Outcome(found, failed, lambda: self._fail(client))
        else:

            def advance() -> None:
                transaction.work = after
                transaction.statements += 1
                transaction.defines += tried.defines

            usual = Outcome(found, client.status, advance)
        return self._with_stale(client, usual, failed)

    def _with_stale(self, client: Client, usual: Outcome, status: str) -> list[Outcome]:
        """Allow OC001 beside the usual answer where the catalog has moved and it is open when the session is told."""
        return [usual, self._stale(client, status)] if client.knows < self.catalog else [usual]

    def _stale(self, client: Client, status: str) -> Outcome:
        def apply() -> None:
            client.knows = client.may_know = self.catalog
            if status == "I" and not (client.transaction is not None and client.transaction.implicit):
                self._end(client)
            else:
                self._fail(client)

        return Outcome(Failure("40001", frozenset({STALE})), status, apply)

    def _fail(self, client: Client) -> None:
        assert client.transaction is not None
        client.transaction.failed = True

    def _result(self, transaction: Transaction, statement: Statement) -> Result | Failure:
        if isinstance(statement, Define):
            transaction.defines += 1
            return Result(statement.tag)
        assert isinstance(statement, Read | Fault | Insert | Copy | Update | UpdateFrom | Delete)
        if transaction.read_only:
            words = f"SELECT FOR {statement.lock}" if isinstance(statement, Read) else _WORDS.get(type(statement))
            if words is not None and not (isinstance(statement, Read) and statement.lock is None):
                return Failure("25006", frozenset({f"cannot execute {words} in a read-only transaction"}))
        try:
            return transaction.work.run(statement)
        except StatementFailed as failed:
            return Failure(failed.sqlstate, failed.messages, failed.detail)

    def _commit(self, client: Client) -> list[Outcome]:
        transaction = client.transaction
        assert transaction is not None
        committed = Outcome(Result("COMMIT"), "I", lambda: self._commit_succeeded(client, transaction))
        conflict = Outcome(Failure("40001", frozenset({CONFLICT})), "I", lambda: self._commit_conflicted(client))
        stale = self._stale(client, "I")
        verdict = self._verdict(transaction)
        moved = client.knows < self.catalog
        if transaction.defines:
            return [committed, stale, conflict] if moved else [committed]
        if client.may_know < self.catalog and transaction.work.wrote:
            return [stale] if verdict is Verdict.NEITHER else [stale, conflict]
        allowed = [] if verdict is Verdict.CONFLICT else [committed]
        if verdict is not Verdict.NEITHER:
            allowed.append(conflict)
        return [*allowed, stale] if moved else allowed

    def _verdict(self, transaction: Transaction) -> Verdict:
        verdicts = {transaction.work.footprint.against(other.items) for other in self.commits[transaction.began :]}
        return next((v for v in (Verdict.CONFLICT, Verdict.OPEN) if v in verdicts), Verdict.NEITHER)

    def _commit_succeeded(self, client: Client, transaction: Transaction) -> None:
        self._publish(client, transaction)
        self._end(client)

    def _commit_conflicted(self, client: Client) -> None:
        # Whether the session learns of a changed catalog when it is told of a conflict is open.
        client.may_know = self.catalog
        self._end(client)

    def _publish(self, client: Client, transaction: Transaction) -> None:
        """Make a transaction's writes everybody's: what it has touched, as it left it."""
        work = transaction.work
        for name, place in work.changed:
            self.committed[name][place] = work.tables[name][place]
        for name, place in work.removed:
            self.committed[name].pop(place, None)
        if work.footprint.items:
            self.commits.append(work.footprint)
        if transaction.defines:
            self.catalog += 1
            client.knows = client.may_know = self.catalog


def rows_of(database: Database, table: str) -> list[tuple[Value, ...]]:
    """What is committed in a table."""
    columns = BY_NAME[table].columns
    return [tuple(row[column] for column in columns) for row in database.committed[table].values()]
