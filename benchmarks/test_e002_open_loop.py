"""E002, open loop: whether the target meets the SLO at a given rate of orders, and the highest rate that it does."""

from __future__ import annotations

import pytest

from pytest_dsql import Latency, Slo, ms
from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.workload import Orders

from .test_e002_closed_loop import SLO

pytestmark = pytest.mark.dsql

#: What a quick cell at a low rate has requests enough to decide: 104 of a transaction for a p95, 528 for a p99.
P95 = Slo(reads=Latency(p95=ms(50)), writes=Latency(p95=ms(100)))


def slo_of(plan: Plan) -> Slo:
    """Return what the plan's cells can decide."""
    return SLO if plan.name == "full" else P95


def test_pilot(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, pilot_rate: float) -> None:
    """Poisson arrivals at low rates: what each transaction takes where nothing queues."""
    dsql_load.open(
        dsql_orders.mix,
        rate=pilot_rate,
        connections=dsql_plan.open_loop_connections,
        warmup=dsql_plan.pilot_warmup_s,
        duration=dsql_plan.pilot_window_s,
    ).assert_meets(slo_of(dsql_plan))


def test_order_workload_meets_the_slo_at_a_rate(
    dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan, rate: float
) -> None:
    """The ladder; latency counts from when a request was to start, whether or not a connection was free."""
    cell = dsql_load.open(dsql_orders.mix, rate=rate, connections=dsql_plan.open_loop_connections)
    cell.assert_meets(slo_of(dsql_plan))


@pytest.mark.dsql_slow
def test_capacity(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan) -> None:
    """The highest rate that meets the SLO, with the way there; it is in the results' experiments."""
    how = dsql_plan.capacity
    if how is None:
        pytest.skip(f"the plan {dsql_plan.name!r} has no time for a search: --dsql-plan full")
    capacity = dsql_load.capacity(
        dsql_orders.mix, SLO, start=how.start, growth=how.growth, precision=how.precision, repeats=how.repeats
    )
    assert capacity.rate is not None, capacity.describe()
