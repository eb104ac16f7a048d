"""The guard, and what each cell is reckoned to have used."""

from __future__ import annotations

import json
from dataclasses import astuple

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.connect.endpoint import Endpoint, IamAuth
from pytest_dsql.cost.books import AwsBooks, Budget
from pytest_dsql.cost.meters import AwsMeter
from pytest_dsql.cost.opening import attached_books
from pytest_dsql.cost.prices import Prices
from pytest_dsql.cost.shape import AuroraIo, CostShape, DsqlUse, Fixed
from pytest_dsql.cost.unit_costs import unit_costs
from pytest_dsql.errors import BudgetReached
from pytest_dsql.load.cost import NO_BOOKS, Dpu
from tests.cost.metrics import CLUSTER, REGION, START, put_dpu
from tests.cost.test_meters import SHAPE, Clock
from tests.load.made_cells import connect_stats, measurement, samples
from tests.load.test_digest import batches, both

INSTANCE = CostShape("rds-multi-az", fixed=(Fixed("rds-multi-az/db.r6g.xlarge", "us-east-1"),))


def books(clients: Clients | None, clock: Clock, budget: Budget, shape: CostShape = SHAPE) -> AwsBooks:
    prices = Prices()
    return AwsBooks(AwsMeter(shape, prices, clients, began_s=START, now=clock), prices, budget, now=clock)


def test_no_cell_begins_after_nine_tenths_of_the_budget() -> None:
    clock = Clock(START)
    one = books(None, clock, Budget(0.899), INSTANCE)  # an hour of it
    clock.at = START + 3239
    one.admit("test_a")
    clock.at = START + 3241
    with pytest.raises(BudgetReached, match=r"test_b was not started: \$0.81 of the budget of \$0.90 are used.* 90%"):
        one.admit("test_b")


def test_what_cloudwatch_says_counts_against_the_budget(clients: Clients) -> None:
    clock = Clock(START + 400)
    one = books(clients, clock, Budget(0.01))  # 1,000 DPU
    put_dpu(clients, {0: 890.0})
    one.admit("test_a")
    put_dpu(clients, {1: 20.0})
    clock.at += 60
    with pytest.raises(BudgetReached):
        one.admit("test_b")


def test_what_it_can_not_know_yet_counts_too(clients: Clients) -> None:
    clock = Clock(START)
    one = books(clients, clock, Budget(0.01))
    before = one.begin()
    clock.at += 9
    one.end(before, "test_a", measurement(samples("order_create", 30_000), duration_s=8.0, warmup_s=1.0))
    with pytest.raises(BudgetReached):
        one.admit("test_b")


def test_a_load_is_broken_off_at_the_guard(clients: Clients) -> None:
    clock = Clock(START)
    budget = Budget(0.01)  # 1,000 DPU
    one = books(clients, clock, budget)
    unit = unit_costs().dpu_per_loaded_row
    landed = one.loading("the order data")
    landed(5_000)  # which an earlier load has landed
    assert budget.spent() == 0
    landed(5_000 + int(400 / unit))
    assert budget.spent() == pytest.approx(0.004, rel=0.01)
    with pytest.raises(BudgetReached, match=r"loading the order data was broken off: \$0.01 of the budget of \$0.01"):
        landed(5_000 + int(901 / unit))
    with pytest.raises(BudgetReached, match="loading the other data was not started"):
        one.loading("the other data")
    assert one.close() == {}, "a load is no cell"


def test_a_load_is_broken_off_by_what_cloudwatch_says(clients: Clients) -> None:
    clock = Clock(START + 400)
    landed = books(clients, clock, Budget(0.01)).loading("the order data")
    landed(10)
    put_dpu(clients, {0: 910.0})
    landed(20)  # CloudWatch was asked a moment ago
    clock.at += 31
    with pytest.raises(BudgetReached):
        landed(30)


def test_a_load_in_two_regions_costs_in_both() -> None:
    clock = Clock(START)
    shape = CostShape("two", dsql=DsqlUse("us-east-1", CLUSTER, peers=(("us-east-2", "b" * 26),)))
    meter = AwsMeter(shape, Prices(), None, began_s=START, now=clock)
    landed = AwsBooks(meter, Prices(), Budget(None), now=clock).loading("the order data")
    landed(0)
    landed(1000)
    assert meter.dpu() == pytest.approx(2 * 1000 * unit_costs().dpu_per_loaded_row)


