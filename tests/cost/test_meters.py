"""Measured as far as CloudWatch has come, reckoned from there on; against an account in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple
from typing import Any

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cost.meters import AwsMeter, CellUse
from pytest_dsql.cost.prices import Prices
from pytest_dsql.cost.shape import AcuUse, AuroraIo, CostShape, DsqlUse, Fixed
from pytest_dsql.load.cost import Dpu
from tests.cost.conftest import Answers, refusal
from tests.cost.metrics import CLUSTER, REGION, START, put, put_dpu

SHAPE = CostShape("dsql", dsql=DsqlUse(REGION, CLUSTER))
Answering = Callable[[Answers], list[tuple[str, Mapping[str, Any]]]]


class Clock:
    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def meter(clients: Clients | None, clock: Clock, shape: CostShape = SHAPE) -> AwsMeter:
    return AwsMeter(shape, Prices(), clients, began_s=START, now=clock)


def test_what_cloudwatch_knows_is_measured_and_the_rest_reckoned(clients: Clients) -> None:
    clock = Clock(START + 270)
    put_dpu(clients, {0: 1000.0, 1: 1000.0, 2: 40.0})
    one = meter(clients, clock)
    one.add(CellUse("a", START, START + 120, dpu=777.0))
    one.add(CellUse("b", START + 130, START + 250, dpu=1200.0))
    assert one.dpu() == pytest.approx(777 + 1200)  # nobody has asked yet
    one.read()
    # The newest minute may not be whole: what is known ends where it begins.
    assert one.settled_s == START + 120
    assert one.dpu() == pytest.approx(2000 + 1200)
    assert one.usd() == pytest.approx(3200 * 10 / 1e6)
    clock.at = START + 800
    one.read()
    assert one.settled_s == START + 500
    assert one.dpu() == pytest.approx(2040)


def test_it_is_asked_every_half_minute_at_most(clients: Clients, answering: Answering) -> None:
    calls = answering({"GetMetricData": lambda _parameters: {"MetricDataResults": []}})
    clock = Clock(START + 100)
    one = meter(clients, clock)
    for at in (100, 110, 129, 131):
        clock.at = START + at
        one.read()
    assert len(calls) == 4  # twice, each for two dimensions
    one.read(at_once=True)
    assert len(calls) == 6


def test_a_long_cell_is_measured(clients: Clients) -> None:
    """Of its 10.5 minutes, two are shared; a half and a part of the last one are taken."""
    put_dpu(clients, dict.fromkeys(range(11), 100.0) | {11: 1.0})
    clock = Clock(START + 2000)
    one = meter(clients, clock)
    one.read()
    cost = one.cost(CellUse("a", START + 30, START + 660, dpu=5.0))
    assert cost.dpu == pytest.approx(1050)
    assert cost.parts is not None
    assert astuple(cost.parts) == pytest.approx((105, 315, 630, 0))
    assert cost.usd == pytest.approx(1050 * 10 / 1e6)
    assert (cost.estimated, cost.source) == (False, "cloudwatch")


def test_a_short_cell_is_an_estimate_whoever_says_so(clients: Clients) -> None:
    put_dpu(clients, {0: 100.0, 1: 100.0})
    one = meter(clients, Clock(START + 2000))
    one.read()
    cost = one.cost(CellUse("a", START + 50, START + 70, dpu=5.0))
    assert cost.dpu == pytest.approx(100 / 6 + 100 / 6)
    assert (cost.estimated, cost.source) == (True, "cloudwatch")


def test_a_cell_of_a_moment_ago_is_reckoned(clients: Clients) -> None:
    put_dpu(clients, {0: 100.0, 1: 100.0})
    one = meter(clients, Clock(START + 130))
    one.read()
    cost = one.cost(CellUse("a", START + 50, START + 110, dpu=5.0, parts=Dpu(5.0)))
    assert (cost.dpu, cost.parts, cost.estimated, cost.source) == (5.0, Dpu(5.0), True, "unit costs")


def test_a_cell_without_use_stays_an_estimate(clients: Clients) -> None:
    one = meter(clients, Clock(START + 2000))
    one.read()
    assert one.cost(CellUse("a", START, START + 600, dpu=5.0)).estimated


def test_a_refusal_is_kept_and_everything_reckoned(clients: Clients, answering: Answering) -> None:
    calls = answering({"GetMetricData": refusal("AccessDenied", 403)})
    clock = Clock(START + 1000)
    one = meter(clients, clock)
    one.add(CellUse("a", START, START + 60, dpu=123.0))
    one.read()
    clock.at += 100
    one.read()
    assert len(calls) == 1
    assert one.refusal is not None
    assert "123456789012" not in one.refusal
    assert one.dpu() == 123.0
    assert one.cost(one.cells[0]).source == "unit costs"


def test_throttling_passes(clients: Clients, answering: Answering) -> None:
    answering({"GetMetricData": refusal("Throttling")})
    one = meter(clients, Clock(START + 1000))
    one.read()
    assert one.refusal is None
    assert one.settled_s == START


def test_without_anybody_to_ask() -> None:
    one = meter(None, Clock(START + 1000))
    one.add(CellUse("a", START, START + 60, dpu=123.0))
    one.read()
    assert one.dpu() == 123.0
    assert one.refusal == "CloudWatch can't be asked without boto3"


def test_instances_cost_what_they_cost() -> None:
    shape = CostShape("rds-multi-az", fixed=(Fixed("rds-multi-az/db.r6g.xlarge", "us-east-1", least_s=600),))
    clock = Clock(START + 60)
    one = meter(None, clock, shape)
    assert one.usd() == pytest.approx(0.899 / 6)  # ten minutes at least
    clock.at = START + 7200
    assert one.usd() == pytest.approx(2 * 0.899)
    cost = one.cost(CellUse("a", START, START + 1800, dpu=0.0))
    assert (cost.dpu, cost.estimated, cost.source) == (None, False, "time")
    assert cost.usd == pytest.approx(0.899 / 2)


def test_serverless_capacity_is_the_most_until_cloudwatch_says_what_it_was(clients: Clients) -> None:
    region = "us-east-1"
    shape = CostShape(
        "aurora-serverless",
        acu=AcuUse(region, 4, 32, 2, instances=("w", "r")),
        io=AuroraIo(region, "c"),
    )
    clock = Clock(START + 600)
    one = meter(clients, clock, shape)
    use = CellUse("a", START + 60, START + 360, dpu=0.0)
    one.add(use)
    assert one.usd() == pytest.approx(64 * 0.12 / 6)
    assert one.cost(use).estimated
    for name in ("w", "r"):
        values = {START + 60 * minute: 5.0 for minute in range(11)}
        put(clients, "AWS/RDS", "ServerlessDatabaseCapacity", {"DBInstanceIdentifier": name}, values, region=region)
    volume = {"DBClusterIdentifier": "c"}
    put(clients, "AWS/RDS", "VolumeWriteIOPs", volume, {START: 1e6, START + 300: 1e6}, region=region)
    clock.at = START + 660
    one.read()
    # Ten minutes of 10 ACU, and the newest, which may not be whole, at the most.
    assert one.usd() == pytest.approx(10 * 0.12 / 6 + 64 * 0.12 / 60 + 2 * 0.20)
    cost = one.cost(use)
    # 5 minutes of 10 ACU, four of the first five minutes' requests, and one of the next five's.
    assert cost.usd == pytest.approx(10 * 0.12 / 12 + 0.20)
    assert (cost.dpu, cost.estimated, cost.source) == (None, False, "cloudwatch")


def test_a_price_that_is_not_known_leaves_no_usd() -> None:
    shape = CostShape("dsql", dsql=DsqlUse("eu-central-1", CLUSTER))
    one = meter(None, Clock(START + 60), shape)
    cost = one.cost(CellUse("a", START, START + 60, dpu=5.0))
    assert (cost.dpu, cost.usd) == (5.0, None)
    assert one.usd() == 0.0


def test_a_cell_of_which_cloudwatch_never_tells_stays_reckoned(clients: Clients) -> None:
    """Silence, as after a delay or from another account, frees nothing of the budget."""
    clock = Clock(START + 400)
    one = meter(clients, clock)
    one.add(CellUse("a", START, START + 360, dpu=5e6))
    for _ in range(3):
        one.read(at_once=True)
        assert one.dpu() == 5e6
        assert one.usd() == pytest.approx(50)
        assert (one.cost(one.cells[0]).dpu, one.cost(one.cells[0]).source) == (5e6, "unit costs")
        clock.at += 1000
    assert one.silent == (f"DPU in {REGION}",)
    assert one.note == f"CloudWatch has told nothing of DPU in {REGION}: unit costs are used"
    # Late as it is, it counts.
    put_dpu(clients, dict.fromkeys(range(6), 100.0))
    one.read(at_once=True)
    assert one.dpu() == pytest.approx(600)
    assert one.cost(one.cells[0]).source == "cloudwatch"
    assert not one.silent
    assert one.note is None


def test_what_is_told_of_one_cell_says_nothing_of_another(clients: Clients) -> None:
    one = meter(clients, Clock(START + 3000))
    one.add(CellUse("a", START, START + 120, dpu=700.0))
    one.add(CellUse("b", START + 1000, START + 1300, dpu=900.0))
    put_dpu(clients, {0: 50.0, 1: 50.0})
    one.read()
    assert one.dpu() == pytest.approx(100 + 900)
    assert [one.cost(use).source for use in one.cells] == ["cloudwatch", "unit costs"]


def test_capacity_and_requests_of_which_nothing_is_told_are_no_measurement(clients: Clients) -> None:
    region = "us-east-1"
    shape = CostShape("aurora-serverless", acu=AcuUse(region, 4, 32, 2, instances=("w",)), io=AuroraIo(region, "c"))
    one = meter(clients, Clock(START + 3000), shape)
    use = CellUse("a", START, START + 600, dpu=0.0, requests=2e6)
    one.add(use)
    one.read()
    assert one.usd() == pytest.approx(64 * 0.12 * 3000 / 3600 + 2 * 0.20)
    cost = one.cost(use)
    assert cost.usd == pytest.approx(64 * 0.12 / 6 + 2 * 0.20)
    assert (cost.estimated, cost.source) == (True, "time")
    assert one.silent == ("ACU", "requests to the storage")


def test_each_region_has_its_price(clients: Clients) -> None:
    """DPU cost $8 a million in us-east-1 and $10 in Seoul."""
    other, peer = "us-east-1", "q" * 26
    shape = CostShape("dsql-multi-region", dsql=DsqlUse(other, CLUSTER, peers=((REGION, peer),)))
    one = meter(clients, Clock(START + 2000), shape)
    use = CellUse("a", START, START + 600, dpu=1e6, peer_dpu=0.5e6)
    one.add(use)
    assert one.usd() == pytest.approx(8 + 5)
    assert one.cost(use).usd == pytest.approx(8 + 5)
    assert one.cost(use).dpu == pytest.approx(1.5e6)
    put_dpu(clients, dict.fromkeys(range(10), 1e5), region=other)
    one.read()
    # The peer is silent yet.
    assert one.usd() == pytest.approx(8 + 5)
    put_dpu(clients, dict.fromkeys(range(10), 0.25e5), cluster=peer)
    one.read(at_once=True)
    assert one.usd() == pytest.approx(8 + 2.5)
    cost = one.cost(use)
    assert cost.usd == pytest.approx(8 + 2.5)
    assert cost.dpu == pytest.approx(1.25e6)
    assert (cost.estimated, cost.source) == (False, "cloudwatch")
