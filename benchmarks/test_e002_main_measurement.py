"""E002, the main measurement: all targets at the same rates, in turn, three times each, and how they compare.

Qref is the lowest of what the targets carried inside the SLO in closed loop. The published experiment chose it so and
ended before it measured at it. The ratios between the targets are in the summary and in the results' experiments.
"""

from __future__ import annotations

import pytest

from pytest_dsql.experiment.plans import Plan
from pytest_dsql.experiment.side_by_side import SideBySide
from pytest_dsql.fixtures import settings_of
from pytest_dsql.results.writer import ResultsFile
from pytest_dsql.workloads.orders.workload import Orders

from .test_e002_open_loop import slo_of

pytestmark = [pytest.mark.dsql, pytest.mark.dsql_slow]


@pytest.fixture
def orders(dsql_plan: Plan, pytestconfig: pytest.Config) -> Orders:
    """The order workload; each target gets it before it is measured."""
    settings = settings_of(pytestconfig)
    return Orders(settings.scale or dsql_plan.scale, seed=settings.seed)


def test_all_targets_at_common_rates(
    dsql_side_by_side: SideBySide, dsql_plan: Plan, dsql_results: ResultsFile, orders: Orders
) -> None:
    """At 0.5, 1.0 and 1.2 of Qref; each target meets the SLO at half of what the slowest of them carries."""
    main, slo = dsql_plan.main, slo_of(dsql_plan)
    if len(dsql_side_by_side) == 1 and not main.alone:
        pytest.skip("compares targets: --dsql-target A,B or --dsql-plan full")
    dsql_side_by_side.load(orders)
    explored = dsql_side_by_side.explore(orders.mix, slo, dsql_plan.closed_loop_connections)
    carried = {target: rate for target, (rate, _cells) in explored.items() if rate is not None}
    assert set(carried) == set(dsql_side_by_side), "a target met the SLO with no number of connections"
    reference = min(carried.values())
    dsql_results.put_experiment(
        "E002 reference rate", {"per_s": reference, "of": min(carried, key=carried.__getitem__)}
    )
    runs = {
        share: dsql_side_by_side.repeat(
            main.repeats,
            lambda load, share=share: load.open(  # type: ignore[misc]
                orders.mix,
                rate=share * reference,
                connections=dsql_plan.open_loop_connections,
                warmup=main.warmup_s,
                duration=main.window_s,
            ),
        )
        for share in main.shares
    }
    verdicts = {
        f"{target} at {share:g}": several.verdict(slo).outcome
        for share, by_target in runs.items()
        for target, several in by_target.items()
    }
    dsql_results.put_experiment("E002 main measurement", verdicts)
    for several in runs[min(runs)].values():
        several.assert_meets(slo)


def test_boundaries(dsql_side_by_side: SideBySide, dsql_plan: Plan, orders: Orders) -> None:
    """The highest rate of each target that meets the SLO in every repeat: up by a quarter, then narrowed."""
    how = dsql_plan.capacity
    if how is None or len(dsql_side_by_side) == 1:
        pytest.skip("compares targets, in the full plan: --dsql-target A,B --dsql-plan full; test_capacity has one")
    dsql_side_by_side.load(orders)
    reference, capacities = dsql_side_by_side.capacity(
        orders.mix,
        slo_of(dsql_plan),
        start=how.start,
        growth=how.growth,
        precision=how.precision,
        repeats=how.repeats,
    )
    assert reference is not None, {target: one.describe() for target, one in capacities.items()}