def test_a_load_by_the_hour_is_broken_off_too() -> None:
    clock = Clock(START)
    landed = books(None, clock, Budget(0.899), INSTANCE).loading("the order data")
    clock.at += 3239
    landed(1)
    clock.at += 2
    with pytest.raises(BudgetReached):
        landed(2)


def test_targets_of_a_run_share_the_budget_also_those_that_are_gone() -> None:
    clock = Clock(START)
    budget = Budget(1.0)
    first, second = (books(None, clock, budget, INSTANCE) for _ in range(2))
    clock.at += 1800
    assert budget.spent() == pytest.approx(0.899)
    first.close()
    clock.at += 1800
    assert budget.spent() == pytest.approx(0.899 * 1.5)
    with pytest.raises(BudgetReached):
        second.admit("test")


def test_without_a_budget_everything_begins() -> None:
    clock = Clock(START)
    one = books(None, clock, Budget(None), INSTANCE)
    clock.at += 1e9
    one.admit("test")


def test_what_other_processes_do_is_taken_for_as_much_until_cloudwatch_tells(clients: Clients) -> None:
    clock = Clock(START)
    prices = Prices()
    meter = AwsMeter(SHAPE, prices, clients, began_s=START, processes=3, now=clock)
    one = AwsBooks(meter, prices, Budget(None), now=clock)
    before = one.begin()
    clock.at += 5
    one.end(before, "test", connect_stats(100))
    assert meter.dpu() == pytest.approx(3 * 23)
    put_dpu(clients, {0: 50.0})
    clock.at += 1000
    meter.read()
    assert meter.dpu() == pytest.approx(50)


def test_a_cell_is_reckoned_by_attempts_and_connections() -> None:
    clock = Clock(START)
    one = books(None, clock, Budget(None))
    before = one.begin()
    clock.at += 9
    done = measurement(samples("product_read", 4000), samples("order_create", 4000), duration_s=8.0, warmup_s=1.0)
    cost = one.end(before, "test", done)
    assert cost is not None
    # 8,000 attempts in the window, an eighth as many before it, 4 connections.
    assert cost.dpu == pytest.approx(9000 * 0.0375 + 4 * 0.23)
    assert (cost.began_s, cost.ended_s, cost.estimated) == (START, START + 9, True)


def test_what_explain_told_of_each_transaction_is_used() -> None:
    clock = Clock(START)
    one = books(None, clock, Budget(None))
    one.learn({"product_read": Dpu(0.001, 0.00375), "order_create": Dpu(0.01, 0.01, 0.05)})
    done = measurement(samples("product_read", 800), samples("order_create", 80), duration_s=8.0, warmup_s=0.0)
    cost = one.end(one.begin(), "test", done)
    assert cost is not None
    assert cost.parts is not None
    assert astuple(cost.parts) == pytest.approx((0.8 + 0.8 + 4 * 0.23, 3 + 0.8, 4.0, 0.0))


def test_a_long_cell_whose_requests_are_only_counted_is_reckoned_too() -> None:
    kept, counted = both(batches(8, 400), 8)
    used = []
    for done in (kept, counted):
        one = books(None, Clock(START), Budget(None))
        cost = one.end(one.begin(), "test", done)
        assert cost is not None
        used.append(cost.dpu)
    assert used[0] == pytest.approx(used[1])
    assert used[0] is not None
    assert used[0] > 8 * 400 * 0.03


def test_a_burst_costs_its_connections() -> None:
    one = books(None, Clock(START), Budget(None))
    cost = one.end(one.begin(), "test", connect_stats(497, {"53300": 3}))
    assert cost is not None
    assert cost.dpu == pytest.approx(497 * 0.23)
    nothing = one.end(one.begin(), "test", None)
    assert nothing is not None
    assert nothing.dpu == 0


def test_the_end_tells_what_cloudwatch_knows_and_the_total(clients: Clients) -> None:
    clock = Clock(START)
    one = books(clients, clock, Budget(1.0))
    before = one.begin()
    clock.at += 600
    one.end(before, "test_a", measurement(samples("order_create", 10)))
    before = one.begin()
    clock.at += 300
    one.end(before, "test_b", measurement(samples("order_create", 10)))
    put_dpu(clients, dict.fromkeys(range(12), 100.0))
    costs = one.close()
    assert set(costs) == {"test_a"}
    assert costs["test_a"].dpu == pytest.approx(1000)
    assert not costs["test_a"].estimated
    facts = one.facts()
    assert facts["cost_dpu"] == pytest.approx(1100, rel=0.01)
    assert facts["cost_usd"] == pytest.approx(facts["cost_dpu"] * 10 / 1e6, rel=1e-3)
    assert (facts["budget_usd"], facts["cost_prices"], facts["cost_note"]) == (1.0, "table of 2026-09-11", None)
    assert CostShape.from_json(facts["cost_shape"]) == SHAPE
    assert "account" not in json.dumps(facts)


