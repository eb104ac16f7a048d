"""What a run will cost, before it begins."""

from __future__ import annotations

import pytest

from pytest_dsql.cost.estimate import check_budget, dpu_of, estimate
from pytest_dsql.cost.prices import NoPrice, Prices
from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape, DsqlUse, Fixed
from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.cost.work import PlannedTest, Work, work_of
from pytest_dsql.errors import UsageError
from pytest_dsql.experiment.plans import plan_for

FULL = plan_for("full", "attach")
QUICK = plan_for("quick", "attach")
LOAD = frozenset({"dsql_load"})
SIDE_BY_SIDE = frozenset({"dsql_side_by_side", "dsql_targets"})


def test_loading_the_published_data_costs_what_it_did() -> None:
    """517,021 DPU for the order workload at full scale (Seoul, 2026-09), here once however many tests want it."""
    tests = [PlannedTest(f"test_{n}", frozenset({"dsql_orders"})) for n in range(3)]
    work = work_of(tests, FULL, "full")
    assert work.rows == 50_900_100
    assert dpu_of(work) == pytest.approx(517_021, rel=0.001)


@pytest.mark.parametrize(
    ("test", "cells", "seconds", "attempts"),
    [
        (PlannedTest("test_a", LOAD, {"connections": 16}), 1, 435, 16 * 104.4 * 420),
        # 256 connections reach what was the most of any.
        (PlannedTest("test_a", LOAD, {"connections": 256}), 1, 435, 26_285 * 420),
        (PlannedTest("test_a", LOAD), 1, 435, 26_285 * 420),
        (PlannedTest("test_a", LOAD, {"rate": 400.0}), 1, 435, 400 * 420),
        (PlannedTest("test_a", LOAD, {"rivals": 16}), 4, 4 * 195, 4 * 16 * 104.4 * 180),
        (PlannedTest("test_burst", LOAD, {"burst": 500}), 1, 20, 500),
        (PlannedTest("test_pilot", LOAD, {"pilot_rate": 100.0}), 1, 195, 100 * 180),
        (PlannedTest("test_the_slo_holds_for_hours", LOAD), 1, 4 * 3600 + 135, 100 * (4 * 3600 + 120)),
        # Without dsql_load, but load all the same; 1,024 tasks do what the pool's connections can.
        (PlannedTest("test_tasks", frozenset({"dsql_target"}), {"tasks": 1024, "pool": 16}), 1, 50, 16 * 104.4 * 35),
        (PlannedTest("test_tasks", LOAD, {"pool": 16}), 4, 200, 4 * 16 * 104.4 * 35),
        # 1 to 50 functions for some 1,000 rows each
        (PlannedTest("test_a", frozenset({"dsql_functions"})), 6, 6 * 27, 88 * 104.4 * 12),
        (PlannedTest("test_a", frozenset({"dsql_connection"})), 0, 0, 0),
    ],
)
def test_the_work_of_a_test(test: PlannedTest, cells: int, seconds: float, attempts: float) -> None:
    work = work_of([test], FULL, "full")
    assert work.cells == cells
    assert work.seconds == pytest.approx(seconds)
    assert work.attempts == pytest.approx(attempts)


def test_the_main_measurement_is_reckoned_with_its_exploration_and_its_data() -> None:
    """Closed loop at 16, 64 and 256; then 0.5, 1.0 and 1.2 of what was carried, three times each."""
    work = work_of([PlannedTest("test_all_targets_at_common_rates", SIDE_BY_SIDE)], FULL, "full", targets=3)
    assert work.rows == 50_900_100
    assert work.cells == 3 + 9
    assert work.seconds == pytest.approx(12 * 435 + 5090, rel=0.001)
    explored = (16 * 104.4 + 64 * 104.4 + 26_285) * 420
    assert work.attempts == pytest.approx(explored + 3 * (0.5 + 1.0 + 1.2) * 26_285 * 420)
    # $20 of requests at Seoul's price: no budget of a dollar lets that pass.
    shape = CostShape("dsql", dsql=DsqlUse("ap-northeast-2"))
    assert estimate(shape, work, Prices()).usd > 40


def test_what_says_its_size_side_by_side_counts_in_every_repeat() -> None:
    one = work_of([PlannedTest("test_a", LOAD, {"rate": 400.0})], FULL, "tiny")
    work = work_of([PlannedTest("test_a", SIDE_BY_SIDE, {"rate": 400.0})], FULL, "tiny", targets=2)
    assert (work.cells, work.attempts) == (3, 3 * one.attempts)
    assert work.rows > 0
    bounds = work_of([PlannedTest("test_boundaries", SIDE_BY_SIDE)], FULL, "tiny", targets=2)
    assert bounds.cells == work_of([PlannedTest("test_capacity", LOAD)], FULL, "tiny").cells


def test_benchmarks_that_compare_targets_are_nothing_on_one() -> None:
    tests = [PlannedTest(name, SIDE_BY_SIDE) for name in ("test_all_targets_at_common_rates", "test_boundaries")]
    assert work_of(tests, QUICK, "quick", targets=1) == Work()
    assert work_of(tests, QUICK, "quick", targets=2).cells == len(QUICK.closed_loop_connections) + 9
    # The full plan has time for the main measurement of one target, too.
    assert work_of(tests, FULL, "full", targets=1).cells == 12


