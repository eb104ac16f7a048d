"""Where a session asks what shall become of its statements: the seam of transaction rules, faults and latency.

A session asks its hooks in their order, once per statement (a simple query's part, or an Execute). It asks before the
statement goes to PostgreSQL, and the first answer that isn't None decides. Hooks run in the gateway's loop, so they
neither wait nor block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from pytest_dsql.local.dialect.judgement import Kind, Refusal

if TYPE_CHECKING:
    from pytest_dsql.local.cluster import Cluster


@final
@dataclass(frozen=True, slots=True, eq=False)  # compared and hashed by identity: that is much faster
class Statement:
    """What is known of a statement; made once per text."""

    kind: Kind
    sql: str  #: as the client wrote it
    reads: tuple[str, ...] = ()  #: tables it reads, as `name` or `schema.name`, in lower case unless quoted
    writes: tuple[str, ...] = ()  #: tables it writes


@final
@dataclass(slots=True)
class TransactionState:
    """A session's transaction as far as it has come. `explicit` is false for an autocommit statement."""

    began_at: float  #: the engine's time, in seconds
    explicit: bool
    statements: int = 0  #: that were sent, without BEGIN
    ddl: int = 0
    dml: int = 0  #: statements that can write rows
    rows: int = 0  #: modified so far, as PostgreSQL counted them
    read_only: bool = False
    old: bool = False  #: it became too old while a statement of it was running (`ages`)
    #: The statements that have succeeded, each with its command tag.
    answers: list[tuple[Statement, bytes]] = field(default_factory=list)
    notes: dict[str, object] = field(default_factory=dict)  #: what a hook wants to remember until the end


@final
@dataclass(frozen=True, slots=True)
class Fail:
    """The statement fails with this error instead of being run; PostgreSQL then aborts what it aborts."""

    refusal: Refusal


@final
@dataclass(frozen=True, slots=True)
class Disconnect:
    """The client's connection is cut: before the statement takes effect, or after it, without its answer."""

    after: bool = False


@final
@dataclass(frozen=True, slots=True)
class Silence:
    """The client gets nothing any more, not even an end: before the statement takes effect, or after it."""

    after: bool = False


@final
@dataclass(frozen=True, slots=True)
class Stall:
    """The statement waits so long before it goes to PostgreSQL."""

    seconds: float


@final
@dataclass(frozen=True, slots=True)
class FailAfter:
    """The statement takes effect, and the client is answered this error: a COMMIT whose outcome it can't know."""

    refusal: Refusal


Action: TypeAlias = Fail | FailAfter | Disconnect | Silence | Stall


class Hook(Protocol):
    """What one part of the engine has to say about one session's statements."""

    def before(self, statement: Statement, transaction: TransactionState) -> Action | None:
        """Say what shall become of a statement that is about to be sent; also asked for BEGIN, COMMIT and ROLLBACK."""

    def completed(self, statement: Statement, transaction: TransactionState, rows: int) -> Refusal | None:
        """Hear that a statement has succeeded, with `rows` modified by it, before the client hears of it.

        A refusal takes the place of the answer, and the transaction fails. Only where `wants_completions`; not for
        BEGIN, COMMIT and ROLLBACK. `transaction.rows` has these rows already.
        """

    def ended(self, transaction: TransactionState, *, committed: bool) -> None:
        """Hear that the transaction has ended."""

    def minds(self, transaction: TransactionState | None) -> bool:
        """Whether it may have something to say about a SELECT or DML that comes next, or wants to hear of it.

        None: no transaction is open. Of what nobody minds, `before` isn't asked.
        """

    @property
    def wary(self) -> bool:
        """Whether `minds` may say so where no transaction is open; else it isn't asked then."""

    @property
    def wants_completions(self) -> bool:
        """Whether `completed` has to be called."""


#: Makes the hooks of a new session of a cluster; `user` is the role that logged in.
HookFactory: TypeAlias = Callable[["Cluster", str], Hook | None]
