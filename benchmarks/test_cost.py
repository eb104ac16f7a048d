"""What the order workload costs: DPU of each transaction by EXPLAIN, and of a cell of them as it was metered."""

from __future__ import annotations

import pytest

from pytest_dsql import Endpoint
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql


def test_the_dpu_of_an_order(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, dsql_endpoint: Endpoint) -> None:
    """Both are in the results: `experiments` has each transaction's parts, `cost` the cell's."""
    if dsql_endpoint.dialect != "dsql":
        pytest.skip("this target has no DPU")
    explained = dsql_load.dpu(dsql_orders.mix)
    cell = dsql_load.closed(dsql_orders.mix, connections=2, duration=dsql_plan.contention_window_s)
    cell.assert_consistent()
    assert cell.cost is not None
    assert cell.cost.dpu is not None
    for name in ("order_create", "order_cancel"):
        assert explained[name].write >= 0.05, "DSQL charges no transaction less that writes"
    assert explained["product_read"].write == 0
