from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import ErrorClass, TransactionError, UsageError
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.transaction import CellRun, Context, Kind, Rejected, Steps, Transaction

_prefixes = itertools.count()


def context(receipt_sql: str | None = None) -> Context:
    return Context(seed=1, run=CellRun(1, f"b{next(_prefixes)}-", slots=1, receipt_sql=receipt_sql))


def connect(endpoint: Endpoint, **options: Any) -> psycopg.Connection[Any]:
    parameters: dict[str, Any] = endpoint.conninfo()
    return psycopg.connect(**parameters, **options)


@pytest.fixture
def connection(endpoint: Endpoint) -> Iterator[psycopg.Connection[Any]]:
    with connect(endpoint) as made:
        yield made


def value_of(connection: psycopg.Connection[Any], item: int) -> Any:
    with connection.transaction():
        row = connection.execute("SELECT quantity FROM items WHERE id = %s", (item,)).fetchone()
    assert row is not None
    return row[0]


def add(ctx: Context) -> Steps:
    added = yield "UPDATE items SET quantity = quantity + $1 WHERE id = $2", (1, 3)
    assert added.rowcount == 1
    level = yield "SHOW transaction_isolation"
    assert level.one() == ("repeatable read",)
    return None


def test_a_transaction_commits_on_an_ordinary_connection(connection: psycopg.Connection[Any]) -> None:
    before = value_of(connection, 3)
    executed = run_transaction(connection, Transaction(add, "write", "add"), context())
    assert (executed.outcome, executed.attempts, executed.fault) == (Outcome.OK, 1, None)
    assert executed.committed
    assert value_of(connection, 3) == before + 1


