"""The pipelined form of the orders does what the one with a statement per round trip does."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.load.blocking import run_transaction
from pytest_dsql.load.fleet import run_cell
from pytest_dsql.load.measurement import Arrival, Outcome
from pytest_dsql.load.plan import CellPlan
from pytest_dsql.load.retry import RetryPolicy
from pytest_dsql.transaction import Context, Tally, Transaction
from pytest_dsql.workloads.orders import pipelined, transactions
from pytest_dsql.workloads.orders.loader import Connect
from pytest_dsql.workloads.orders.scales import SCALES
from pytest_dsql.workloads.orders.schema import SCHEMA
from pytest_dsql.workloads.orders.workload import SHARES, Orders
from tests.plain_postgres import PlainPostgres

TINY = SCALES["tiny"]


def test_names_kinds_and_shares_are_those_of_the_published_form() -> None:
    assert [(one.name, one.kind, share) for one, share in pipelined.SHARES.items()] == [
        (one.name, one.kind, share) for one, share in SHARES.items()
    ]


@pytest.mark.parametrize("name", ["order_create", "order_cancel"])
def test_both_forms_draw_and_write_the_same(loaded: Connect, name: str) -> None:
    written = []
    for module in (transactions, pipelined):
        form: Transaction = getattr(module, name)
        run = Orders("tiny").begin_cell(loaded, cell="pipelined", slots=1, requests_hint=40)
        context = Context(seed=5, run=run, slot=0, scale=TINY)
        with loaded() as connection:
            outcomes = [run_transaction(connection, form, context).outcome for _ in range(8)]
            rows = connection.execute(
                f"SELECT l.kind, l.amount FROM {SCHEMA}.operation_receipts AS r "
                f'JOIN {SCHEMA}.ledger AS l ON l."order" = r.reference_id AND l.kind <> %s '
                "WHERE r.operation_id LIKE %s ORDER BY l.amount",
                ["charge" if name == "order_cancel" else "refund", f"{run.operation_prefix}%"],
            ).fetchall()
        written.append((outcomes, len(rows), rows if name == "order_create" else None))
        assert Outcome.OK in outcomes
    assert written[0] == written[1]


def test_a_request_that_finds_its_receipt_takes_no_stock_again(loaded: Connect) -> None:
    run = Orders("tiny").begin_cell(loaded, cell="pipelined", slots=1, requests_hint=10)

    def stock(connection: Any) -> Any:
        return connection.execute(f"SELECT sum(quantity) FROM {SCHEMA}.inventory").fetchone()[0]

    with loaded() as connection:
        first = Context(seed=7, run=run, slot=0, scale=TINY)
        assert run_transaction(connection, pipelined.order_create, first).outcome is Outcome.OK
        before = stock(connection)
        again = Context(seed=7, run=run, slot=0, scale=TINY)  # the same operation id
        assert run_transaction(connection, pipelined.order_create, again).outcome is Outcome.OK
        assert stock(connection) == before


def test_a_cell_of_pipelined_orders_holds_every_invariant(loaded: Connect, server: PlainPostgres) -> None:
    orders = Orders("tiny")
    run = orders.begin_cell(loaded, cell="pipelined", slots=3, requests_hint=6_000)
    endpoint = Endpoint(
        host=server.host,
        port=server.port,
        user=server.user,
        dbname="loaded",
        sslmode="disable",
        auth=PasswordAuth(server.password),
        dialect="postgresql",
    )
    plan = CellPlan(
        id="pipelined",
        endpoint=endpoint,
        mix=orders.pipelined_mix,
        scale=orders.scale,
        run=run,
        arrival=Arrival("closed"),
        connections=3,
        workers=1,
        warmup_s=0.1,
        window_s=1.0,
        seed=1,
        pipeline=True,
        retry=RetryPolicy(attempts=10),  # three connections on so few rows are in each other's way
    )
    measured = run_cell(plan)
    assert all(count > 0 for count in measured.committed.values()), measured.committed
    assert sum(one.count(Outcome.FAILED) for one in measured.samples.values()) == 0
    violations = orders.check_cell(loaded, run, Tally(committed=measured.committed, ambiguous=measured.ambiguous))
    assert violations
    assert not any(violations.values()), violations
