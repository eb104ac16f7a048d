"""Statements that share a round trip: BEGIN with the first ones, COMMIT with the last ones."""

from __future__ import annotations

import itertools

import psycopg
import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.errors import TransactionError
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Measurement, Outcome
from pytest_dsql.transaction import CellRun, Context, Last, Mix, Rejected, Steps, Transaction
from tests.load.conftest import cell_plan
from tests.plain_postgres import PlainPostgres

_numbers = itertools.count(100)
RECEIPT = "INSERT INTO receipts (operation_id) VALUES ($1)"
LOOK_UP = "SELECT 1 FROM receipts WHERE operation_id = $1"
TAKE = "UPDATE items SET quantity = quantity + 1 WHERE id = $1"


def measure(endpoint: Endpoint, transaction: Transaction, *, pipeline: bool = True) -> Measurement:
    run = CellRun(
        number=next(_numbers),
        operation_prefix=f"p{next(_numbers)}-",
        slots=2,
        receipt_sql=LOOK_UP,
    )
    plan = cell_plan(endpoint, Mix({transaction: 1}), run=run, connections=2, pipeline=pipeline)
    return run_cell(plan)


def counts(measured: Measurement) -> dict[str, int]:
    (samples,) = measured.samples.values()
    assert len(samples) > 0
    return {one.name: samples.count(one) for one in Outcome if samples.count(one)}


def receipts(server: PlainPostgres, prefix: str) -> int:
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM receipts WHERE operation_id LIKE %s", (f"{prefix}%",)).fetchone()
        assert row is not None
        return int(row[0])


def one_by_one(ctx: Context) -> Steps:
    taken = yield TAKE, (ctx.rng.randrange(100),)
    assert taken.rowcount == 1
    yield RECEIPT, (ctx.operation_id,)
    return None


def together(ctx: Context) -> Steps:
    taken, again = yield [(TAKE, (ctx.rng.randrange(50),)), (TAKE, (50 + ctx.rng.randrange(50),))]
    assert taken.rowcount == again.rowcount == 1
    (written,) = yield Last([(RECEIPT, (ctx.operation_id,))])
    assert written.rowcount == 1
    return None


def at_once(ctx: Context) -> Steps:
    taken, _ = yield Last([(TAKE, (ctx.rng.randrange(100),)), (RECEIPT, (ctx.operation_id,))])
    assert taken.rowcount == 1
    return None


def nothing(_ctx: Context) -> Steps:
    return None
    yield


@pytest.mark.parametrize("function", [one_by_one, together, at_once])
@pytest.mark.parametrize("pipeline", [True, False])
def test_a_transaction_does_the_same_in_either_form(
    endpoint: Endpoint, postgres: PlainPostgres, function: object, pipeline: bool
) -> None:
    prefix = f"same{next(_numbers)}-"
    transaction = Transaction(function, "write", "same")  # type: ignore[arg-type]  # a function of a context
    run = CellRun(
        number=1, operation_prefix=prefix, slots=2, receipt_sql="SELECT 1 FROM receipts WHERE operation_id = $1"
    )
    measured = run_cell(
        cell_plan(endpoint, Mix({transaction: 1}), run=run, connections=2, window_s=0.5, pipeline=pipeline)
    )
    assert set(counts(measured)) <= {"OK", "OK_RETRIED"}
    assert receipts(postgres, prefix) == measured.committed["same"] > 0


def test_a_transaction_without_statements_is_an_empty_block(endpoint: Endpoint) -> None:
    assert set(counts(measure(endpoint, Transaction(nothing, "read", "nothing")))) == {"OK"}


def test_a_no_before_any_statement_is_a_rejection(endpoint: Endpoint) -> None:
    def steps(_ctx: Context) -> Steps:
        return Rejected("no")
        yield

    assert set(counts(measure(endpoint, Transaction(steps, "write", "no")))) == {"REJECTED"}


def test_a_no_after_statements_rolls_them_back(endpoint: Endpoint, postgres: PlainPostgres) -> None:
    def steps(ctx: Context) -> Steps:
        yield RECEIPT, (f"undone-{ctx.operation_id}",)
        return Rejected("no")

    assert set(counts(measure(endpoint, Transaction(steps, "write", "no")))) == {"REJECTED"}
    assert receipts(postgres, "undone-") == 0


def test_a_conflict_in_the_last_pipeline_is_run_again(fake: Endpoint) -> None:
    def steps(ctx: Context) -> Steps:
        yield "SELECT $1", (ctx.operation_id,)
        yield Last([("SELECT /*fail=40001*/ $1", (ctx.operation_id,))])
        return None

    assert set(counts(measure(fake, Transaction(steps, "write", "conflict")))) == {"OK_RETRIED"}


@pytest.mark.parametrize(("how", "outcome"), [("landed", "OK"), ("vanished", "OK_RETRIED")])
def test_a_commit_lost_with_its_statements_is_settled_by_the_receipt(fake: Endpoint, how: str, outcome: str) -> None:
    def steps(ctx: Context) -> Steps:
        yield Last([(f"SELECT /*lose_commit={how}*/ $1", (ctx.operation_id,))])
        return None

    run = CellRun(number=1, operation_prefix=f"l{next(_numbers)}-", slots=2, receipt_sql="SELECT /*receipt*/ $1")
    plan = cell_plan(fake, Mix({Transaction(steps, "write", "lost"): 1}), run=run, connections=2, pipeline=True)
    assert set(counts(run_cell(plan))) == {outcome}


def test_nothing_comes_after_the_last_statements(endpoint: Endpoint) -> None:
    def more(ctx: Context) -> Steps:
        yield Last([(RECEIPT, (ctx.operation_id,))])
        yield "SELECT $1::text", ("more",)
        return None

    def no(ctx: Context) -> Steps:
        yield Last([(RECEIPT, (ctx.operation_id,))])
        return Rejected("too late")

    for function in (more, no):
        with pytest.raises(TransactionError, match="goes on after its last statements"):
            measure(endpoint, Transaction(function, "write", "late"))


def test_on_an_ordinary_connection_they_are_sent_one_by_one(postgres: PlainPostgres) -> None:
    ctx = Context(seed=1, run=CellRun(number=1, operation_prefix=f"b{next(_numbers)}-", slots=1))
    with psycopg.connect(postgres.dsn) as connection:
        assert run_transaction(connection, Transaction(together, "write", "together"), ctx).outcome is Outcome.OK


def test_nothing_comes_after_the_last_statements_on_an_ordinary_connection(postgres: PlainPostgres) -> None:
    prefix = f"c{next(_numbers)}-"

    def more(ctx: Context) -> Steps:
        yield Last([(RECEIPT, (ctx.operation_id,))])
        yield "SELECT $1::text", ("more",)
        return None

    def no(ctx: Context) -> Steps:
        yield Last([(RECEIPT, (ctx.operation_id,))])
        return Rejected("too late")

    ctx = Context(seed=1, run=CellRun(number=1, operation_prefix=prefix, slots=1))
    with psycopg.connect(postgres.dsn) as connection:
        for function in (more, no):
            with pytest.raises(TransactionError, match="goes on after its last statements"):
                run_transaction(connection, Transaction(function, "write", "late"), ctx)
    assert receipts(postgres, prefix) == 0