def test_rows_are_tuples_whatever_the_connections_row_factory(endpoint: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        got = yield "SELECT 1, $1::text", ("x",)
        several = yield ["SELECT 2", ("SELECT $1::int", (3,))]
        return Rejected(f"{got.rows} {[one.one() for one in several]}")

    with connect(endpoint, row_factory=dict_row, autocommit=True) as connection:
        executed = run_transaction(connection, Transaction(steps, "read", "rows"), context())
    assert executed.rejection == Rejected("[(1, 'x')] [(2,), (3,)]")


def test_a_rejection_is_rolled_back(connection: psycopg.Connection[Any]) -> None:
    def steps(ctx: Context) -> Steps:
        yield from add(ctx)
        return Rejected("no")

    before = value_of(connection, 3)
    executed = run_transaction(connection, Transaction(steps, "write", "no"), context())
    assert executed.outcome is Outcome.REJECTED
    assert not executed.committed
    assert value_of(connection, 3) == before


def test_a_conflict_is_run_again_with_the_same_values(endpoint: Endpoint) -> None:
    drawn: list[tuple[float, int, str]] = []

    def steps(ctx: Context) -> Steps:
        drawn.append((ctx.rng.random(), ctx.new_id(), ctx.operation_id))
        yield "SELECT quantity FROM items WHERE id = 4"
        if len(drawn) == 1:
            with connect(endpoint, autocommit=True) as rival:
                rival.execute("UPDATE items SET quantity = quantity + 1 WHERE id = 4")
        yield "UPDATE items SET quantity = quantity + 1 WHERE id = 4"
        return None

    with connect(endpoint) as connection:
        executed = run_transaction(connection, Transaction(steps, "write", "conflict"), context())
    assert (executed.outcome, executed.attempts) == (Outcome.OK_RETRIED, 2)
    assert executed.fault is not None
    assert (executed.fault.sqlstate, executed.fault.error_class) == ("40001", ErrorClass.CONFLICT)
    assert drawn[0] == drawn[1]


def test_a_failure_is_an_outcome_and_the_connection_stays_usable(connection: psycopg.Connection[Any]) -> None:
    def steps(ctx: Context) -> Steps:
        yield "SELECT 1/0"
        return None

    executed = run_transaction(connection, Transaction(steps, "read", "fails"), context())
    assert executed.outcome is Outcome.FAILED
    assert executed.fault is not None
    assert executed.fault.sqlstate == "22012"
    assert value_of(connection, 3) is not None


def test_what_the_transaction_raises_comes_through_after_a_rollback(connection: psycopg.Connection[Any]) -> None:
    def steps(ctx: Context) -> Steps:
        yield from add(ctx)
        raise ZeroDivisionError("mine")

    before = value_of(connection, 3)
    with pytest.raises(ZeroDivisionError, match="mine"):
        run_transaction(connection, Transaction(steps, "write", "raises"), context())
    assert value_of(connection, 3) == before


def test_a_wrong_step_is_named(connection: psycopg.Connection[Any]) -> None:
    def steps(ctx: Context) -> Steps:
        yield 5  # type: ignore[misc]  # the mistake under test
        return None

    with pytest.raises(TransactionError, match="transaction wrong yielded int"):
        run_transaction(connection, Transaction(steps, "write", "wrong"), context())
    assert value_of(connection, 3) is not None


def test_a_statement_without_a_block_commits_by_itself(connection: psycopg.Connection[Any]) -> None:
    def steps(ctx: Context) -> Steps:
        yield "UPDATE items SET quantity = quantity + 1 WHERE id = 5"
        return Rejected("too late")

    before = value_of(connection, 5)
    executed = run_transaction(connection, Transaction(steps, "write", "alone", False), context())
    assert executed.outcome is Outcome.REJECTED
    assert value_of(connection, 5) == before + 1


def test_a_connection_in_a_transaction_is_refused(connection: psycopg.Connection[Any]) -> None:
    connection.execute("SELECT 1")
    with pytest.raises(UsageError, match="not in a transaction"):
        run_transaction(connection, Transaction(add, "write", "add"), context())


def lost(how: str, kind: Kind = "write") -> Transaction:
    def steps(ctx: Context) -> Steps:
        yield f"SELECT /*lose_commit={how}*/ $1", (ctx.operation_id,)
        return None

    return Transaction(steps, kind, "lost")


@pytest.mark.parametrize(
    ("how", "outcome", "attempts"), [("landed", Outcome.OK, 1), ("vanished", Outcome.OK_RETRIED, 2)]
)
def test_the_receipt_tells_whether_a_lost_commit_landed(
    fake: Endpoint, how: str, outcome: Outcome, attempts: int
) -> None:
    executed = run_transaction(
        connect(fake), lost(how), context("SELECT /*receipt*/ $1"), reconnect=lambda: connect(fake)
    )
    assert (executed.outcome, executed.attempts) == (outcome, attempts)
    executed.connection.close()


def test_a_lost_commit_that_nobody_can_look_up_is_ambiguous(fake: Endpoint) -> None:
    assert run_transaction(connect(fake), lost("landed"), context()).outcome is Outcome.AMBIGUOUS
    unreachable = context("SELECT /*receipt*/ $1")
    executed = run_transaction(connect(fake), lost("landed"), unreachable, retry=RetryPolicy(base_s=0))
    assert executed.outcome is Outcome.AMBIGUOUS


def test_a_connection_lost_before_commit_fails_without_another_and_is_replaced_with_one(fake: Endpoint) -> None:
    deaths: list[int] = []

    def steps(ctx: Context) -> Steps:
        if not deaths:
            deaths.append(1)
            yield "SELECT /*die*/ $1", (1,)
        yield "SELECT $1", (1,)
        return None

    dies = Transaction(steps, "write", "dies")
    assert run_transaction(connect(fake), dies, context()).outcome is Outcome.FAILED
    deaths.clear()
    executed = run_transaction(connect(fake), dies, context(), reconnect=lambda: connect(fake))
    assert (executed.outcome, executed.attempts) == (Outcome.OK_RETRIED, 2)
    executed.connection.close()
