"""Contention: what share of the transactions loses a conflict, and what share still fails after its retries.

Transfers between accounts and orders of products, each in an explicit REPEATABLE READ block, evenly over all keys and
with 80 % of them on 1 % of the keys, tried once and up to three times. Nothing is promised of latencies; no money and
no stock may be lost.
"""

from __future__ import annotations

import pytest

from pytest_dsql import Mix
from pytest_dsql.access import HOT, UNIFORM
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.transactions import order_create
from pytest_dsql.workloads.orders.workload import Orders
from pytest_dsql.workloads.transfers.workload import Transfers

pytestmark = pytest.mark.dsql


@pytest.fixture(params=["transfers", "orders"])
def contended(request: pytest.FixtureRequest) -> Mix:
    """A mix whose transactions change rows that others change."""
    if request.param == "transfers":
        transfers: Transfers = request.getfixturevalue("dsql_transfers")
        return transfers.mix
    orders: Orders = request.getfixturevalue("dsql_orders")
    return Mix({order_create: 1.0}, workload=orders)


def test_they_conflict_and_lose_nothing(dsql_load: Load, contended: Mix, dsql_plan: Plan, rivals: int) -> None:
    """More conflicts on hot keys, fewer failures with retries, and every balance and stock right in any case."""
    cells = {
        (access.describe(), attempts): dsql_load.closed(
            contended,
            connections=rivals,
            warmup=dsql_plan.connection_warmup_s,
            duration=dsql_plan.contention_window_s,
            access=access,
            attempts=attempts,
        )
        for access in (UNIFORM, HOT)
        for attempts in (1, 3)
    }
    for cell in cells.values():
        cell.assert_consistent()
    even, hot = ([cells[access.describe(), attempts] for attempts in (1, 3)] for access in (UNIFORM, HOT))
    assert max(cell.conflict_rate for cell in even) < min(cell.conflict_rate for cell in hot)
    assert hot[1].failure_rate < hot[0].failure_rate