def test_two_stretches_of_a_cell_are_one(clients: Clients) -> None:
    clock = Clock(START)
    one = books(clients, clock, Budget(None))
    for _ in range(2):
        before = one.begin()
        clock.at += 600
        one.end(before, "test", measurement(samples("order_create", 10)))
    put_dpu(clients, dict.fromkeys(range(30), 10.0))
    clock.at += 1000
    [cost] = one.close().values()
    assert cost.dpu == pytest.approx(200)
    assert (cost.began_s, cost.ended_s) == (START, START + 1200)


def test_an_attached_cluster_has_dpu_and_another_endpoint_nothing() -> None:
    dsql = Endpoint(host=f"{CLUSTER}.dsql.{REGION}.on.aws", region=REGION, auth=IamAuth(), dialect="dsql")
    books_of_dsql = attached_books(dsql, None, Budget(None))
    cost = books_of_dsql.end(books_of_dsql.begin(), "test", connect_stats(10))
    assert cost is not None
    assert cost.dpu == pytest.approx(2.3)
    assert CostShape.from_json(books_of_dsql.facts()["cost_shape"]).dsql == DsqlUse(REGION, CLUSTER)
    plain = Endpoint.from_dsn("postgresql://me@db.example/app?sslmode=verify-full")
    assert attached_books(plain, None, Budget(None)) is NO_BOOKS


def test_cloudwatch_is_asked_for_every_cell_that_wants_to_begin(clients: Clients) -> None:
    clock = Clock(START + 400)
    one = books(clients, clock, Budget(0.01))
    one.admit("test_a")
    put_dpu(clients, {0: 1000.0})
    clock.at += 1
    with pytest.raises(BudgetReached):
        one.admit("test_b")


def test_a_silent_cloudwatch_does_not_open_the_guard(clients: Clients) -> None:
    clock = Clock(START)
    one = books(clients, clock, Budget(0.01))
    before = one.begin()
    clock.at += 9
    one.end(before, "test_a", measurement(samples("order_create", 30_000), duration_s=8.0, warmup_s=1.0))
    clock.at += 1000
    with pytest.raises(BudgetReached):
        one.admit("test_b")
    assert one.close() == {}
    assert one.facts()["cost_dpu"] > 1000
    assert one.facts()["cost_note"] == f"CloudWatch has told nothing of DPU in {REGION}: unit costs are used"


def test_requests_to_the_storage_count_before_cloudwatch_tells_of_them() -> None:
    clock = Clock(START)
    budget = Budget(1.0)
    one = books(None, clock, budget, CostShape("aurora-provisioned", io=AuroraIo("us-east-1")))
    done = measurement(samples("order_create", 10_000), duration_s=8.0, warmup_s=0.0)
    cost = one.end(one.begin(), "test", done)
    assert cost is not None
    assert cost.usd == budget.spent() == pytest.approx(40_000 * 0.20 / 1e6)


def test_a_peer_takes_in_the_writes_once_more() -> None:
    shape = CostShape("dsql-multi-region", dsql=DsqlUse("us-east-1", CLUSTER, peers=((REGION, "q" * 26),)))
    done = measurement(samples("order_create", 80), duration_s=8.0, warmup_s=0.0)
    budget = Budget(None)
    one = books(None, Clock(START), budget, shape)
    cost = one.end(one.begin(), "test", done)
    assert cost is not None
    connecting = 4 * 0.23
    # Nobody has told how much of it is writing: all of it at most.
    assert cost.dpu == pytest.approx(2 * (80 * 0.0375 + connecting))
    assert cost.usd == budget.spent() == pytest.approx((80 * 0.0375 + connecting) * (8 + 10) / 1e6)
    one.learn({"order_create": Dpu(0.01, 0.01, 0.05)})
    cost = one.end(one.begin(), "test", done)
    assert cost is not None
    assert cost.parts is not None
    assert astuple(cost.parts) == pytest.approx((0.8 + connecting, 0.8, 4.0, 4.0))
    assert cost.usd == pytest.approx(((5.6 + connecting) * 8 + 4 * 10) / 1e6)