def test_data_that_a_parameter_names_is_loaded_too() -> None:
    work = work_of([PlannedTest("test_a", LOAD, {"rivals": 16, "contended": "orders"})], FULL, "full")
    assert work.rows == 50_900_100
    assert work_of([PlannedTest("test_a", LOAD, {"rivals": 16, "contended": "transfers"})], FULL, "full").rows == 0


def test_a_search_is_reckoned_to_the_end() -> None:
    work = work_of([PlannedTest("test_capacity", LOAD)], FULL, "full")
    # 1,600, 2,000, ... 23,283 in three repeats each
    assert work.cells == 39
    assert work_of([PlannedTest("test_capacity", LOAD)], QUICK, "quick") == Work()


def test_the_published_closed_loop_on_aurora_dsql() -> None:
    """Its cells at 16, 64 and 256 connections and its load, at Seoul's price."""
    tests = [
        PlannedTest("test_a", frozenset({"dsql_load", "dsql_orders"}), {"connections": connections})
        for connections in FULL.closed_loop_connections
    ]
    shape = CostShape("dsql", dsql=DsqlUse("ap-northeast-2"))
    found = estimate(shape, work_of(tests, FULL, "full"), Prices())
    # The published cells had 0.029 to 0.0375 DPU an attempt: 32 thousand attempts a second for 420 s, and the load.
    assert found.dpu == pytest.approx((16 * 104.4 + 64 * 104.4 + 26_285) * 420 * 0.0375 + 517_021, rel=0.01)
    assert found.usd == pytest.approx(found.dpu * 10 / 1e6, rel=0.01)
    assert 8 < found.usd < 12
    assert "prices: table of 2026-09-11" in found.describe()


def test_a_second_region_is_charged_for_its_writes() -> None:
    one = CostShape("dsql", dsql=DsqlUse("ap-northeast-1"))
    two = CostShape("dsql-multi-region", dsql=DsqlUse("ap-northeast-1", peers=(("ap-northeast-2", None),)))
    work = Work(cells=1, seconds=60, attempts=1e6)
    assert estimate(two, work, Prices()).usd == pytest.approx(2 * estimate(one, work, Prices()).usd)


def test_instances_are_paid_for_as_long_as_they_exist() -> None:
    shape = CostShape(
        "rds-multi-az",
        fixed=(
            Fixed("rds-multi-az/db.r6g.xlarge", "us-east-1", least_s=600),
            Fixed("rds-multi-az-gp3", "us-east-1", quantity=400),
        ),
        coming_s=1800,
    )
    found = estimate(shape, Work(cells=2, seconds=5400), Prices())
    assert found.usd == pytest.approx(2 * 0.899 + 400 * 0.23 * 2 / 730)
    assert found.dpu == 0
    assert found.describe().startswith("rds-multi-az: about $2.05 for 2 cells in 1.5 h (1 x rds-multi-az/db.r6g.xlarge")


def test_a_short_run_pays_the_least() -> None:
    shape = CostShape("rds-multi-az", fixed=(Fixed("rds-multi-az/db.r6g.xlarge", "us-east-1", least_s=600),))
    assert estimate(shape, Work(seconds=60), Prices()).usd == pytest.approx(0.899 / 6)


def test_serverless_capacity_and_requests() -> None:
    shape = CostShape("aurora-serverless", acu=AcuUse("us-east-1", 4, 32, 2), io=AuroraIo("us-east-1"))
    found = estimate(shape, Work(seconds=3600, attempts=1e6), Prices())
    assert found.usd == pytest.approx(64 * 0.12 + 4 * 0.20)


def test_what_has_no_price_can_not_be_estimated() -> None:
    with pytest.raises(NoPrice):
        estimate(CostShape("dsql", dsql=DsqlUse("eu-central-1")), Work(), Prices())


def test_an_estimate_beyond_the_budget_starts_nothing() -> None:
    shape = CostShape("rds-multi-az", fixed=(Fixed("rds-multi-az/db.r6g.xlarge", "us-east-1"),))
    found = estimate(shape, Work(seconds=3600), Prices())
    said = check_budget([found], 1.0)
    assert said.startswith("estimate $0.90 of a budget of $1.00. rds-multi-az: about $0.90")
    with pytest.raises(UsageError, match=r"the estimate of \$1.80 exceeds the budget of \$1.50 .* nothing is started"):
        check_budget([found, found], 1.5)


def test_every_unit_cost_says_who_measured_it() -> None:
    import tomllib
    from pathlib import Path

    import pytest_dsql.cost.unit_costs as module

    content = tomllib.loads((Path(module.__file__).parent / "unit_costs.toml").read_text(encoding="utf-8"))
    for name, entry in content.items():
        assert getattr(unit_costs(), name) == entry["value"] > 0
        assert entry["source"].startswith("Assumption: ") or "measured" in entry


def test_a_shape_comes_back_from_its_text() -> None:
    shape = CostShape(
        "aurora-serverless",
        fixed=(Fixed("public-ipv4", "us-east-1", 2),),
        dsql=DsqlUse("us-east-1", "a" * 26, peers=(("us-east-2", "b" * 26),)),
        acu=AcuUse("us-east-1", 4, 32, 2, instances=("w", "r")),
        io=AuroraIo("us-east-1", "c"),
        coming_s=900,
    )
    assert CostShape.from_json(shape.to_json()) == shape
    assert shape.regions == ("us-east-1", "us-east-2")
    assert set(shape.items) == {"public-ipv4", "dsql-dpu", "dsql-storage", "aurora-acu", "aurora-io", "aurora-storage"}
