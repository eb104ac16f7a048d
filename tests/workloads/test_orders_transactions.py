"""The four transactions on PostgreSQL: what they read and write, when they refuse, and what a retry does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytest_dsql.load.blocking import Executed, run_transaction
from pytest_dsql.load.measurement import Outcome
from pytest_dsql.transaction import CellRun, Context, Rejected, Steps, Transaction
from pytest_dsql.workloads.orders.data import OrdersData
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.scales import SCALES
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.orders.transactions import (
    draw_cart,
    order_cancel,
    order_create,
    order_history,
    product_read,
)
from pytest_dsql.workloads.orders.workload import Orders

TINY = SCALES["tiny"]
DATA = OrdersData(TINY, 1)


@pytest.fixture
def connection(loaded: Connect) -> Iterator[psycopg.Connection[Any]]:
    with loaded() as opened:
        yield opened


@pytest.fixture
def run(loaded: Connect) -> CellRun:
    return Orders("tiny").begin_cell(loaded, cell="test", slots=2, requests_hint=20)


def _context(run: CellRun, slot: int = 0, seed: int = 1) -> Context:
    return Context(seed=seed, run=run, slot=slot, scale=TINY)


def _rehearse(run: CellRun, **names: int) -> Context:
    """Return a context that draws what the first request of `_context(run)` draws."""
    ctx = _context(run, **names)
    ctx.next_request()
    return ctx


def _query(connection: psycopg.Connection[Any], sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    return connection.execute(sql.format(s=SCHEMA), parameters).fetchall()


def _rows(transaction: Transaction, connection: psycopg.Connection[Any], ctx: Context) -> list[tuple[Any, ...]]:
    """Run a read of one statement and return what it read."""
    ctx.next_request()
    statement = next(transaction(ctx))
    assert isinstance(statement, tuple)
    sql, parameters = statement
    return psycopg.RawCursor(connection).execute(sql.encode(), parameters).fetchall()


def test_product_read_reads_a_product_with_its_stock(connection: psycopg.Connection[Any], run: CellRun) -> None:
    product = DATA.product(_rehearse(run).rng.randrange(TINY.products))
    ((sku, name, description, price, quantity),) = _rows(product_read, connection, _context(run))
    assert (sku, name, description, price) == (product.sku, product.name, product.description, product.price)
    assert _query(connection, "SELECT quantity FROM {s}.inventory WHERE product = %s", product.id) == [(quantity,)]


def test_order_history_reads_the_newest_orders_with_lines_and_units(
    connection: psycopg.Connection[Any], run: CellRun
) -> None:
    customer = _rehearse(run).rng.randrange(TINY.customers)
    for extra in range(25):
        order = (run.number << 39) + extra
        connection.execute(f"INSERT INTO {SCHEMA}.orders VALUES (%s, %s, 'placed', 1, now())", (order, customer))
        for line in range(1, 2 + extra % 3):
            connection.execute(f"INSERT INTO {SCHEMA}.order_items VALUES (%s, %s, 1, %s, 1)", (order, line, 2 * line))
    rows = _rows(order_history, connection, _context(run))
    expected = _query(
        connection,
        """SELECT o.id, o.status, o.total, o.created,
                  (SELECT count(*) FROM {s}.order_items i WHERE i."order" = o.id),
                  (SELECT sum(quantity) FROM {s}.order_items i WHERE i."order" = o.id)
           FROM {s}.orders o WHERE customer = %s ORDER BY created DESC, id DESC LIMIT 20""",
        customer,
    )
    assert len(rows) == 20
    assert rows == expected


def test_order_create_takes_stock_and_writes_order_lines_charge_and_receipt(
    connection: psycopg.Connection[Any], run: CellRun
) -> None:
    rehearsal = _rehearse(run)
    customer, cart = draw_cart(rehearsal)
    before = dict(_query(connection, "SELECT product, quantity FROM {s}.inventory"))
    assert run_transaction(connection, order_create, _context(run)).outcome is Outcome.OK

    order, charge = rehearsal.new_id(), rehearsal.new_id()
    total = sum(DATA.product(product).price * units for product, units in cart)
    after = dict(_query(connection, "SELECT product, quantity FROM {s}.inventory"))
    taken = {product: before[product] - after[product] for product in before}
    assert {product: units for product, units in taken.items() if units} == dict(cart)
    assert _query(connection, "SELECT customer, status, total FROM {s}.orders WHERE id = %s", order) == [
        (customer, "placed", total)
    ]
    lines = 'SELECT line, product, quantity, price FROM {s}.order_items WHERE "order" = %s ORDER BY line'
    assert _query(connection, lines, order) == [
        (line, product, units, DATA.product(product).price) for line, (product, units) in enumerate(cart, 1)
    ]
    assert _query(connection, 'SELECT id, kind, amount FROM {s}.ledger WHERE "order" = %s', order) == [
        (charge, "charge", total)
    ]
    receipts = "SELECT kind, reference_id FROM {s}.operation_receipts WHERE operation_id = %s"
    assert _query(connection, receipts, rehearsal.operation_id) == [("order_create", order)]


def test_order_cancel_returns_stock_and_writes_refund_and_receipt(
    connection: psycopg.Connection[Any], run: CellRun
) -> None:
    rehearsal = _rehearse(run)
    order = rehearsal.draw("cancellable")
    assert order == run.pools["cancellable"].start
    before = dict(_query(connection, "SELECT product, quantity FROM {s}.inventory"))
    assert run_transaction(connection, order_cancel, _context(run)).outcome is Outcome.OK

    units: dict[int, int] = {}
    for item in DATA.order_items(order):
        units[item.product] = units.get(item.product, 0) + item.quantity
    after = dict(_query(connection, "SELECT product, quantity FROM {s}.inventory"))
    assert {
        product: after[product] - before[product] for product in before if before[product] != after[product]
    } == units
    assert _query(connection, "SELECT status FROM {s}.orders WHERE id = %s", order) == [("cancelled",)]
    assert _query(connection, 'SELECT kind, amount FROM {s}.ledger WHERE "order" = %s ORDER BY kind', order) == [
        ("charge", DATA.order(order).total),
        ("refund", DATA.order(order).total),
    ]
    receipts = "SELECT kind, reference_id FROM {s}.operation_receipts WHERE operation_id = %s"
    assert _query(connection, receipts, rehearsal.operation_id) == [("order_cancel", order)]


def test_order_create_is_rejected_when_one_product_is_short(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    run = orders.begin_cell(connect, cell="test", slots=1, requests_hint=0)
    _customer, cart = draw_cart(_rehearse(run))
    product, units = cart[-1]
    with connect() as connection:
        connection.execute(f"UPDATE {SCHEMA}.inventory SET quantity = %s WHERE product = %s", (units - 1, product))
        before = _query(connection, "SELECT * FROM {s}.inventory ORDER BY product")
        ended = run_transaction(connection, order_create, _context(run))
        assert (ended.outcome, ended.rejection) == (Outcome.REJECTED, Rejected("out of stock"))
        assert _query(connection, "SELECT * FROM {s}.inventory ORDER BY product") == before
        assert _query(connection, "SELECT count(*) FROM {s}.orders WHERE id >= %s", TINY.orders) == [(0,)]
        assert _query(connection, "SELECT count(*) FROM {s}.operation_receipts") == [(0,)]


def test_the_last_units_can_be_sold(connect: Connect) -> None:
    orders = Orders("tiny")
    orders.load(connect, dialect="postgresql")
    run = orders.begin_cell(connect, cell="test", slots=1, requests_hint=0)
    _customer, cart = draw_cart(_rehearse(run))
    with connect() as connection:
        for product, units in cart:
            connection.execute(f"UPDATE {SCHEMA}.inventory SET quantity = %s WHERE product = %s", (units, product))
        assert run_transaction(connection, order_create, _context(run)).committed
        for product, _units in cart:
            assert _query(connection, "SELECT quantity FROM {s}.inventory WHERE product = %s", product) == [(0,)]


def test_order_cancel_is_rejected_when_the_order_is_not_placed(
    connection: psycopg.Connection[Any], run: CellRun
) -> None:
    order = run.pools["cancellable"].start
    connection.execute(f"UPDATE {SCHEMA}.orders SET status = 'cancelled' WHERE id = %s", (order,))
    ended = run_transaction(connection, order_cancel, _context(run))
    assert ended.rejection == Rejected("order is not placed")
    assert _query(connection, """SELECT count(*) FROM {s}.ledger WHERE "order" = %s AND kind = 'refund'""", order) == [
        (0,)
    ]


def test_order_cancel_is_rejected_when_the_set_aside_orders_ran_out(connection: psycopg.Connection[Any]) -> None:
    empty = CellRun(number=9, operation_prefix="r00000009-", slots=1, pools={"cancellable": range(0)})
    ended = run_transaction(connection, order_cancel, _context(empty))
    assert ended.rejection == Rejected("no set-aside order left in this cell")


@pytest.mark.parametrize("transaction", [order_create, order_cancel])
def test_a_second_attempt_that_meets_its_own_receipt_changes_nothing(
    connection: psycopg.Connection[Any], run: CellRun, transaction: Transaction
) -> None:
    assert run_transaction(connection, transaction, _context(run)).committed
    before = _everything(connection)
    # The same request once more, as after a COMMIT whose answer was lost.
    again = run_transaction(connection, transaction, _context(run))
    assert again.outcome is Outcome.OK
    assert _everything(connection) == before


def test_a_conflict_is_retried_with_the_same_request(loaded: Connect, run: CellRun) -> None:
    rehearsal = _rehearse(run)
    _customer, cart = draw_cart(rehearsal)
    order = rehearsal.new_id()
    with loaded() as connection, loaded() as rival:
        ended = _with_a_rival(connection, rival, run, cart[0][0])
        assert (ended.outcome, ended.attempts) == (Outcome.OK_RETRIED, 2)
        lines = 'SELECT product, quantity FROM {s}.order_items WHERE "order" = %s ORDER BY line'
        assert _query(connection, lines, order) == cart


def _with_a_rival(
    connection: psycopg.Connection[Any], rival: psycopg.Connection[Any], run: CellRun, product: int
) -> Executed:
    """Run order_create while another transaction changes one of its products between its snapshot and its update."""
    disturbed: list[int] = []

    def steps(ctx: Context) -> Steps:
        generator = order_create(ctx)
        answer = None
        try:
            while True:
                answer = yield generator.send(answer)  # the first statement has taken the snapshot
                if not disturbed:
                    disturbed.append(1)
                    rival.execute(f"UPDATE {SCHEMA}.inventory SET quantity = quantity WHERE product = %s", (product,))
        except StopIteration as end:
            ended: Rejected | None = end.value
            return ended

    return run_transaction(connection, Transaction(steps, "write", "order_create"), _context(run))


def _everything(connection: psycopg.Connection[Any]) -> list[list[tuple[Any, ...]]]:
    tables = ("inventory", "orders", "order_items", "ledger", "operation_receipts")
    return [_query(connection, f"SELECT * FROM {{s}}.{table} ORDER BY 1, 2") for table in tables]


def test_products_of_a_cart_differ_and_come_in_order(run: CellRun) -> None:
    ctx = _context(run)
    seen = set()
    for _ in range(300):
        ctx.next_request()
        _customer, cart = draw_cart(ctx)
        products = [product for product, _units in cart]
        assert products == sorted(set(products))
        assert {units for _product, units in cart} <= {1, 2}
        seen.add(len(cart))
    assert seen == {1, 2, 3}


@pytest.mark.parametrize(
    ("transaction", "statements"),
    [(product_read, {1}), (order_history, {1}), (order_create, {6, 7, 8}), (order_cancel, set(range(5, 10)))],
)
def test_statements_go_one_per_round_trip_and_their_texts_are_few(
    connection: psycopg.Connection[Any], run: CellRun, transaction: Transaction, statements: set[int]
) -> None:
    """Constant texts are prepared once per connection; a list would be a pipeline."""
    counts, texts = set(), set()

    def watched(ctx: Context) -> Steps:
        generator = transaction(ctx)
        answer, count = None, 0
        try:
            while True:
                step = generator.send(answer)
                assert isinstance(step, tuple)
                texts.add(step[0])
                count += 1
                answer = yield step
        except StopIteration as end:
            counts.add(count)
            ended: Rejected | None = end.value
            return ended

    ctx = _context(run, slot=1, seed=3)
    for _ in range(15):
        wrapped = Transaction(watched, transaction.kind, transaction.name)
        assert run_transaction(connection, wrapped, ctx).committed
    assert counts <= statements
    assert len(texts) <= 9
