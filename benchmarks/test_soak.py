"""Soak: whether the target still meets the SLO after hours, and what each second of them was like."""

from __future__ import annotations

import pytest

from pytest_dsql.experiment.cells import Load
from pytest_dsql.experiment.plans import Plan
from pytest_dsql.workloads.orders.workload import Orders

from .test_e002_closed_loop import SLO

pytestmark = [pytest.mark.dsql, pytest.mark.dsql_slow]


def test_the_slo_holds_for_hours(dsql_load: Load, dsql_orders: Orders, dsql_plan: Plan) -> None:
    """The lowest rate of the pilot; connections are replaced and tokens renewed several times meanwhile."""
    if dsql_plan.soak_s is None:
        pytest.skip(f"the plan {dsql_plan.name!r} has no time for a soak: --dsql-plan full")
    cell = dsql_load.open(
        dsql_orders.mix,
        rate=min(dsql_plan.pilot_rates),
        connections=dsql_plan.open_loop_connections,
        duration=dsql_plan.soak_s,
    )
    cell.assert_meets(SLO)
