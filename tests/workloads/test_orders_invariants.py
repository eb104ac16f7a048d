"""Invariants: all hold after honest load; each catches the transaction that was broken for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.transaction import CellRun, Context, Mix, Rejected, StreamRandom, Tally, Transaction
from pytest_dsql.workloads.orders import invariants
from pytest_dsql.workloads.orders.invariants import check
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.orders.transactions import order_cancel, order_create
from pytest_dsql.workloads.orders.workload import SHARES, Orders
from pytest_dsql.workloads.sessions import Session
from tests.plain_postgres import PlainPostgres

#: Nothing that a test provokes may be given up: every request ends in a way that is counted.
PATIENT = RetryPolicy(attempts=100, deadline_s=60.0, base_s=0.001)
HOLDS = dict.fromkeys(
    (
        "stock_never_negative",
        "stock_conserved",
        "order_has_one_receipt",
        "receipt_has_its_order",
        "order_has_its_lines",
        "order_charged_once",
        "cancel_has_one_receipt",
        "receipt_has_its_cancel",
        "cancel_refunded_once",
        "no_lost_commit",
        "no_doubled_effect",
    ),
    0,
)


def _drive(
    connect: Connect,
    run: CellRun,
    slots: range,
    requests: int,
    choose: Callable[[StreamRandom], Transaction],
) -> dict[str, int]:
    """Run requests of one thread, and return the committed ones by transaction."""
    committed: dict[str, int] = {}
    contexts = [Context(seed=3, run=run, slot=slot, scale=Orders("tiny").scale) for slot in slots]
    with connect() as connection:
        for number in range(requests):
            ctx = contexts[number % len(contexts)]
            chosen = choose(StreamRandom(number + slots.start * 1_000))
            ended = run_transaction(connection, chosen, ctx, retry=PATIENT)
            assert ended.outcome is not Outcome.FAILED, ended.fault
            if ended.committed:
                committed[chosen.name] = committed.get(chosen.name, 0) + 1
    return committed


def _tally(*counted: dict[str, int], **ambiguous: int) -> Tally:
    names = {name for one in counted for name in one}
    return Tally(
        committed={name: sum(one.get(name, 0) for one in counted) for name in names},
        ambiguous=ambiguous,
    )


def test_every_invariant_holds_after_concurrent_load_with_conflicts(loaded: Connect) -> None:
    orders = Orders("tiny")
    mix = orders.mix
    run = orders.begin_cell(loaded, cell="honest", slots=8, requests_hint=1_000)
    with ThreadPoolExecutor(4) as threads:
        counted = list(threads.map(lambda n: _drive(loaded, run, range(2 * n, 2 * n + 2), 250, mix.choose), range(4)))
    tally = _tally(*counted)
    assert sum(tally.committed.values()) == 1_000
    assert tally.committed["order_create"] > 100
    assert tally.committed["order_cancel"] > 50
    assert orders.check_cell(loaded, run, tally) == HOLDS


def test_every_invariant_holds_when_requests_are_rejected(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    with connect() as connection:
        connection.execute(f"UPDATE {SCHEMA}.inventory SET quantity = product % 4")
    run = orders.begin_cell(connect, cell="short", slots=1, requests_hint=0)
    counted = _drive(connect, run, range(1), 120, lambda rng: order_create if rng.randrange(2) else order_cancel)
    assert 0 < counted["order_create"] < 50
    assert orders.check_cell(connect, run, _tally(counted)) == HOLDS


def test_a_cell_without_requests_violates_nothing(loaded: Connect) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="idle", slots=1, requests_hint=0)
    assert orders.check_cell(loaded, run, _tally({})) == HOLDS


def test_only_the_rows_of_this_run_are_judged(loaded: Connect) -> None:
    orders = Orders("tiny")
    broken = orders.begin_cell(loaded, cell="broken", slots=1, requests_hint=40)
    _drive(loaded, broken, range(1), 4, lambda _: _edited(order_create, leave_out="ledger"))
    run = orders.begin_cell(loaded, cell="honest", slots=1, requests_hint=40)
    counted = _drive(loaded, run, range(1), 4, lambda _: order_create)
    assert orders.check_cell(loaded, run, _tally(counted)) == HOLDS


def test_counting_in_slices_finds_the_same(loaded: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariants, "_SLICE", 3)
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="sliced", slots=1, requests_hint=80)
    broken = [_edited(order_create, leave_out="ledger"), _edited(order_cancel, leave_out="ledger")]
    counted = _drive(loaded, run, range(1), 20, lambda rng: broken[rng.randrange(2)])
    assert min(counted.values()) > 3  # more than one slice
    assert orders.check_cell(loaded, run, _tally(counted)) == HOLDS | {
        "order_charged_once": counted["order_create"],
        "cancel_refunded_once": counted["order_cancel"],
    }


Step = tuple[str, Any]


def _edited(
    transaction: Transaction,
    *,
    leave_out: str | None = None,
    double: str | None = None,
    change: Callable[[str, list[Any]], Step] | None = None,
) -> Transaction:
    """Break a transaction: a statement that mentions a table is left out, sent twice, or changed.

    Reads are left alone. What is sent twice gets another key the second time.
    """

    def mentions(sql: str, table: str | None) -> bool:
        return table is not None and f"{SCHEMA}.{table}" in sql and not sql.lstrip().startswith("SELECT")

    def steps(ctx: Context) -> Any:
        generator = transaction(ctx)
        answer: Any = None
        try:
            while True:
                step = generator.send(answer)
                assert isinstance(step, tuple)
                sql, parameters = step
                if change is not None:
                    sql, parameters = change(sql, list(parameters))
                if mentions(sql, leave_out):
                    answer = None
                    continue
                answer = yield sql, parameters
                if mentions(sql, double):
                    yield sql, _another_key(ctx, sql, list(parameters))
        except StopIteration as end:
            ended: Rejected | None = end.value
            return ended

    return Transaction(steps, transaction.kind, transaction.name)


def _another_key(ctx: Context, sql: str, parameters: list[Any]) -> list[Any]:
    if "operation_receipts" in sql:
        return [f"{parameters[0]}-again", *parameters[1:]]
    if ".ledger" in sql:
        return [ctx.new_id(), *parameters[1:]]
    return parameters


def _only(table: str, changed: Callable[[list[Any]], list[Any]]) -> Callable[[str, list[Any]], Step]:
    """Change the parameters of statements that write `table`."""

    def change(sql: str, parameters: list[Any]) -> Step:
        writes = f"INTO {SCHEMA}.{table}" in sql or f"UPDATE {SCHEMA}.{table}" in sql
        return sql, changed(parameters) if writes else parameters

    return change


def _text(was: str, now: str) -> Callable[[str, list[Any]], Step]:
    """Change the text of statements that have `was` in them."""
    return lambda sql, parameters: (sql.replace(was, now), parameters)


#: Name -> the broken transaction, and what must be found: invariant -> violations per committed request (None: some).
MUTATIONS: dict[str, tuple[Transaction, dict[str, int | None]]] = {
    "stock is not taken": (
        _edited(order_create, change=_text("SET quantity = i.quantity - $2", "SET quantity = i.quantity - 0 * $2")),
        {"stock_conserved": None},
    ),
    "stock is taken twice": (_edited(order_create, double="inventory"), {"stock_conserved": None}),
    "one unit too few is taken": (
        _edited(order_create, change=_text("SET quantity = i.quantity - $2", "SET quantity = i.quantity - $2 + 1")),
        {"stock_conserved": None},
    ),
    "an order gets no receipt": (
        _edited(order_create, leave_out="operation_receipts"),
        {"order_has_one_receipt": 1, "no_lost_commit": 1},
    ),
    "an order gets two receipts": (
        _edited(order_create, double="operation_receipts"),
        {"order_has_one_receipt": 1, "no_doubled_effect": 1},
    ),
    "a receipt names another run's order": (
        _edited(order_create, change=_only("operation_receipts", lambda values: [*values[:2], 7])),
        {"order_has_one_receipt": 1, "receipt_has_its_order": 1},
    ),
    "an order is not there": (
        _edited(order_create, change=lambda sql, values: ("SELECT 1", ()) if _after_stock(sql) else (sql, values)),
        {"receipt_has_its_order": 1, "stock_conserved": None},
    ),
    "an order has no lines": (
        _edited(order_create, leave_out="order_items"),
        {"order_has_its_lines": 1, "stock_conserved": None},
    ),
    "a line has the wrong quantity": (
        _edited(order_create, change=_only("order_items", lambda values: [*values[:2], values[2] + 1, *values[3:]])),
        {"order_has_its_lines": 1, "stock_conserved": None},
    ),
    "a line has the wrong price": (
        _edited(order_create, change=_only("order_items", lambda values: [*values[:-1], values[-1] + 1])),
        {"order_has_its_lines": 1},
    ),
    "an order is not charged": (_edited(order_create, leave_out="ledger"), {"order_charged_once": 1}),
    "an order is charged twice": (_edited(order_create, double="ledger"), {"order_charged_once": 1}),
    "an order is charged too much": (
        _edited(order_create, change=_only("ledger", lambda values: [*values[:2], values[2] + 1])),
        {"order_charged_once": 1},
    ),
    "an order is refunded instead of charged": (
        _edited(order_create, change=_text("'charge'", "'refund'")),
        {"order_charged_once": 1},
    ),
    "a cancel returns no stock": (_edited(order_cancel, leave_out="inventory"), {"stock_conserved": None}),
    "a cancel returns stock twice": (_edited(order_cancel, double="inventory"), {"stock_conserved": None}),
    "a cancel gets no receipt": (
        _edited(order_cancel, leave_out="operation_receipts"),
        {"cancel_has_one_receipt": 1, "no_lost_commit": 1},
    ),
    "a cancel gets two receipts": (
        _edited(order_cancel, double="operation_receipts"),
        {"cancel_has_one_receipt": 1, "no_doubled_effect": 1},
    ),
    "a cancelled order stays placed": (
        _edited(order_cancel, change=_text("SET status = 'cancelled'", "SET status = 'placed'")),
        {"receipt_has_its_cancel": 1, "cancel_refunded_once": 1, "stock_conserved": None},
    ),
    "a cancel is not refunded": (_edited(order_cancel, leave_out="ledger"), {"cancel_refunded_once": 1}),
    "a cancel is refunded twice": (_edited(order_cancel, double="ledger"), {"cancel_refunded_once": 1}),
    "a cancel is refunded too little": (
        _edited(order_cancel, change=_only("ledger", lambda values: [*values[:2], values[2] - 1])),
        {"cancel_refunded_once": 1},
    ),
    "a cancel is charged instead of refunded": (
        _edited(order_cancel, change=_text("'refund'", "'charge'")),
        {"cancel_refunded_once": 1},
    ),
}


def _after_stock(sql: str) -> bool:
    return any(f"INTO {SCHEMA}.{table}" in sql for table in ("orders", "order_items", "ledger"))


@pytest.mark.parametrize(("broken", "found"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_transaction_is_caught(loaded: Connect, broken: Transaction, found: dict[str, int | None]) -> None:
    requests = 3
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="broken", slots=1, requests_hint=40)
    counted = _drive(loaded, run, range(1), requests, lambda _: broken)
    assert counted == {broken.name: requests}
    violations = orders.check_cell(loaded, run, _tally(counted))
    assert {name: count for name, count in violations.items() if count} == {
        name: violations[name] if per_request is None else per_request * requests
        for name, per_request in found.items()
        if per_request is not None or violations[name] > 0
    }
    assert all(violations[name] > 0 for name in found)


def test_stock_below_zero_is_caught(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    run = orders.begin_cell(connect, cell="negative", slots=1, requests_hint=0)
    with connect() as connection:
        connection.execute(f"ALTER TABLE {SCHEMA}.inventory DROP CONSTRAINT inventory_quantity_check")
        connection.execute(f"UPDATE {SCHEMA}.inventory SET quantity = -1 WHERE product IN (3, 4)")
    assert orders.check_cell(connect, run, _tally({})) == HOLDS | {"stock_never_negative": 2, "stock_conserved": 2}


def test_a_commit_that_was_undone_is_caught(loaded: Connect) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="lost", slots=1, requests_hint=40)
    counted = _drive(loaded, run, range(1), 3, lambda _: order_create)
    tally = _tally({"order_create": counted["order_create"] + 2})
    assert orders.check_cell(loaded, run, tally) == HOLDS | {"no_lost_commit": 2}


def test_a_commit_that_arrives_during_the_check_does_not_disturb_it(server: PlainPostgres, loaded: Connect) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="late", slots=2, requests_hint=40)
    counted = _drive(loaded, run, range(1), 3, lambda _: order_create)
    late: list[dict[str, int]] = []

    class Disturbed(psycopg.Connection[Any]):
        """Places an order after the units of all orders were counted, and before the stock is read."""

        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            if query == invariants._STOCK_NOW and not late:
                late.append(_drive(loaded, run, range(1, 2), 1, lambda _: order_create))
            return super().execute(query, *arguments, **options)

    violations = orders.check_cell(
        lambda: Disturbed.connect(f"{server.dsn} dbname=loaded", autocommit=True),
        run,
        _tally(counted, order_create=1),
    )
    assert late == [{"order_create": 1}]
    assert violations == HOLDS


def test_a_mix_of_the_users_own_is_checked_as_well(loaded: Connect) -> None:
    orders = Orders("tiny")
    mix = Mix({order_create: 1.0, order_cancel: 1.0}, workload=orders)
    run = orders.begin_cell(loaded, cell="own", slots=1, requests_hint=40, shares=mix.weights)
    counted = _drive(loaded, run, range(1), 40, mix.choose)
    assert sum(counted.values()) == 40
    assert orders.check_cell(loaded, run, _tally(counted)) == HOLDS


def test_the_mix_is_the_published_one() -> None:
    assert {one.name: share for one, share in SHARES.items()} == {
        "product_read": 0.4,
        "order_history": 0.3,
        "order_create": 0.2,
        "order_cancel": 0.1,
    }


def test_a_check_reads_only(loaded: Connect) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="read-only", slots=1, requests_hint=40)
    counted = _drive(loaded, run, range(1), 5, lambda _: order_create)

    def without_writes() -> psycopg.Connection[Any]:
        connection = loaded()
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        return connection

    with Session(without_writes) as session:
        assert check(session, run, _tally(counted)).violations == HOLDS


def test_receipts_of_a_generator_that_died_are_no_doubled_effect(loaded: Connect) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="died", slots=1, requests_hint=40)
    counted = _drive(loaded, run, range(1), 6, lambda _: order_create)
    told = Tally(committed={"order_create": counted["order_create"] - 2}, ambiguous={}, complete=False)
    assert orders.check_cell(loaded, run, told) == {name: 0 for name in HOLDS if name != "no_doubled_effect"}
