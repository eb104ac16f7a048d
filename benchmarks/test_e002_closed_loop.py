"""E002: how much of an order workload the target carries inside its SLO, in closed loop."""

from __future__ import annotations

import pytest

from pytest_dsql import Latency, Slo, ms
from pytest_dsql.experiment.cells import Load
from pytest_dsql.workloads.orders.workload import Orders

pytestmark = pytest.mark.dsql

#: The SLO of the published experiment (Aurora DSQL, Seoul, 2026-09).
SLO = Slo(
    reads=Latency(p95=ms(50), p99=ms(100)),
    writes=Latency(p95=ms(100), p99=ms(200)),
    max_failure_rate=0.001,
)


def test_order_workload_meets_the_slo(dsql_load: Load, dsql_orders: Orders, connections: int) -> None:
    """Uniform access, each transaction in an explicit REPEATABLE READ block, one statement per round trip."""
    cell = dsql_load.closed(dsql_orders.mix, connections=connections)
    cell.assert_meets(SLO)
