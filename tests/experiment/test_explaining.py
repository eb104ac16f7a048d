"""The DPU estimate below a plan, and what a transaction is charged for its statements."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from pytest_dsql.experiment.explaining import read_estimate, with_minimums
from pytest_dsql.load.cost import Dpu

#: As Aurora DSQL answered an INSERT of one row.
LIVE = """\
Insert on public.t  (cost=0.00..0.01 rows=0 width=0) (actual time=6.971..6.971 rows=0 loops=1)
  ->  Result  (cost=0.00..0.01 rows=1 width=36) (actual time=0.001..0.001 rows=1 loops=1)
Query Identifier: aaaaaaaaaaaaa
Planning Time: 0.035 ms
Execution Time: 7.046 ms
Statement DPU Estimate:
  Compute: 0.01480 DPU
  Read: 0.00530 DPU
  Write: 0.00625 DPU (Transaction minimum: 0.05000)
  Total: 0.02636 DPU""".splitlines()


def test_the_estimate_of_a_live_plan() -> None:
    assert read_estimate(LIVE) == Dpu(0.0148, 0.0053, 0.00625)


@pytest.mark.parametrize("name", ["MultiRegionWrite", "Multi-Region Write", "MultiRegion Write"])
def test_the_part_of_other_regions_however_it_is_written(name: str) -> None:
    lines = [*LIVE[:-1], f"  {name}: 0.00625 DPU (Transaction minimum: 0.05000)", LIVE[-1]]
    assert read_estimate(lines) == Dpu(0.0148, 0.0053, 0.00625, 0.00625)


def test_a_plan_without_one() -> None:
    assert read_estimate(LIVE[:5]) is None
    assert read_estimate([]) is None


def test_a_transaction_is_charged_its_minimums_once() -> None:
    charged = with_minimums([Dpu(0.01, 0.001, 0.00625), Dpu(0.02, 0.001, 0.0125)])
    assert astuple(charged) == pytest.approx((0.03, 0.00375, 0.05, 0.0))
    large = with_minimums([Dpu(0.01, 0.1, 0.04), Dpu(0.02, 0.1, 0.04, 0.04)])
    assert astuple(large) == pytest.approx((0.03, 0.2, 0.08, 0.05))


def test_what_it_does_not_do_costs_nothing() -> None:
    assert with_minimums([]) == Dpu()
    assert with_minimums([Dpu(0.01, 0.001)]).write == 0
